package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/backends/layers/observe"
)

// A backendRecorder is an [observe.Recorder] with its series looked up once.
type backendRecorder struct {
	requests prometheus.Counter
	take     prometheus.Observer
	failed   [observe.NumClasses]prometheus.Counter
	calls    [observe.NumOps]prometheus.Observer
	errors   [observe.NumOps][observe.NumClasses]prometheus.Counter
}

// Backend returns a recorder for the backend called name.
func (m *Metrics) Backend(name string) observe.Recorder {
	r := &backendRecorder{
		requests: m.batched.WithLabelValues(name),
		take:     m.calls.WithLabelValues(name, "take"),
	}
	for class := observe.None + 1; class < observe.NumClasses; class++ {
		r.failed[class] = m.errors.WithLabelValues(name, "take", class.String())
	}
	for op := range observe.Op(observe.NumOps) {
		r.calls[op] = m.calls.WithLabelValues(name, op.String())
		for class := observe.None + 1; class < observe.NumClasses; class++ {
			r.errors[op][class] = m.errors.WithLabelValues(name, op.String(), class.String())
		}
	}
	return r
}

func (r *backendRecorder) Take(requests int, d time.Duration, failed [observe.NumClasses]int) {
	r.requests.Add(float64(requests))
	r.take.Observe(d.Seconds())
	for class, n := range failed {
		if n > 0 {
			r.failed[class].Add(float64(n))
		}
	}
}

func (r *backendRecorder) Call(op observe.Op, d time.Duration, class observe.Class) {
	r.calls[op].Observe(d.Seconds())
	if class != observe.None {
		r.errors[op][class].Inc()
	}
}

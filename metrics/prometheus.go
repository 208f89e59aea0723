package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/internal/kit/metrics/prom"
)

// A Registerer publishes the metrics of limiters: it goes into headgate.Options.
type Registerer struct{ to prometheus.Registerer }

// Prometheus returns what registers metrics in a registry of Prometheus. Two limiters need registries that tell them
// apart, such as those of prometheus.WrapRegistererWith.
func Prometheus(to prometheus.Registerer) Registerer { return Registerer{to} }

// Register registers rows until unregister is called.
func (r Registerer) Register(rows ...metrics.Row) (unregister func(), err error) {
	all := prom.New()
	all.Add(rows...)
	if err := r.to.Register(all); err != nil {
		return nil, err
	}
	return func() { r.to.Unregister(all) }, nil
}

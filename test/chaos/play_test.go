package chaos

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A style is how a scene is played.
type style struct {
	// transport is what serves the gRPC address of all replicas.
	transport string
	// start starts one more headgate process.
	start func(t *testing.T, number int, flags ...string) *testenv.Headgate

	// deadline is that of every call. headgate keeps a tenth of it for itself.
	// When this machine takes longer to run a process that is ready to, a call
	// may end at its deadline whatever headgate does.
	deadline time.Duration
	// A client makes burst calls each pause.
	pause time.Duration
	burst int
	// limits are those of the rules, of each policy the same.
	limits []int

	// How long the load runs before the fault, how long the fault lasts, and how
	// long the load runs after it.
	before, outage, after time.Duration
	// recoverIn is how soon after the backend's return counters decide, and
	// recoverBusy the same while this machine has more to do than it can.
	recoverIn, recoverBusy time.Duration
	// maxNoise is the share of calls that may be excused by this machine's
	// noise, in percent.
	maxNoise float64
}

// margin is what headgate keeps of a deadline.
func (s *style) margin() time.Duration { return s.deadline / 10 }

func startService(t *testing.T, _ int, flags ...string) *testenv.Headgate {
	t.Helper()
	return testenv.StartHeadgate(t, program, flags...)
}

// A scene is a backend and what happens to it.
type scene struct {
	url string
	// fault does its worst and returns when the backend is back, as near to
	// that as can be seen from here.
	fault func(outage time.Duration) (back time.Time)
	// losses is how often Redis loses writes that it has acknowledged. Limits
	// then begin anew.
	losses int
	// flapping says that the backend goes and comes more than once.
	flapping bool
	// spared says that a breaker keeps calls from waiting for a timeout, once it is
	// open.
	spared bool
	// part says that the fault befalls the keys of one node: those of a rule may all be on others.
	part bool
}

func restartedEmpty(t *testing.T) scene {
	redis := testenv.StartRedis(t)
	return scene{url: redis.URL(), losses: 1, spared: true, fault: func(outage time.Duration) time.Time {
		redis.Kill()
		time.Sleep(outage)
		redis.Restart()
		return time.Now()
	}}
}

// stopped has connections that stay open and do not answer.
func stopped(t *testing.T) scene {
	redis := testenv.StartRedis(t)
	return scene{url: redis.URL(), spared: true, fault: func(outage time.Duration) time.Time {
		redis.Pause()
		time.Sleep(outage)
		redis.Resume()
		return time.Now()
	}}
}

// play runs the load through a fault and looks at what came of it.
func play(t *testing.T, st style, s scene, idleAddr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(st.rules()), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &run{style: st, scene: s}
	for i := range replicas {
		r.services = append(r.services, st.start(t, i, "--rules", file, "--backend", s.url,
			"--replicas", strconv.Itoa(replicas), "--transport", st.transport))
	}
	l := startLoad(t, st, r.services, idleAddr)
	r.began = time.Now()
	time.Sleep(st.before)
	sizes := r.sizes(t)
	r.faulted = time.Now()
	r.back = s.fault(st.outage)
	time.Sleep(st.after)
	r.waitCounted(t, l)
	r.wantSizes(t, sizes)
	l.end()
	r.ended = time.Now()
	r.calls = l.calls
	r.listen()

	r.wantTimes(t)
	r.wantPolicies(t)
	r.wantLimits(t)
	r.wantBucket(t)
	r.wantClock(t)
	r.wantRecovery(t)
}

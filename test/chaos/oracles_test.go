package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate-rls/headgate/test/testenv"
)

const (
	// extra is added to what a server that does nothing takes.
	extra = 5 * time.Millisecond
	// openIn is how many deadlines after the beginning of an outage breakers have
	// to be open, and waitingShare the share of later calls that may still wait
	// long, in percent: now and then some have to find out whether the backend is
	// back.
	openIn       = 3
	waitingShare = 10.0
)

// A run is a scene that was played.
type run struct {
	style
	scene
	services []*testenv.Headgate
	// When the load began, the fault began, the backend came back, and the load
	// ended.
	began, faulted, back, ended time.Time
	calls                       []call
	noise                       map[int64]time.Duration // by the second
}

// listen learns how long the server that does nothing took, at worst in each
// second.
func (r *run) listen() {
	r.noise = map[int64]time.Duration{}
	for _, c := range r.calls {
		if c.client == idle {
			for at := c.began.Unix(); at <= c.began.Add(c.took).Unix(); at++ {
				r.noise[at] = max(r.noise[at], c.took)
			}
		}
	}
}

// noiseIn is the noise in the seconds of a call and in their neighbours.
func (r *run) noiseIn(c *call) time.Duration {
	return max(r.noiseAround(c.began), r.noiseAround(c.began.Add(c.took)))
}

// noiseAround is the noise in the second of an instant and in its neighbours.
func (r *run) noiseAround(at time.Time) time.Duration {
	s := at.Unix()
	return max(r.noise[s-1], r.noise[s], r.noise[s+1])
}

// noisy says that a call may have been late or degraded for want of a processor.
// Between the moment headgate has to answer and the deadline, its process and
// then the client's have to be run: half of the time there is for each.
func (r *run) noisy(at time.Time) bool { return r.noiseAround(at) > r.margin()/2 }

// toServices are the calls that were not to the server that does nothing.
func (r *run) toServices() []call {
	return slices.DeleteFunc(slices.Clone(r.calls), func(c call) bool { return c.client == idle })
}

func timedOut(err error) bool {
	return status.Code(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)
}

// wantTimes wants no call to be late and none to end in an error.
func (r *run) wantTimes(t *testing.T) {
	var times, idleTimes []time.Duration
	late, failed, excused, slow := 0, 0, 0, 0
	var outage, waited int
	for _, c := range r.calls {
		if c.client == idle {
			idleTimes = append(idleTimes, c.took)
			continue
		}
		times = append(times, c.took)
		if c.took > r.deadline/2 {
			slow++
		}
		if c.began.After(r.faulted.Add(openIn*r.deadline)) && c.began.Before(r.back) {
			outage++
			if c.took > r.deadline/2+r.noiseIn(&c) {
				waited++
			}
		}
		// It can be this process that stands still twice in a call, and what the
		// idle server sees of that is shorter by up to a pause.
		if most := r.deadline + 2*r.noiseIn(&c) + r.pause + extra; c.took > most {
			if late++; late <= 3 {
				t.Errorf("a call of %s took %v, want at most %v, %v after the fault", c.key, c.took, most, c.began.Sub(r.faulted))
			}
		}
		switch {
		case c.err == nil:
		case timedOut(c.err) && r.noisy(c.began):
			excused++
		default:
			if failed++; failed <= 3 {
				t.Errorf("a call of %s to replica %d ended in %v, %v after the fault; noise %v",
					c.key, c.client, c.err, c.began.Sub(r.faulted), r.noiseAround(c.began))
			}
		}
	}
	t.Logf("times:    %d calls, p50 %v, p99.9 %v, max %v; doing nothing p50 %v, p99.9 %v, max %v; "+
		"over half the deadline %d, late %d, errors %d, excused by noise %d",
		len(times), at(times, 0.5), at(times, 0.999), at(times, 1), at(idleTimes, 0.5), at(idleTimes, 0.999),
		at(idleTimes, 1), slow, late, failed, excused)
	share := 100 * float64(waited) / float64(max(1, outage))
	t.Logf("waiting:  of %d calls in the outage, once breakers had time to open, %.1f %% took more than half of "+
		"their deadline", outage, share)
	if r.spared && share > waitingShare {
		t.Errorf("%.1f %% of the calls in the outage took more than half of their deadline, want at most %v %%", share,
			waitingShare)
	}
	if share = 100 * float64(excused) / float64(len(times)); share > r.maxNoise {
		t.Errorf("%.1f %% of the calls ended at their deadline on a busy machine, want at most %v %%", share, r.maxNoise)
	}
}

// at returns a quantile of times, which it sorts.
func at(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[int(q*float64(len(times)-1))].Round(10 * time.Microsecond)
}

// wantPolicies wants each answer by policy to be what the rule says, and some
// to have been necessary.
func (r *run) wantPolicies(t *testing.T) {
	degraded, wrong := map[string]int{}, 0
	for _, c := range r.toServices() {
		if c.degraded == "" {
			continue
		}
		degraded[c.degraded]++
		rule, _, _ := strings.Cut(c.key, "_")
		if !slices.Contains(policies(), rule) { // free, minute and bucket
			rule = "deny"
		}
		if c.degraded != rule || rule != "local" && c.admitted != (rule == "allow") {
			if wrong++; wrong <= 3 {
				t.Errorf("%s was answered by policy %s, admitted: %v", c.key, c.degraded, c.admitted)
			}
		}
	}
	t.Logf("policies: answers by policy %v, wrong ones %d", degraded, wrong)
	for _, p := range policies() {
		if degraded[p] == 0 && (!r.part || len(degraded) == 0) {
			t.Errorf("no answer was by policy %s: the fault was none", p)
		}
	}
}

// wantLimits wants no more calls to be admitted than limits say.
func (r *run) wantLimits(t *testing.T) {
	admitted := map[string]int{}
	for _, c := range r.toServices() {
		if c.admitted {
			admitted[c.key]++
		}
	}
	shares := r.shares()
	for _, policy := range []string{"deny", "local"} {
		var figures []string
		for _, limit := range r.limits {
			most := limit * (1 + r.losses)
			if policy == "local" {
				most += limit / replicas * shares
			}
			n := admitted[fmt.Sprintf("%s_%d", policy, limit)]
			figures = append(figures, fmt.Sprintf("%d of at most %d (limit %d)", n, most, limit))
			if n > most {
				t.Errorf("%d calls of %s_%d were admitted, want at most %d", n, policy, limit, most)
			}
			if n == 0 {
				t.Errorf("no call of %s_%d was admitted", policy, limit)
			}
		}
		t.Logf("limits:   %-5s admitted %s", policy, strings.Join(figures, ", "))
	}
}

// wantBucket wants a token bucket to have admitted no more than it held and what
// flowed in since, by the one clock that counts.
func (r *run) wantBucket(t *testing.T) {
	n := 0
	for _, c := range r.toServices() {
		if c.key == bucket && c.admitted {
			n++
		}
	}
	most := bucketBurst*(1+r.losses) + int(bucketRate*r.ended.Sub(r.began).Seconds()) + 1
	t.Logf("bucket:   admitted %d of at most %d", n, most)
	if n > most {
		t.Errorf("the token bucket admitted %d calls, want at most %d", n, most)
	}
	if n <= bucketBurst/2 {
		t.Errorf("the token bucket admitted %d calls, its burst is %d", n, bucketBurst)
	}
}

// wantClock wants all answers of the rule with a minute to name about the same
// end, that of the minute of Redis' clock, which is this machine's.
func (r *run) wantClock(t *testing.T) {
	// Resets are in whole seconds, rounded up.
	const most = 2 * time.Second
	seen, wrong := [replicas]int{}, 0
	var worst time.Duration
	for _, c := range r.toServices() {
		if c.key != minute || c.err != nil || c.degraded != "" {
			continue
		}
		seen[c.client]++
		end := c.began.Add(c.reset)
		off := end.Sub(end.Round(time.Minute)).Abs()
		worst = max(worst, off)
		if off > most+c.took {
			if wrong++; wrong <= 3 {
				t.Errorf("replica %d says at %v that the minute lasts %v longer", c.client, c.began.Format(time.TimeOnly), c.reset)
			}
		}
	}
	t.Logf("clock:    ends of a minute were off by %v at most in %v answers, %d were wrong",
		worst.Round(time.Millisecond), seen, wrong)
	for i, n := range seen {
		if n == 0 {
			t.Errorf("replica %d gave no answer that tells its clock", i)
		}
	}
}

// shares is how many replicas had a share of a limit, added up over outages. A
// backend that flaps has as many outages as the services settled, and the one
// that was not settled yet.
func (r *run) shares() int {
	if !r.flapping {
		return replicas
	}
	n := 0
	for _, s := range r.services {
		n += 1 + strings.Count(s.Log(), "charged local admissions to the backend")
	}
	return n
}

// wantRecovery wants the counters to decide again soon after the backend's
// return, and from then on.
func (r *run) wantRecovery(t *testing.T) {
	last := make([]time.Duration, replicas)
	byCount := make([]int, replicas)
	stray, most := 0, r.recoverIn
	for at := r.back; at.Before(r.back.Add(r.recoverBusy)); at = at.Add(time.Second) {
		if r.noiseAround(at) > 2*r.margin() {
			most = r.recoverBusy
		}
	}
	for _, c := range r.toServices() {
		since := c.began.Sub(r.back)
		switch {
		case c.err != nil || since < 0:
		case c.degraded == "":
			if c.key == free && since > r.recoverIn {
				byCount[c.client]++
			}
		case since > most && r.noisy(c.began):
			stray++
		default:
			last[c.client] = max(last[c.client], since.Round(time.Millisecond))
		}
	}
	t.Logf("recovery: away for %v; last answers by policy %v after the return, want at most %v; "+
		"later single ones on a busy machine: %d",
		r.back.Sub(r.faulted).Round(time.Millisecond), last, most, stray)
	for i := range replicas {
		if last[i] > most {
			t.Errorf("replica %d answered by policy %v after the backend's return", i, last[i])
		}
		if byCount[i] == 0 {
			t.Errorf("replica %d gave no answer by count later than %v after the backend's return", i, r.recoverIn)
		}
	}
	if share := 100 * float64(stray) / float64(len(r.calls)); share > r.maxNoise {
		t.Errorf("%.1f %% of the calls were answered by policy long after the backend's return, want at most %v %%",
			share, r.maxNoise)
	}
}

// waitCounted waits until each replica decides by count again. Whether that was
// soon enough is for wantRecovery to say.
func (r *run) waitCounted(t *testing.T, l *load) {
	t.Helper()
	after := r.back.Add(r.recoverIn)
	testenv.Eventually(t, 20*time.Second, "have the counters decide again", func() string {
		by := l.counted(after)
		if slices.Contains(by[:], false) {
			return fmt.Sprintf("of the replicas by count decide %v", by)
		}
		return ""
	})
}

func (r *run) sizes(t *testing.T) []testenv.Size {
	t.Helper()
	list := make([]testenv.Size, len(r.services))
	for i, s := range r.services {
		var err error
		if list[i], err = s.Size(); err != nil {
			t.Fatalf("size of replica %d: %v", i, err)
		}
	}
	return list
}

// wantSizes waits until the services have gone back to about the size they had,
// under the same load.
func (r *run) wantSizes(t *testing.T, was []testenv.Size) {
	t.Helper()
	const moreGoroutines, moreRSS = 30, 32
	var now []testenv.Size
	testenv.Eventually(t, 10*time.Second, "have goroutines and memory back", func() string {
		now = r.sizes(t)
		for i, z := range now {
			if z.Goroutines > was[i].Goroutines+moreGoroutines || z.RSSMiB > was[i].RSSMiB+moreRSS {
				return fmt.Sprintf("replica %d has %v, before the fault %v", i, z, was[i])
			}
		}
		return ""
	})
	t.Logf("sizes:    %v, before the fault %v", now, was)
}

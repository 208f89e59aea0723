//go:build soak

package soak

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A saboteur makes Redis fail. Each replica reaches it through a proxy of its
// own, so that a fault can befall one and spare the others.
type saboteur struct {
	random  *rand.Rand
	redis   *testenv.RedisServer
	proxies []*testenv.Proxy
	done    map[string]int // faults by name
}

// nextIn is when the next fault begins after the last one began.
func (s *saboteur) nextIn() time.Duration { return s.between(10*time.Second, 20*time.Second) }

func (s *saboteur) between(low, high time.Duration) time.Duration {
	return low + time.Duration(s.random.Int64N(int64(high-low)))
}

// strike has one fault happen and returns when it is over.
func (s *saboteur) strike() (what string) {
	duration := s.between(2*time.Second, 5*time.Second)
	victims := s.victims()
	each := func(f func(*testenv.Proxy)) {
		for _, v := range victims {
			f(s.proxies[v])
		}
	}
	name, detail := "", ""
	switch s.random.IntN(8) {
	case 0:
		name = "stopped"
		s.redis.Pause()
		time.Sleep(duration)
		s.redis.Resume()
	case 1:
		name = "killed"
		s.redis.Kill()
		time.Sleep(duration)
		s.redis.Restart()
	case 2, 3:
		name = "latency"
		latency := s.between(5*time.Millisecond, time.Second)
		detail = fmt.Sprintf(" of %v", latency.Round(time.Millisecond))
		each(func(p *testenv.Proxy) { p.SetLatency(latency) })
		time.Sleep(duration)
		each(func(p *testenv.Proxy) { p.SetLatency(0) })
	case 4:
		name = "resets"
		every := s.between(5*time.Millisecond, 200*time.Millisecond)
		detail = fmt.Sprintf(" every %v", every.Round(time.Millisecond))
		for end := time.Now().Add(duration); time.Now().Before(end); {
			each((*testenv.Proxy).Cut)
			time.Sleep(every)
		}
	case 5:
		name = "trickle"
		rate := 100 + s.random.IntN(20_000)
		detail = fmt.Sprintf(" of %d bytes a second", rate)
		each(func(p *testenv.Proxy) { p.SetRate(rate) })
		time.Sleep(duration)
		each(func(p *testenv.Proxy) { p.SetRate(0) })
	case 6:
		name = "halves late"
		late := s.between(5*time.Millisecond, time.Second)
		detail = fmt.Sprintf(" by %v", late.Round(time.Millisecond))
		each(func(p *testenv.Proxy) { p.SetSplit(late) })
		time.Sleep(duration)
		each(func(p *testenv.Proxy) { p.SetSplit(0) })
	case 7:
		name = "packets lost"
		each((*testenv.Proxy).Freeze)
		time.Sleep(duration)
		each((*testenv.Proxy).Resume)
	}
	s.done[name]++
	if name != "stopped" && name != "killed" {
		detail += fmt.Sprintf(" at replicas %s", strings.Trim(fmt.Sprint(victims), "[]"))
	}
	return fmt.Sprintf("%s%s for %v", name, detail, duration.Round(100*time.Millisecond))
}

// victims are some of the replicas, one at least; all of them in half of the
// cases.
func (s *saboteur) victims() []int {
	order := s.random.Perm(len(s.proxies))
	return order[:min(len(order), 1+s.random.IntN(2*len(order)))]
}

package circuit

import (
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

// TestJitterOnlyShortensDelays: chance takes off up to a half, and adds nothing.
func TestJitterOnlyShortensDelays(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	chances := []float64{0, 0.5, 0.999999999}
	for i := range 100 {
		chance := r.Float64()
		if i < len(chances) {
			chance = chances[i]
		}
		c := New(Config{Window: 1, Delay: 100 * ms, MaxDelay: time.Second, Rand: func() float64 { return chance }})
		for tries, full := range []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second} {
			c.tries = tries
			if d := c.delay(); d > full || d <= full/2-1 || chance == 0 && d != full {
				t.Errorf("try %d with chance %v: %v of %v", tries, chance, d, full)
			}
		}
		c.tries = 1 << 40
		if d := c.delay(); d > time.Second || d < time.Second/2 {
			t.Errorf("after many tries: %v", d)
		}
	}
}

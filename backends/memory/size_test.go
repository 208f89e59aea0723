package memory

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// maxKeyBytes bounds the memory of a key with a group of 24 bytes. docs/backends.md has it.
const maxKeyBytes = 200

var manyKeys = random.Times(60_000, 300_000)

// usual returns a key as rules make it, with a group of 24 bytes.
func usual(i int) limit.Key {
	return limit.Key{Group: fmt.Sprintf("1:d4:user13:u%012d", i), Limit: "f"}
}

// TestBytesPerKey: a counter takes no more than the documents say, however many keys there are: what
// grows by doubling is not halfway empty.
func TestBytesPerKey(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.TokenBucket, limit.SlidingWindow} {
		tk, l, before := taker{b: New(Config{})}, limit.MustNew(limit.Spec{Algorithm: a, Max: 100, Window: time.Hour}), heap()
		most := int64(0)
		for i := range manyKeys {
			tk.take(start, usual(i), l, 1)
			if n := i + 1; n >= manyKeys/4 && n%(manyKeys/20) == 0 {
				most = max(most, (heap()-before)/int64(n))
			}
		}
		t.Logf("%v: %d bytes per key at most", a, most)
		if most > maxKeyBytes {
			t.Errorf("%v: up to %d bytes per key, want at most %d", a, most, maxKeyBytes)
		}
		runtime.KeepAlive(tk.b)
	}
}

// BenchmarkManyKeys is a decision beside so many keys that the processor's cache has few of them.
func BenchmarkManyKeys(b *testing.B) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.TokenBucket} {
		b.Run(a.String(), func(b *testing.B) {
			l := limit.MustNew(limit.Spec{Algorithm: a, Max: 1e9, Window: time.Hour})
			tk, before := taker{b: New(Config{})}, heap()
			for i := range manyKeys {
				tk.take(start, usual(i), l, 1)
			}
			b.ReportMetric(float64(heap()-before)/float64(manyKeys), "B/key")
			keys, r := make([]limit.Key, 4096), rand.New(rand.NewPCG(1, 2))
			for i := range keys {
				keys[i] = usual(r.IntN(manyKeys))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				tk.take(start+limit.Instant(i), keys[i%len(keys)], l, 1)
			}
		})
	}
}

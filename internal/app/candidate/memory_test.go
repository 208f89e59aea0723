package candidate

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// large is a request whose size its client has chosen.
func large(i int) *ratelimit.Asked {
	return &ratelimit.Asked{Holder: fmt.Sprint("holder-", i), Request: &ratelimit.Request{Domain: "shop",
		Descriptors: []ratelimit.Descriptor{{Entries: []descriptors.Entry{{Key: "busy", Value: fmt.Sprint(i)}}},
			{Entries: []descriptors.Entry{{Key: "path", Value: strings.Repeat("x", 100<<10)}}}}}}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what a pool had is gone after the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestLargeRequestsThatWaitTakeLittleMemory: rules on trial must not cost the process its memory.
func TestLargeRequestsThatWaitTakeLittleMemory(t *testing.T) {
	p := newPair(t, 1, nil)
	mustSet(t, p, perTenant(t, 2, 3))
	before := heap()
	const requests = 1000
	for i := range requests {
		p.See(large(i))
	}
	if took := heap() - before; took > 2*maxQueuedBytes {
		t.Errorf("%d requests of 100 KiB that wait take %d KiB", requests, took>>10)
	}
	waiting := int64(len(p.queue))
	if dropped := p.dropped.Value(); waiting == 0 || dropped+waiting != requests {
		t.Errorf("%d requests wait, %d were dropped, of %d", waiting, dropped, requests)
	}
	p.run(t)
	p.await(t, waiting)
	testenv.Eventually(t, 10*time.Second, "have room again", func() string {
		if n := p.queued.Load(); n != 0 {
			return fmt.Sprintf("%d bytes count as waiting", n)
		}
		return ""
	})
	p.See(large(0))
	p.await(t, waiting+1)
}

func TestLargeRequestsInFlightTakeLittleMemory(t *testing.T) {
	p := newPair(t, 1, nil)
	mustSet(t, p, perTenant(t, 2, 3))
	p.run(t)
	p.See(large(0))
	p.await(t, 1)
	before := heap()
	const requests = 300
	for i := range requests {
		p.See(large(i + 1))
		p.await(t, int64(i+2))
	}
	if took := heap() - before; took > 10<<20 {
		t.Errorf("%d requests of 100 KiB in flight take %d KiB", requests, took>>10)
	}
}

package replay

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/app/virtual"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// inUse returns how many bytes are in use.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The memory of a replay is what docs/change.md says: bytes for a counter, and what lines take that are kept.
func TestMemoryOfKeys(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes more")
	}
	const n = 100_000
	w, err := virtual.New(perMinute(t, 4), virtual.Options{MaxKeys: 2 * n})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c := new(capture)
	var l line
	var resp ratelimit.Response
	at := limit.InstantOf(start0)
	decide := func(i int, parse *capture) {
		if err := parse.parse(fmt.Appendf(nil, "%s", ask(time.Second, fmt.Sprintf("tenant-%08d", i), "")), &l); err != nil {
			t.Fatal(err)
		}
		w.Decide(at, l.request, &resp)
	}
	before := inUse()
	for i := range n {
		decide(i, new(capture)) // which keeps no line
	}
	counters := inUse()
	if each := (counters - before) / n; each < 150 || each > 300 {
		t.Errorf("a counter takes %d bytes, not 240", each)
	}
	for i := range n {
		decide(i, c)
	}
	if kept := inUse() - counters; kept > int64(c.size)*5/4 || kept < int64(c.size)*3/4 {
		t.Errorf("lines take %d bytes, and count as %d", kept, c.size)
	}
	runtime.KeepAlive(c)
}

// TestLongNamesAreNotKept: what a parser keeps of a line for the next one does not grow with the names of fields.
func TestLongNamesAreNotKept(t *testing.T) {
	log := Mapping{Domain: "shop", Descriptors: []string{"tenant={tenant}"}, Time: "start"}
	p, _, err := (&Options{Log: log}).parser(nil)
	if err != nil {
		t.Fatal(err)
	}
	const n, long = 50, maxLine / 2
	before := inUse()
	for i := range n { // a long name where no line before had one
		text := `{"start":"2026-01-01T00:00:00Z","tenant":"a"` + strings.Repeat(`,"f":1`, i) +
			`,"` + strings.Repeat("n", long) + `":1}`
		var l line
		if err := p.parse([]byte(text), &l); err != nil || l.request == nil {
			t.Fatal(err, l.request)
		}
	}
	if kept := inUse() - before; kept > 4*long {
		t.Errorf("%d bytes are kept of %d lines", kept, n)
	}
	runtime.KeepAlive(p)
}

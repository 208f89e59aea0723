package capture

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A lockedBuffer can be read while others write to it.
type lockedBuffer struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (b *lockedBuffer) Write(lines []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines.Write(lines)
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines.String()
}

// TestRequestsWithoutAnEndAreWritten: a line waits five minutes for the end of its request, and is written then.
func TestRequestsWithoutAnEndAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		s := newStream(Config{Sample: 1})
		var out lockedBuffer
		go new(Hub).copy(ctx, s, &out)
		request := &ratelimit.Request{Domain: "shop",
			Descriptors: []ratelimit.Descriptor{{Entries: []descriptors.Entry{{Key: "busy", Value: "lost"}}}}}
		s.see(&ratelimit.Asked{Request: request, At: limit.InstantOf(time.Now()), Holder: "h"})
		time.Sleep(pendingFor - time.Second)
		if synctest.Wait(); out.text() != "" {
			t.Fatalf("before: %s", out.text())
		}
		time.Sleep(pendingFor / 5)
		if synctest.Wait(); !strings.Contains(out.text(), `"lost"`) || strings.Count(out.text(), "\n") != 1 {
			t.Errorf("after: %s", out.text())
		}
	})
}

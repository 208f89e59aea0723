package capture

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestRequestsWithoutAnEndAreWritten: a line waits five minutes for the end of its request, and is written then.
func TestRequestsWithoutAnEndAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		s := newStream(Config{Sample: 1})
		var out testenv.Log
		go new(Hub).copy(ctx, s, &out)
		request := &ratelimit.Request{Domain: "shop",
			Descriptors: []ratelimit.Descriptor{{Entries: []descriptors.Entry{{Key: "busy", Value: "lost"}}}}}
		s.see(&ratelimit.Asked{Request: request, At: limit.InstantOf(time.Now()), Holder: "h"})
		time.Sleep(pendingFor - time.Second)
		synctest.Wait()
		if out.String() != "" {
			t.Fatalf("before: %s", out.String())
		}
		time.Sleep(pendingFor / 5)
		synctest.Wait()
		if !strings.Contains(out.String(), `"lost"`) || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("after: %s", out.String())
		}
	})
}

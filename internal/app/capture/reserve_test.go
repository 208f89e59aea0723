package capture

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/app/replay"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
	"github.com/headgate-rls/headgate/test/random"
)

// ofUser asks as a proxy does: about a user, with hits unless they are below 0, and with an estimate unless it is 0.
func ofUser(s *ratelimit.Service, key string, hits int64, estimate uint64, inProcess bool) ratelimit.Response {
	d := ratelimit.Descriptor{Entries: []descriptors.Entry{{Key: key, Value: "a"}}}
	if hits >= 0 {
		d.HasHits, d.Hits = true, uint64(hits)
	}
	req := ratelimit.Request{Domain: "shop", Descriptors: []ratelimit.Descriptor{d}, InProcess: inProcess}
	if inProcess {
		req.Estimate = &ratelimit.Estimate{Units: estimate, AsSent: true}
	}
	var resp ratelimit.Response
	s.Decide(context.Background(), []*ratelimit.Request{&req}, []*ratelimit.Response{&resp})
	return resp
}

// A replay of a capture reserves and settles what the service did, whichever way costs are said, and so refuses the
// same requests.
func TestReservationsAreReplayed(t *testing.T) {
	h, file, _, stop := started(t, filepath.Join(t.TempDir(), "capture.jsonl"))
	s, set := newService(t, h)
	rnd := random.Rand(t, 0)
	var open []leases.Lease // of requests whose tokens settle them
	reports, refused := 0, 0
	for range 400 {
		// Reservations are ordered by the millisecond: the oldest of two in the same one is the one or the other.
		time.Sleep(time.Millisecond)
		switch n := rnd.IntN(10); {
		case n < 3:
			if r := ofUser(s, "user", -1, 100+uint64(rnd.IntN(300)), true); r.OverLimit {
				refused++
			} else {
				open = append(open, r.Inside.Lease)
			}
		case n < 6:
			if r := ofUser(s, "oldest", 0, 0, false); r.OverLimit {
				refused++
			} else {
				reports++
			}
		case n < 8 && reports > 0:
			reports--
			ofUser(s, "oldest", int64(rnd.IntN(120)), 0, false)
		case len(open) > 0:
			how := ratelimit.ReservationEnd(rnd.IntN(4))
			s.EndReservation(t.Context(), &open[0], how, uint64(rnd.IntN(120)))
			open = open[1:]
		}
	}
	stop()
	text, err := os.ReadFile(file)
	if err != nil || refused == 0 || !strings.Contains(string(text), `"cost":`) ||
		!strings.Contains(string(text), `"failed":`) {
		t.Fatalf("%v, %d refused:\n%s", err, refused, text)
	}
	opt := replay.Options{Files: []string{file}, New: set, Reorder: time.Minute}
	r, err := replay.Run(t.Context(), opt)
	if err != nil || r.Answered != r.Requests || r.RefusedOld != int64(refused) ||
		r.NewlyRefused != 0 || r.NewlyAdmitted != 0 || r.Back != 0 || r.Bad != 0 {
		t.Errorf("%v: %+v", err, r)
	}
}

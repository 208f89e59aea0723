package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/insight"
)

var hundred = limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 100, Window: time.Minute})

func refuse(w *insight.Watch, rule, user string, n int) {
	s := &insight.Seen{Domain: "d", Entries: []descriptors.Entry{{Key: "user", Value: user}}, Rule: rule, Limit: hundred,
		Group: limit.MakeGroup(limit.AppendPart(nil, user)), At: time.Now().UnixMicro()}
	for range n {
		if kept, _ := w.Refuse(s.Rule, s.Group, s.At); !kept {
			w.AddRefused(s)
		}
	}
	if !w.Approach(s.Rule, s.Group, s.At, hundred, 10) {
		w.AddNear(s, 10)
	}
}

func start(t *testing.T, shared backends.Registry, replica uint32) (*Fleet, *insight.Watch) {
	w := insight.NewWatch()
	return New(Config{Watch: w, Registry: shared,
		Replica: replica, Name: fmt.Sprint("host-", replica),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))}), w
}

func text(t Top) string {
	var b strings.Builder
	for _, k := range t.Keys {
		fmt.Fprintf(&b, "%s %s %d; ", k.Name, k.Limit, k.Figure)
	}
	fmt.Fprint(&b, t.Replicas, t.Exact, t.Err)
	return b.String()
}

// TestReplicasSeeEachOther within five seconds, and not any more when they are gone: at once after an end, and soon
// after a crash.
func TestReplicasSeeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.NewRegistry(time.Now)
		a, seenByA := start(t, shared, 1)
		b, seenByB := start(t, shared, 2)
		refuse(seenByA, "d/user", "noisy", 3)
		ends, stop := context.WithCancel(t.Context())
		go a.Run(ends)
		crashes, crash := context.WithCancel(t.Context())
		go b.Run(crashes)
		synctest.Wait()
		refuse(seenByB, "d/user", "noisy", 4)
		refuse(seenByB, "d/user", "other", 1)
		time.Sleep(every + fresh + 1)
		const both = "d|user=noisy 100/1m 7; d|user=other 100/1m 1; [{00000001 host-1} {00000002 host-2}] true <nil>"
		if got := text(a.Top(t.Context(), Refused, 5)); got != both {
			t.Errorf("%s, want %s", got, both)
		}
		const near = "d|user=noisy 100/1m 900; d|user=other 100/1m 900; "
		if got := text(a.Top(t.Context(), Near, 5)); !strings.HasPrefix(got, near) {
			t.Errorf("near: %s", got)
		}
		stop()
		time.Sleep(fresh + 1)
		const alone = "d|user=noisy 100/1m 4; d|user=other 100/1m 1; [{00000002 host-2}] true <nil>"
		if got := text(b.Top(t.Context(), Refused, 5)); got != alone {
			t.Errorf("after an end: %s", got)
		}
		b.conf.Registry = readOnly{shared} // it crashes, and takes nothing back
		crash()
		synctest.Wait()
		time.Sleep(life + fresh + 1)
		if got := text(a.Top(t.Context(), Refused, 15)); !strings.HasSuffix(got, "[{00000001 host-1}] true <nil>") {
			t.Errorf("after a crash: %s", got)
		}
	})
}

type readOnly struct{ backends.Registry }

func (readOnly) Drop(context.Context, string, []string) error { return errors.New("gone") }

// TestWritesAreBounded: of many long keys a replica writes few rows, each of which the store takes.
func TestWritesAreBounded(t *testing.T) {
	shared := memory.NewRegistry(time.Now)
	f, w := start(t, shared, 1)
	for i := range 300 {
		refuse(w, "d/user", fmt.Sprint(i)+strings.Repeat(`"`, 8<<10), 2)
	}
	refuse(w, "d/"+strings.Repeat("r", 2<<10), "long-rule", 9)
	if err := f.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows, err := shared.List(t.Context(), table)
	if err != nil || len(rows) > 2*most || len(rows) < 10 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	refuse(w, "d/user", "few", 1)
	*w = *insight.NewWatch()
	if err := f.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows, _ := shared.List(t.Context(), table); len(rows) != 1 {
		t.Errorf("%d rows stay", len(rows))
	}
}

// TestStoreAway: what cannot be written is counted and logged, and what cannot be read is said.
func TestStoreAway(t *testing.T) {
	var log strings.Builder
	w := insight.NewWatch()
	f := New(Config{Watch: w, Registry: away{},
		Replica: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	f.Run(ctx)
	if f.failed.Value() != 1 || !strings.Contains(log.String(), "other replicas cannot see") {
		t.Errorf("%d failures are counted; the log is %s", f.failed.Value(), &log)
	}
	refuse(w, "d/user", "noisy", 3)
	if got := f.Top(t.Context(), Refused, 5); got.Err == nil || len(got.Keys) != 1 {
		t.Errorf("%+v", got)
	}
}

type away struct{ backends.Registry }

func (away) Put(context.Context, string, []backends.Row, time.Duration) (int, error) {
	return 0, backends.ErrUnavailable
}
func (away) List(context.Context, string) ([]backends.Row, error) {
	return nil, backends.ErrUnavailable
}
func (away) Drop(context.Context, string, []string) error { return backends.ErrUnavailable }

// TestForeignRows that another release has written are left out, whatever they are.
func TestForeignRows(t *testing.T) {
	shared := memory.NewRegistry(time.Now)
	long := `{"name":"x","keys":[{"b":"r","k":"d|user=a","r":"d/user","l":"1/1m","m":[1` + strings.Repeat(",1", Minutes) +
		`]}]}`
	_, err := shared.Put(t.Context(), table, []backends.Row{{Key: "7/0", Value: "{"}, {Key: "x", Value: "{}"},
		{Key: "8/0", Value: `{"keys":[{"b":"z","m":[1]}]}`}, {Key: "9/0", Value: long}}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	f, _ := start(t, shared, 1)
	if got := f.Top(t.Context(), Refused, 5); len(got.Keys) != 0 || got.Err != nil || len(got.Replicas) != 3 {
		t.Errorf("%+v", got)
	}
}

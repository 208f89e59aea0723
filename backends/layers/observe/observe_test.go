package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
)

// notes is a recorder that writes down.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) note(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, s)
}

func (n *notes) Take(requests int, d time.Duration, failed [NumClasses]int) {
	s := fmt.Sprintf("take %d in %v", requests, d)
	for c, count := range failed {
		if count > 0 {
			s += fmt.Sprintf(", %d %v", count, Class(c))
		}
	}
	n.note(s)
}

func (n *notes) Call(op Op, d time.Duration, class Class) {
	n.note(fmt.Sprintf("%v in %v: %v", op, d, class))
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Suite{Caps: memory.Caps(), Short: true, Open: func(testing.TB) backends.Backend {
		return New(memory.New(memory.Config{}), &notes{}, time.Now)
	}})
}

func TestClassOfNamesEachError(t *testing.T) {
	caps := memory.Caps()
	for _, c := range []struct {
		err   error
		want  Class
		label string
	}{
		{nil, None, "none"},
		{backends.ErrUnavailable, Unavailable, "unavailable"},
		{backends.ErrDeclined, Declined, "declined"},
		{fmt.Errorf("%w: %w", backends.ErrDeclined, backends.ErrNotApplied), Declined, "declined"},
		{backends.ErrUnsupported, Unsupported, "unsupported"},
		{errors.ErrUnsupported, Unsupported, "unsupported"},
		{backends.ErrInvalid, Invalid, "invalid"},
		{backends.ErrCorrupt, Corrupt, "corrupt"},
		{backends.ErrLater, Later, "later"},
		{backends.Unreadable(limit.ErrLater), Later, "later"},
		{backends.Unreadable(errors.New("foreign")), Corrupt, "corrupt"},
		{backends.ErrNotApplied, Other, "other"}, // never alone
		{context.DeadlineExceeded, Other, "other"},
		{fmt.Errorf("get: %w: %w", backends.ErrUnavailable, context.DeadlineExceeded), Unavailable, "unavailable"},
		{fmt.Errorf("get: %w: %w", backends.ErrUnavailable, backends.ErrNotApplied), Unavailable, "unavailable"},
		{fmt.Errorf("%w: %w", backends.ErrUnavailable, backends.ErrCorrupt), Corrupt, "corrupt"},
		{fmt.Errorf("%w: %w", backends.ErrUnsupported, backends.ErrInvalid), Invalid, "invalid"},
		{caps.CheckRequest(&limit.Request{}), Invalid, "invalid"},
	} {
		if got := ClassOf(c.err); got != c.want || got.String() != c.label {
			t.Errorf("ClassOf(%v) = %v, want %v", c.err, got, c.label)
		}
	}
	for op, want := range []string{"forget", "ping"} {
		if got := Op(op).String(); got != want {
			t.Errorf("op %d is %q", op, got)
		}
	}
}

// failing fails in each way.
type failing struct{ *memory.Backend }

func (failing) Take(_ context.Context, _ []limit.Request, out []limit.Verdict) {
	for i, err := range []error{nil, backends.ErrUnavailable, backends.ErrCorrupt, nil, backends.ErrUnavailable} {
		out[i].Err = err
	}
}

func (failing) Forget(context.Context, []limit.Key) error { return backends.ErrUnavailable }

func TestObserverRecordsEveryCall(t *testing.T) {
	var n notes
	clock := time.Unix(0, 0)
	b := New(failing{memory.New(memory.Config{})}, &n,
		func() time.Time { clock = clock.Add(time.Millisecond); return clock })
	ctx := context.Background()
	b.Take(ctx, make([]limit.Request, 5), make([]limit.Verdict, 5))
	if err := b.Forget(ctx, nil); !errors.Is(err, backends.ErrUnavailable) {
		t.Error(err)
	}
	if err := b.Ping(ctx); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	want := []string{"take 5 in 1ms, 2 unavailable, 1 corrupt", "forget in 1ms: unavailable", "ping in 1ms: none"}
	if !slices.Equal(n.lines, want) {
		t.Errorf("%q\nwant %q", n.lines, want)
	}
}

type silent struct{}

func (silent) Take(int, time.Duration, [NumClasses]int) {}
func (silent) Call(Op, time.Duration, Class)            {}

func BenchmarkTake(b *testing.B) {
	backendtest.Benchmark(b, memory.Caps(), func(testing.TB) backends.Backend {
		return New(memory.New(memory.Config{}), silent{}, time.Now)
	})
}

package server

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/internal/app/persecond"
	"github.com/headgate-rls/headgate/limit"
)

// TestMigrateBothStores: databases that were away at the start are migrated when they answer, both of them, and
// Close closes both.
func TestMigrateBothStores(t *testing.T) {
	dir := t.TempDir()
	url := func(name string) string { return "sqlite:" + filepath.Join(dir, name) }
	main, err := stack.New(t.Context(), url("main.db"), stack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := persecond.Divide(t.Context(), main, url("second.db"), stack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := &limits{store: main, second: second}
	if err := l.migrate(t.Context()); err != nil || !l.migrated {
		t.Fatal(err)
	}
	take := func(window time.Duration) error {
		lim := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1, Window: window})
		out := make([]limit.Verdict, 1)
		main.Backend.Take(t.Context(), []limit.Request{{Ops: []limit.Op{{Key: limit.Key{Group: "g", Limit: "l"}, Limit: lim,
			Cost: 1}}}}, out)
		return out[0].Err
	}
	for _, window := range []time.Duration{time.Second, time.Hour} {
		if err := take(window); err != nil {
			t.Errorf("a window of %v: %v", window, err)
		}
	}
	if err := main.Close(); err != nil {
		t.Error(err)
	}
	for _, window := range []time.Duration{time.Second, time.Hour} {
		if err := take(window); err == nil {
			t.Errorf("a window of %v is decided after Close", window)
		}
	}
}

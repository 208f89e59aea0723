package watch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/test/testenv"
)

const twoRules = "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}\n" +
	"- {key: a, value: b, rate_limit: {unit: hour, requests_per_unit: 2}}\n"

// settled follows a file of two rules, and returns its path and what is noted.
func settled(t *testing.T, settle time.Duration) (string, *watched, *testenv.Log) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, twoRules)
	w, log := &watched{t: t}, &testenv.Log{}
	w.Watcher = New([]string{filepath.Dir(file)}, Options{
		Log: slog.New(slog.NewTextHandler(log, nil)), Debounce: 5 * time.Millisecond, Settle: settle,
		OnChange: func(s *descriptors.Set, _ []descriptors.Problem) { w.note(describeSet(s)) },
	})
	if _, _, err := w.Load(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); do(t, <-done) })
	time.Sleep(50 * time.Millisecond) // until the watches stand
	return file, w, log
}

// A file that is rewritten in place takes no limit away for a moment, wherever a reader meets it.
func TestRewritingAFileTakesNoLimitAway(t *testing.T) {
	file, w, log := settled(t, 500*time.Millisecond)
	second := strings.Index(twoRules, "- {key: a, value")
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
		f, err := os.Create(file)
		do(t, err)
		_, err = f.WriteString(twoRules[:second])
		do(t, err)
		time.Sleep(20 * time.Millisecond)
		_, err = f.WriteString(twoRules[second:])
		do(t, err, f.Close())
		time.Sleep(20 * time.Millisecond)
	}
	w.want("")
	if !strings.Contains(log.String(), "level=WARN") ||
		!strings.Contains(log.String(), "the new rules take limits away") || !strings.Contains(log.String(), "d/a_b 2/1h") {
		t.Errorf("the log:\n%s", log)
	}
}

// Rules that take limits away are in force once the files have been quiet; others are at once.
func TestLimitsThatGoWaitUntilTheFilesAreQuiet(t *testing.T) {
	const settle = time.Second
	file, w, _ := settled(t, settle)
	start := time.Now()
	write(t, file, strings.ReplaceAll(twoRules, "requests_per_unit: 2", "requests_per_unit: 3"))
	w.want("d=1,d=3")
	if time.Since(start) > settle {
		t.Errorf("a changed limit took %v", time.Since(start))
	}
	start = time.Now()
	write(t, file, twoRules[:strings.Index(twoRules, "- {key: a, value")])
	w.want("d=1,d=3 d=1")
	if time.Since(start) < settle {
		t.Errorf("a limit was taken away after %v", time.Since(start))
	}
}

// Files that change all the time keep no rule that is gone in force for ever: neither the file that it was in, nor one
// beside it that has no rules.
func TestLimitsThatGoWaitForBusyFilesOnlySoLong(t *testing.T) {
	const settle = 200 * time.Millisecond
	one := twoRules[:strings.Index(twoRules, "- {key: a, value")]
	for name, busy := range map[string]func(file string){
		"the same file": func(file string) { write(t, file, one+"# "+time.Now().String()+"\n") },
		"another file":  func(file string) { write(t, filepath.Join(filepath.Dir(file), "log"), "a line\n") },
	} {
		t.Run(name, func(t *testing.T) {
			file, w, log := settled(t, settle)
			start := time.Now()
			write(t, file, one)
			for w.all() == "" && time.Since(start) < 4*maxSettles*settle {
				busy(file)
				time.Sleep(settle / 4)
			}
			w.want("d=1")
			if took := time.Since(start); took < (maxSettles-1)*settle || took > 3*maxSettles*settle {
				t.Errorf("a limit was taken away after %v: %s", took, log)
			}
		})
	}
}

// Only a limit that every reading lacks is gone: one that is there in between waits for quiet files each time.
func TestLimitsThatComeBackAreNotGone(t *testing.T) {
	const settle = 300 * time.Millisecond
	file, w, log := settled(t, settle)
	for end := time.Now().Add((maxSettles + 2) * settle); time.Now().Before(end); {
		write(t, file, twoRules[:strings.Index(twoRules, "- {key: a, value")])
		time.Sleep(settle / 3)
		write(t, file, twoRules)
		time.Sleep(settle / 3)
	}
	w.want("")
	if !strings.Contains(log.String(), "the new rules take limits away") {
		t.Errorf("the log:\n%s", log)
	}
}

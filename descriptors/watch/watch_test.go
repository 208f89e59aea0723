package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

const (
	soon = 20 * time.Second // a deadline, never waited for in full
	// debounce is longer than a loaded machine takes between two steps of a test.
	debounce = 300 * time.Millisecond
)

// rulesFor is a file with one rule that allows n per second.
func rulesFor(domain string, n int) string {
	return fmt.Sprintf("domain: %s\ndescriptors:\n  - key: a\n    rate_limit: {unit: second, requests_per_unit: %d}\n",
		domain, n)
}

// A watched Watcher records its calls.
type watched struct {
	*Watcher
	t  *testing.T
	mu sync.Mutex
	// what arrived, in order: limits of domain d's rule as "d=5", or "error"
	got []string
}

func (w *watched) note(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got = append(w.got, s)
}

func (w *watched) noteErrors(o *Outcome) {
	if o.Err != nil {
		w.note("error")
	}
}

func (w *watched) all() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.got, " ")
}

func describeSet(set *descriptors.Set) string {
	var parts []string
	for _, d := range set.Domains() {
		for _, r := range set.Rules() {
			if r.Domain == d {
				parts = append(parts, fmt.Sprintf("%s=%d", d, r.Limits[0].Limit.Max()))
			}
		}
	}
	return strings.Join(parts, ",")
}

// watch loads and follows paths until the test ends.
func watch(t *testing.T, poll time.Duration, paths ...string) *watched {
	t.Helper()
	return watchWith(t, poll, fsnotify.NewWatcher, paths...)
}

func watchWith(t *testing.T, poll time.Duration, events func() (*fsnotify.Watcher, error), paths ...string) *watched {
	t.Helper()
	w := &watched{t: t}
	w.Watcher = New(paths, Options{
		Log:       slog.New(slog.NewTextHandler(io.Discard, nil)),
		Debounce:  debounce,
		Poll:      poll,
		OnChange:  func(s *descriptors.Set, _ []descriptors.Problem) { w.note(describeSet(s)) },
		OnOutcome: w.noteErrors,
	})
	w.newEvents = events
	set, _, err := w.Load()
	if err != nil {
		t.Fatal(err)
	}
	w.note(describeSet(set))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(soon):
			t.Error("Run does not end")
		}
	})
	time.Sleep(50 * time.Millisecond) // until the watches stand
	return w
}

// want waits until all that arrived is want, then a while for more.
func (w *watched) want(want string) {
	w.t.Helper()
	deadline := time.Now().Add(soon)
	for w.all() != want && time.Now().Before(deadline) && strings.HasPrefix(want, w.all()) {
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(debounce * 3 / 2)
	if got := w.all(); got != want {
		w.t.Fatalf("got %q, want %q", got, want)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func do(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

const never = time.Hour // no poll: events must do

func TestWatchEdits(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"file", "directory"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "rules.yaml")
			write(t, file, rulesFor("d", 1))
			path := map[string]string{"file": file, "directory": dir}[how]
			w := watch(t, never, path)

			write(t, file, rulesFor("d", 2)) // truncates, then writes
			w.want("d=1 d=2")

			// As sed -i and most editors do it.
			write(t, filepath.Join(dir, "sedXYZ"), rulesFor("d", 3))
			do(t, os.Rename(filepath.Join(dir, "sedXYZ"), file))
			w.want("d=1 d=2 d=3")

			// As vim does it: the old file moves aside, the new one is written.
			do(t, os.Rename(file, file+"~"))
			write(t, file, rulesFor("d", 4))
			do(t, os.Remove(file+"~"))
			w.want("d=1 d=2 d=3 d=4")

			// Touched, or written as it was: nothing.
			now := time.Now()
			do(t, os.Chtimes(file, now, now), os.Chmod(file, 0o600))
			write(t, file, rulesFor("d", 4))
			w.want("d=1 d=2 d=3 d=4")
		})
	}
}

func TestWatchBurst(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, rulesFor("d", 1))
	w := watch(t, never, file)
	for i := range 100 {
		write(t, file, rulesFor("d", 100+i))
	}
	w.want("d=1 d=199")
}

// TestWatchStream: writes that never pause are taken all the same.
func TestWatchStream(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), rulesFor("d", 1))
	w := watch(t, never, dir)
	replacement := filepath.Join(dir, "next")
	deadline := time.Now().Add(soon)
	for i := 2; w.all() == "d=1"; i++ {
		if time.Now().After(deadline) {
			t.Fatal("no new set under a stream of writes")
		}
		write(t, replacement, rulesFor("d", i))
		do(t, os.Rename(replacement, filepath.Join(dir, "rules.yaml")))
		time.Sleep(5 * time.Millisecond)
	}
}

func TestWatchTornWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, rulesFor("d", 1))
	w := watch(t, never, file)

	// A pause shorter than the debounce: the half is never seen.
	full := rulesFor("d", 2) + "  - key: b\n    rate_limit: {unit: second, requests_per_unit: 9}\n"
	f, err := os.Create(file)
	do(t, err)
	half := strings.Index(full, "  - key: b")
	_, err = f.WriteString(full[:half])
	do(t, err)
	time.Sleep(10 * time.Millisecond)
	_, err = f.WriteString(full[half:])
	do(t, err, f.Close())
	w.want("d=1 d=2,d=9")

	// A longer one: empty is an error, not the absence of rules.
	do(t, os.Truncate(file, 0))
	w.want("d=1 d=2,d=9 error")
	write(t, file, rulesFor("d", 3))
	w.want("d=1 d=2,d=9 error d=3")

	// Half a line is one error, however often it is written.
	broken := rulesFor("d", 4)[:60]
	write(t, file, broken)
	w.want("d=1 d=2,d=9 error d=3 error")
	write(t, file, broken)
	w.want("d=1 d=2,d=9 error d=3 error")

	// Back to what is in force: nothing new.
	write(t, file, rulesFor("d", 3))
	w.want("d=1 d=2,d=9 error d=3 error")
	write(t, file, broken)
	w.want("d=1 d=2,d=9 error d=3 error error")
}

// TestWatchConfigMap does what the kubelet does: a link is exchanged.
func TestWatchConfigMap(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"directory", "file"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			version := func(n int) {
				name := fmt.Sprintf("..2024_%d", n)
				do(t, os.Mkdir(filepath.Join(dir, name), 0o755))
				write(t, filepath.Join(dir, name, "rules.yaml"), rulesFor("d", n))
				do(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")),
					os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
				if n > 1 {
					do(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2024_%d", n-1))))
				}
			}
			version(1)
			do(t, os.Symlink("..data/rules.yaml", filepath.Join(dir, "rules.yaml")))
			path := map[string]string{"directory": dir, "file": filepath.Join(dir, "rules.yaml")}[how]
			w := watch(t, never, path)
			want := "d=1"
			for n := 2; n < 6; n++ {
				version(n)
				want += fmt.Sprintf(" d=%d", n)
				w.want(want)
			}
		})
	}
}

// exchange does to a directory what a kubelet does to the volume of a ConfigMap whose keys
// become files, in its order: a new version, the link to it, links to its new files; links to
// files that are gone and the old version are removed last. Before that, it calls meanwhile.
func exchange(t *testing.T, dir string, files map[string]string, meanwhile func()) {
	t.Helper()
	data := filepath.Join(dir, "..data")
	old, _ := os.Readlink(data) // "": there is none yet
	version, err := os.MkdirTemp(dir, "..2026_11_22_")
	do(t, err)
	for name, text := range files {
		write(t, filepath.Join(version, name), text)
	}
	do(t, os.Symlink(filepath.Base(version), data+"_tmp"), os.Rename(data+"_tmp", data))
	for name := range files {
		if err := os.Symlink("..data/"+name, filepath.Join(dir, name)); !errors.Is(err, os.ErrExist) {
			do(t, err)
		}
	}
	meanwhile()
	links, err := filepath.Glob(filepath.Join(dir, "[^.]*"))
	do(t, err)
	for _, link := range links {
		if _, ok := files[filepath.Base(link)]; !ok {
			do(t, os.Remove(link))
		}
	}
	if old != "" {
		do(t, os.RemoveAll(filepath.Join(dir, old)))
	}
}

// TestWatchConfigMaps: the ConfigMaps of several teams are directories below the one that is
// followed. One that does not exist yet is empty.
func TestWatchConfigMaps(t *testing.T) {
	t.Parallel()
	const broken = "domain: [\n"
	type files = map[string]string
	// on starts with a team that has the domain d, and one without any file.
	on := func(t *testing.T) (w *watched, one, two string, swap func(dir string, f files)) {
		root := t.TempDir()
		one, two = filepath.Join(root, "team-one"), filepath.Join(root, "team-two")
		swap = func(dir string, f files) { exchange(t, dir, f, func() {}) }
		for dir, f := range map[string]files{one: {"d.yaml": rulesFor("d", 1)}, two: {}} {
			do(t, os.Mkdir(dir, 0o755))
			swap(dir, f)
		}
		return watch(t, never, root), one, two, swap
	}
	t.Run("it appears late, changes and goes", func(t *testing.T) {
		t.Parallel()
		w, one, two, swap := on(t)
		swap(two, files{"e.yaml": rulesFor("e", 1)})
		w.want("d=1 d=1,e=1")
		swap(two, files{"e.yaml": rulesFor("e", 2), "f.yaml": rulesFor("f", 2)})
		w.want("d=1 d=1,e=1 d=1,e=2,f=2")
		swap(two, files{"f.yaml": rulesFor("f", 2)})
		w.want("d=1 d=1,e=1 d=1,e=2,f=2 d=1,f=2")
		swap(two, files{})
		w.want("d=1 d=1,e=1 d=1,e=2,f=2 d=1,f=2 d=1")
		swap(one, files{}) // the last one: the old rules stay
		w.want("d=1 d=1,e=1 d=1,e=2,f=2 d=1,f=2 d=1 error")
		swap(one, files{"d.yaml": rulesFor("d", 3)})
		w.want("d=1 d=1,e=1 d=1,e=2,f=2 d=1,f=2 d=1 error d=3")
	})
	t.Run("a broken one keeps its domain and no other", func(t *testing.T) {
		t.Parallel()
		w, one, two, swap := on(t)
		swap(two, files{"e.yaml": rulesFor("e", 1)})
		w.want("d=1 d=1,e=1")
		swap(two, files{"e.yaml": broken})
		w.want("d=1 d=1,e=1 error")
		swap(one, files{"d.yaml": rulesFor("d", 2)})
		w.want("d=1 d=1,e=1 error d=2,e=1 error")
		swap(two, files{"e.yaml": rulesFor("e", 3)})
		w.want("d=1 d=1,e=1 error d=2,e=1 error d=2,e=3")
	})
	t.Run("one that appears broken", func(t *testing.T) {
		t.Parallel()
		w, _, two, swap := on(t)
		swap(two, files{"e.yaml": broken})
		w.want("d=1 error")
		swap(two, files{"e.yaml": rulesFor("e", 1)})
		w.want("d=1 error d=1,e=1")
	})
	t.Run("a kubelet that is slow", func(t *testing.T) {
		t.Parallel()
		w, _, two, swap := on(t)
		swap(two, files{"e.yaml": rulesFor("e", 1), "f.yaml": rulesFor("f", 1)})
		w.want("d=1 d=1,e=1,f=1")
		// f.yaml leads nowhere for a while: its domain stays.
		exchange(t, two, files{"e.yaml": rulesFor("e", 2)}, func() { w.want("d=1 d=1,e=1,f=1 d=1,e=2,f=1 error") })
		w.want("d=1 d=1,e=1,f=1 d=1,e=2,f=1 error d=1,e=2")
	})
	t.Run("a version that is gone", func(t *testing.T) {
		t.Parallel()
		w, one, two, swap := on(t)
		version, err := filepath.EvalSymlinks(filepath.Join(one, "..data"))
		do(t, err, os.RemoveAll(version))
		w.want("d=1 error")
		swap(two, files{"e.yaml": rulesFor("e", 1)})
		w.want("d=1 error d=1,e=1 error")
		swap(one, files{"d.yaml": rulesFor("d", 2)})
		w.want("d=1 error d=1,e=1 error d=2,e=1")
	})
}

// TestWatchLinkAbove: a link on the way to the directory is exchanged, which
// the reference service's RUNTIME_ROOT is for.
func TestWatchLinkAbove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for n := 1; n <= 3; n++ {
		rules := filepath.Join(dir, fmt.Sprint("release", n), "config")
		do(t, os.MkdirAll(rules, 0o755))
		write(t, filepath.Join(rules, "rules.yaml"), rulesFor("d", n))
	}
	point := func(n int) {
		do(t, os.Symlink(fmt.Sprint("release", n), filepath.Join(dir, "next")),
			os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "current")))
	}
	point(1)
	w := watch(t, never, filepath.Join(dir, "current", "config"))
	point(2)
	w.want("d=1 d=2")
	point(3)
	w.want("d=1 d=2 d=3")
	write(t, filepath.Join(dir, "release3", "config", "rules.yaml"), rulesFor("d", 4))
	w.want("d=1 d=2 d=3 d=4")
}

func TestWatchFilesComeAndGo(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "one.yaml"), rulesFor("d", 1))
	w := watch(t, never, dir)
	write(t, filepath.Join(dir, "two.yml"), rulesFor("e", 2))
	w.want("d=1 d=1,e=2")
	write(t, filepath.Join(dir, "readme.txt"), "no rules")
	write(t, filepath.Join(dir, ".hidden.yaml"), "no rules")
	w.want("d=1 d=1,e=2")
	do(t, os.Mkdir(filepath.Join(dir, "team"), 0o755))
	write(t, filepath.Join(dir, "team", "three.yaml"), rulesFor("f", 3))
	w.want("d=1 d=1,e=2 d=1,e=2,f=3")
	write(t, filepath.Join(dir, "team", "three.yaml"), rulesFor("f", 4))
	w.want("d=1 d=1,e=2 d=1,e=2,f=3 d=1,e=2,f=4")
	do(t, os.Remove(filepath.Join(dir, "one.yaml")), os.RemoveAll(filepath.Join(dir, "team")))
	w.want("d=1 d=1,e=2 d=1,e=2,f=3 d=1,e=2,f=4 e=2")
	do(t, os.Remove(filepath.Join(dir, "two.yml"))) // the last one: the old rules stay
	w.want("d=1 d=1,e=2 d=1,e=2,f=3 d=1,e=2,f=4 e=2 error")
}

func TestWatchDirectoryDeletedAndRecreated(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "rules")
	file := filepath.Join(dir, "rules.yaml")
	do(t, os.MkdirAll(dir, 0o755))
	write(t, file, rulesFor("d", 1))
	w := watch(t, never, dir)
	want := "d=1"
	for n := 2; n < 5; n++ {
		do(t, os.RemoveAll(filepath.Dir(dir)))
		want += " error"
		w.want(want)
		// In one step: on a busy machine a half-made tree would be another error.
		fresh := filepath.Join(filepath.Dir(filepath.Dir(dir)), "fresh")
		do(t, os.MkdirAll(filepath.Join(fresh, "rules"), 0o755))
		write(t, filepath.Join(fresh, "rules", "rules.yaml"), rulesFor("d", n))
		do(t, os.Rename(fresh, filepath.Dir(dir)))
		want += fmt.Sprintf(" d=%d", n)
		w.want(want)
	}
	// At once: the gap is never seen.
	fresh := filepath.Join(filepath.Dir(dir), "fresh")
	do(t, os.MkdirAll(fresh, 0o755))
	write(t, filepath.Join(fresh, "rules.yaml"), rulesFor("d", 9))
	do(t, os.RemoveAll(dir), os.Rename(fresh, dir))
	w.want(want + " d=9")
	write(t, file, rulesFor("d", 10))
	w.want(want + " d=9 d=10")
}

// The directories above the rules go one after the other, as when rm -r is slow:
// what comes in their place is noticed.
func TestWatchDirectoriesAboveGoOneByOne(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir := filepath.Join(top, "a", "b", "rules")
	do(t, os.MkdirAll(dir, 0o755))
	write(t, filepath.Join(dir, "rules.yaml"), rulesFor("d", 1))
	w := watch(t, never, dir)
	do(t, os.RemoveAll(dir))
	w.want("d=1 error")
	for _, above := range []string{"a/b", "a"} {
		do(t, os.Remove(filepath.Join(top, above)))
		time.Sleep(debounce * 2) // it is looked at once for each
	}
	fresh := filepath.Join(top, "fresh", "b", "rules")
	do(t, os.MkdirAll(fresh, 0o755))
	write(t, filepath.Join(fresh, "rules.yaml"), rulesFor("d", 2))
	do(t, os.Rename(filepath.Join(top, "fresh"), filepath.Join(top, "a")))
	w.want("d=1 error d=2")
}

// TestWatchPolls: without events, changes are found all the same.
func TestWatchPolls(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "rules.yaml")
	write(t, file, rulesFor("d", 1))
	w := &watched{t: t}
	w.Watcher = New([]string{dir}, Options{
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Debounce: 10 * time.Millisecond, Poll: 20 * time.Millisecond,
		OnChange:  func(s *descriptors.Set, _ []descriptors.Problem) { w.note(describeSet(s)) },
		OnOutcome: w.noteErrors,
	})
	w.newEvents = func() (*fsnotify.Watcher, error) { return nil, errors.New("too many open files") }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	w.want("d=1") // Run loads by itself
	write(t, filepath.Join(dir, "next"), rulesFor("d", 2))
	do(t, os.Rename(filepath.Join(dir, "next"), file))
	w.want("d=1 d=2")
	write(t, filepath.Join(dir, "next"), "domain: ")
	do(t, os.Rename(filepath.Join(dir, "next"), file))
	w.want("d=1 d=2 error")
	cancel()
	do(t, <-done)
}

// TestWatchSurvivesLostEvents closes the source of events under the Watcher.
func TestWatchSurvivesLostEvents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "rules.yaml")
	write(t, file, rulesFor("d", 1))
	events, err := fsnotify.NewWatcher()
	do(t, err)
	w := watchWith(t, 50*time.Millisecond, func() (*fsnotify.Watcher, error) { return events, nil }, dir)
	do(t, events.Close())
	write(t, filepath.Join(dir, "next"), rulesFor("d", 2))
	do(t, os.Rename(filepath.Join(dir, "next"), file))
	w.want("d=1 d=2")
}

// TestWatchOverflow: an error of the event source means that events are lost.
func TestWatchOverflow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "rules.yaml")
	write(t, file, rulesFor("d", 1))
	events, err := fsnotify.NewWatcher()
	do(t, err)
	real := events.Events
	events.Events = nil // nobody hears of changes
	t.Cleanup(func() { events.Events = real })
	w := watchWith(t, never, func() (*fsnotify.Watcher, error) { return events, nil }, dir)
	time.Sleep(debounce * 3 / 2) // past Run's first look at the files
	write(t, filepath.Join(dir, "next"), rulesFor("d", 2))
	do(t, os.Rename(filepath.Join(dir, "next"), file))
	events.Errors <- fsnotify.ErrEventOverflow
	w.want("d=1 d=2")
}

func TestWatchBadStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, "domain: d\ndescriptors:\n  - value: a\n  - key: b\n    rate: 1\n")
	w := New([]string{file}, Options{})
	_, problems, err := w.Load()
	var bad *files.LoadError
	if !errors.As(err, &bad) || len(bad.Problems) != 2 || len(problems) != 2 || strings.Count(err.Error(), "\n") != 1 {
		t.Error(err)
	}
	if _, _, err := New([]string{file + "x"}, Options{}).Load(); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestWatchLeavesNothingBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, rulesFor("d", 1))
	before := runtime.NumGoroutine()
	for range 5 {
		w := New([]string{file}, Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		do(t, w.Run(ctx))
		cancel()
	}
	deadline := time.Now().Add(soon)
	for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

func TestReadPaths(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "team")
	do(t, os.Mkdir(sub, 0o755), os.Mkdir(filepath.Join(dir, "..data"), 0o755),
		os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	for _, f := range []string{"b.yaml", "a.yml", "notes.txt", ".x.yaml", "..data/d.yaml", "team/c.yaml"} {
		write(t, filepath.Join(dir, f), f)
	}
	do(t, os.Symlink("..data/d.yaml", filepath.Join(dir, "d.yaml")), os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	sources, err := files.ReadPaths([]string{dir, filepath.Join(dir, "notes.txt")}, files.Names{})
	do(t, err)
	var got []string
	for _, s := range sources {
		rel, _ := filepath.Rel(dir, s.Name)
		got = append(got, rel+":"+string(s.Data))
	}
	if s := strings.Join(got, " "); s != "a.yml:a.yml b.yaml:b.yaml d.yaml:..data/d.yaml team/c.yaml:team/c.yaml "+
		"notes.txt:notes.txt" {
		t.Error(s)
	}

	do(t, os.Remove(filepath.Join(dir, "dangling")))
	for _, c := range []struct {
		files files.Names
		want  string
	}{
		{files.Names{All: true}, "a.yml b.yaml d.yaml notes.txt team/c.yaml"},
		{files.Names{All: true, Dots: true}, ".x.yaml a.yml b.yaml d.yaml notes.txt team/c.yaml"},
		{files.Names{Dots: true}, ".x.yaml a.yml b.yaml d.yaml team/c.yaml"},
	} {
		sources, err := files.ReadPaths([]string{dir}, c.files)
		do(t, err)
		var names []string
		for _, s := range sources {
			rel, _ := filepath.Rel(dir, s.Name)
			names = append(names, rel)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.files, got, c.want)
		}
	}
	if sources, err := files.ReadPaths([]string{filepath.Join(dir, "empty")}, files.Names{Empty: true}); err != nil ||
		len(sources) != 0 {
		t.Errorf("an empty directory that is accepted: %d files, %v", len(sources), err)
	}

	large := filepath.Join(t.TempDir(), "large.yaml")
	write(t, large, "")
	do(t, os.Truncate(large, rulefile.MaxSourceBytes+1))
	loop := t.TempDir()
	do(t, os.Symlink(loop, filepath.Join(loop, "again")))
	for _, tc := range []struct{ path, want string }{
		{filepath.Join(dir, "empty"), "no *.yaml or *.yml file"},
		{filepath.Join(dir, "missing"), "no such file"},
		{large, "larger than 16 MiB"},
		{loop, "nested deeper than 8"},
		{"/dev/null", "not a regular file"},
	} {
		_, err := files.ReadPaths([]string{tc.path}, files.Names{})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.path, err)
		}
	}
}

// A directory may become empty, and files of any name may come, where that is accepted.
func TestEmptyDirectoriesAndAnyName(t *testing.T) {
	dir := t.TempDir()
	got := ""
	w := New([]string{dir}, Options{
		Log: slog.New(slog.DiscardHandler), Files: files.Names{All: true, Empty: true}, Settle: -1,
		OnChange: func(s *descriptors.Set, _ []descriptors.Problem) { got = describeSet(s) },
	})
	set, _, err := w.Load()
	do(t, err)
	if describeSet(set) != "" {
		t.Errorf("an empty directory has the rules %s", describeSet(set))
	}
	file := filepath.Join(dir, "config")
	write(t, file, rulesFor("d", 1))
	w.reload()
	if got != "d=1" {
		t.Errorf("after a file without extension came: %q", got)
	}
	write(t, file, "domain: [")
	w.reload()
	if got != "d=1" {
		t.Errorf("after it broke: %q", got)
	}
	do(t, os.Remove(file))
	w.reload()
	if got != "" {
		t.Errorf("after it went: %q", got)
	}
}

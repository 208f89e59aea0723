package descriptors

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// WatchOptions are what a Watcher can be told.
type WatchOptions struct {
	Options
	// Log gets a line for every reload and every failure; nil means
	// slog.Default.
	Log *slog.Logger
	// Debounce is how long the files must be quiet before they are read:
	// 100 ms by default. Under a stream of writes they are read all the same
	// after ten times as long.
	Debounce time.Duration
	// Poll is how often the files are read to see whether a change was not
	// announced, as on network file systems: 10 s by default.
	Poll time.Duration
	// OnChange gets every new set with its warnings, from Run's goroutine.
	OnChange func(*Set, []Problem)
	// OnError gets why a change was not taken: problems of the rules, or an
	// error of reading them.
	OnError func([]Problem, error)
}

// A LoadError is returned for rules that could be read but have errors.
type LoadError struct{ Problems []Problem }

func (e *LoadError) Error() string {
	var lines []string
	for _, p := range e.Problems {
		if !p.Warning {
			lines = append(lines, p.String())
		}
	}
	return strings.Join(lines, "\n")
}

// A Watcher keeps a Set up to date with files. What is in force changes only
// when a whole new set without errors can be read; until then the old one
// stays.
type Watcher struct {
	paths []string
	opt   WatchOptions

	inForce fingerprint // of the set last handed out
	seen    fingerprint // last looked at, good or bad

	newEvents func() (*fsnotify.Watcher, error)

	events   *fsnotify.Watcher // nil: only polling
	folders  map[string]bool   // every change in these counts
	names    map[string]bool   // changes of these count
	refusing bool              // the system refused a watch, and that was logged
}

// fingerprint identifies the content of all files, or why they cannot be read.
type fingerprint [sha256.Size]byte

// NewWatcher returns a Watcher for paths as [ReadPaths] takes them.
func NewWatcher(paths []string, opt WatchOptions) *Watcher {
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	if opt.Debounce <= 0 {
		opt.Debounce = 100 * time.Millisecond
	}
	if opt.Poll <= 0 {
		opt.Poll = 10 * time.Second
	}
	return &Watcher{paths: slices.Clone(paths), opt: opt, newEvents: fsnotify.NewWatcher}
}

// Load reads the files once, to start with, and returns their set and
// warnings. Its error is a [LoadError] if it is the rules that are wrong. Call
// it before Run, or not at all: Run then hands the first set to OnChange.
// After an error Run still waits for better files.
func (w *Watcher) Load() (*Set, []Problem, error) {
	sources, print, err := w.read()
	w.seen = print
	if err != nil {
		return nil, nil, err
	}
	set, problems := Load(sources, w.opt.Options)
	if set == nil {
		return nil, problems, &LoadError{problems}
	}
	w.inForce = print
	return set, problems, nil
}

// read returns the files and their fingerprint.
func (w *Watcher) read() ([]Source, fingerprint, error) {
	sources, err := ReadPaths(w.paths)
	if err != nil {
		return nil, sha256.Sum256([]byte("error " + err.Error())), err
	}
	h := sha256.New()
	var size [8]byte
	for _, s := range sources {
		for _, part := range [][]byte{[]byte(s.Name), s.Data} {
			binary.BigEndian.PutUint64(size[:], uint64(len(part)))
			h.Write(size[:])
			h.Write(part)
		}
	}
	return sources, fingerprint(h.Sum(nil)), nil
}

// Run follows the files until ctx ends, and then returns nil. It leaves no
// goroutine behind.
func (w *Watcher) Run(ctx context.Context) error {
	w.open()
	defer w.close()
	w.rewatch()

	poll := time.NewTicker(w.opt.Poll)
	defer poll.Stop()
	quiet := time.NewTimer(w.opt.Debounce) // for what changed since Load
	defer quiet.Stop()
	var latest time.Time // when to reload though it is not quiet; zero if nothing happened
	for {
		var events chan fsnotify.Event
		var errs chan error
		if w.events != nil {
			events, errs = w.events.Events, w.events.Errors
		}
		changed := false
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events:
			if !ok {
				w.close()
			}
			changed = !ok || w.concerns(e)
		case err := <-errs:
			// An overflow means that events were lost.
			w.opt.Log.Warn("watching the rules' files", "error", err)
			changed = true
		case <-quiet.C:
			latest = time.Time{}
			w.rewatch()
			w.reload()
		case <-poll.C:
			changed = latest.IsZero() && w.differs()
		}
		if changed {
			now := time.Now()
			if latest.IsZero() {
				latest = now.Add(10 * w.opt.Debounce)
			}
			quiet.Reset(min(w.opt.Debounce, latest.Sub(now)))
		}
	}
}

// differs says whether the files have changed without an event.
func (w *Watcher) differs() bool {
	w.rewatch()
	_, print, _ := w.read()
	return print != w.seen
}

// reload reads the files, and tells of them if they differ from last time.
func (w *Watcher) reload() {
	sources, print, err := w.read()
	if print == w.seen {
		return
	}
	w.seen = print
	if err != nil {
		w.opt.Log.Error("rules not reloaded; the old ones stay in force", "error", err)
		w.failed(nil, err)
		return
	}
	if print == w.inForce {
		w.opt.Log.Info("rules are again what is in force")
		return
	}
	set, problems := Load(sources, w.opt.Options)
	if set == nil {
		w.opt.Log.Error("rules not reloaded; the old ones stay in force", "error", (&LoadError{problems}).Error())
		w.failed(problems, &LoadError{problems})
		return
	}
	w.inForce = print
	w.opt.Log.Info("rules reloaded", "files", len(sources), "rules", len(set.rules), "warnings", len(problems))
	if w.opt.OnChange != nil {
		w.opt.OnChange(set, problems)
	}
}

func (w *Watcher) failed(problems []Problem, err error) {
	if w.opt.OnError != nil {
		w.opt.OnError(problems, err)
	}
}

// open asks the system for events; without them there is the poll.
func (w *Watcher) open() {
	events, err := w.newEvents()
	if err != nil {
		w.opt.Log.Warn("the system does not tell of changed files; reading them every "+w.opt.Poll.String(), "error", err)
		return
	}
	w.events = events
}

func (w *Watcher) close() {
	if w.events == nil {
		return
	}
	if err := w.events.Close(); err != nil {
		w.opt.Log.Warn("closing the watch of the rules' files", "error", err)
	}
	w.events = nil
}

// concerns says whether an event can mean different rules.
func (w *Watcher) concerns(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	return w.names[e.Name] || w.folders[filepath.Dir(e.Name)] || w.folders[e.Name]
}

// rewatch asks for events of the directories that matter now. It is called
// before each reading, so that nothing that happens after goes unnoticed.
func (w *Watcher) rewatch() {
	w.folders, w.names = map[string]bool{}, map[string]bool{}
	for _, p := range w.paths {
		if abs, err := filepath.Abs(p); err == nil {
			w.follow(abs, 0)
			w.below(abs, 0)
		}
	}
	if w.events == nil {
		return
	}
	want := map[string]bool{}
	for f := range w.folders {
		want[f] = true
	}
	for n := range w.names {
		want[filepath.Dir(n)] = true
	}
	for _, old := range w.events.WatchList() {
		if !want[old] {
			_ = w.events.Remove(old) // gone already, most likely
		}
	}
	for f := range want {
		err := w.events.Add(f)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !w.refusing {
			w.refusing = true
			w.opt.Log.Warn("no events for a directory of rules; reading it every "+w.opt.Poll.String(), "directory", f, "error", err)
		}
	}
}

// follow notes path and every link on the way to it, so that exchanging any of
// them is noticed. What does not exist yet is awaited in the directory above.
// Names are noted with links resolved, since that is how the system is asked.
func (w *Watcher) follow(path string, links int) {
	at := string(filepath.Separator)
	parts := strings.Split(path, at)
	for i, part := range parts {
		at = filepath.Join(at, part)
		info, err := os.Lstat(at)
		if err != nil {
			break
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		w.names[at] = true
		to, err := os.Readlink(at)
		if err != nil || links == maxDepth {
			return
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(at), to)
		}
		w.follow(filepath.Join(append([]string{to}, parts[i+1:]...)...), links+1)
		return
	}
	w.names[at] = true
}

// below notes the directories that ReadPaths looks into, and where the links
// in them lead.
func (w *Watcher) below(path string, depth int) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() || depth > maxFolderDepth {
		return
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return
	}
	w.folders[real] = true
	entries, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, e := range entries {
		child := filepath.Join(path, e.Name())
		link := e.Type()&fs.ModeSymlink != 0
		if strings.HasPrefix(e.Name(), ".") || !link && !e.IsDir() {
			continue
		}
		if link {
			w.follow(child, 0)
		}
		w.below(child, depth+1)
	}
}

package watch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// Options are the settings of a Watcher.
type Options struct {
	rulefile.Options
	// Log gets a line for every reload and every failure; nil means
	// slog.Default.
	Log *slog.Logger
	// Debounce is how long the files must be quiet before they are read:
	// 100 ms by default. Under a stream of writes they are read all the same
	// after ten times as long.
	Debounce time.Duration
	// Settle is how long the files must be quiet before rules are put in force that take limits away: 2 s by
	// default, not at all if negative. A file that is being written lacks its last rules.
	Settle time.Duration
	// Poll is how often the files are read to see whether a change was not
	// announced, as on network file systems: 10 s by default.
	Poll time.Duration
	// OnChange gets every new set with its warnings, from Run's goroutine.
	OnChange func(*descriptors.Set, []descriptors.Problem)
	// OnOutcome gets what came of every reading, that of Load included, after
	// OnChange.
	OnOutcome func(*Outcome)
	// Files says which files of directories hold rules.
	Files files.Names
	// Skip lets Load leave out domains whose files have errors.
	Skip bool
	// Absent says what becomes of domains that have no rules because their files have errors.
	Absent Absent
	// Check returns what is wrong with rules that are well written, such as
	// limits that the backend cannot keep. Its problems are like those of Load.
	Check func(*descriptors.Set) []descriptors.Problem
}

// A Watcher keeps a set up to date with files. A domain changes only when all
// of its files can be read without errors; until then it stays as it was, and
// the other domains go on.
type Watcher struct {
	paths []string
	opt   Options

	merger
	inForce fingerprint // of the set last handed out
	seen    fingerprint // last looked at, good or bad
	set     *descriptors.Set
	settle  settling

	newEvents func() (*fsnotify.Watcher, error)
	// hand gets what was read, of Follow, which compiles nothing; else nil
	hand func([]rulefile.Source, error)

	events   *fsnotify.Watcher // nil: only polling
	folders  map[string]bool   // every change in these counts
	names    map[string]bool   // changes of these count
	watched  map[string]bool   // the system was asked about these; that they go counts
	refusing bool              // the system refused a watch, and that was logged
}

func init() {
	files.RegisterWatcher(func(paths []string, f files.Following) files.Watcher {
		return New(paths, Options{Options: f.Options, Log: f.Log, Check: f.Check, OnChange: f.OnChange})
	})
}

// New returns a Watcher for paths as [files.ReadPaths] takes them.
func New(paths []string, opt Options) *Watcher {
	opt.Log = cmp.Or(opt.Log, slog.Default())
	opt.Debounce = cmp.Or(max(opt.Debounce, 0), 100*time.Millisecond)
	opt.Settle = cmp.Or(opt.Settle, 2*time.Second)
	opt.Poll = cmp.Or(max(opt.Poll, 0), 10*time.Second)
	return &Watcher{
		paths: slices.Clone(paths), opt: opt, newEvents: fsnotify.NewWatcher,
		merger: merger{opt: opt.Options, check: opt.Check, absent: opt.Absent},
	}
}

// Load reads the files once, to start with, and returns their set and
// warnings. Its error is a [files.LoadError] if it is the rules that are wrong; with
// Skip only if no domain is left. Call it before Run, or not at all: Run then
// hands the first set to OnChange. After an error Run still waits for better
// files.
func (w *Watcher) Load() (*descriptors.Set, []descriptors.Problem, error) {
	sources, failed, print, err := w.read()
	w.seen = print
	if err == nil && len(failed) > 0 && !w.opt.Skip {
		err = failed[0].Err
	}
	if err != nil {
		return nil, nil, err
	}
	m := w.merge(sources, failed)
	if m.set == nil || m.outcome.Err != nil && !w.opt.Skip {
		return nil, m.outcome.Problems, &files.LoadError{Problems: m.outcome.Problems}
	}
	w.take(&m)
	if m.outcome.Err != nil {
		w.opt.Log.Error("skipped rules files with errors", "error", m.outcome.Err, "not_limited", m.outcome.Missing,
			"refused", m.outcome.Refused)
	}
	w.tell(&m.outcome)
	return m.set, warnings(m.outcome.Problems), nil
}

// take notes what is in force now.
func (w *Watcher) take(m *merged) {
	w.inForce, w.last, w.set = fingerprintOf(m.sources, nil), m.domains, m.set
}

func (w *Watcher) tell(o *Outcome) {
	if w.opt.OnOutcome != nil {
		w.opt.OnOutcome(o)
	}
}

func warnings(problems []descriptors.Problem) []descriptors.Problem {
	return slices.DeleteFunc(slices.Clone(problems), func(p descriptors.Problem) bool { return !p.Warning })
}

// read returns the files, those that cannot be read, and the fingerprint of both.
func (w *Watcher) read() ([]rulefile.Source, []files.Unreadable, fingerprint, error) {
	sources, failed, err := files.ReadEach(w.paths, w.opt.Files)
	if err == nil && len(sources) == 0 && len(failed) > 0 {
		err = failed[0].Err
	}
	if err != nil {
		return nil, nil, sha256.Sum256([]byte("error " + err.Error())), err
	}
	return sources, failed, fingerprintOf(sources, failed), nil
}

func fingerprintOf(sources []rulefile.Source, failed []files.Unreadable) fingerprint {
	h := sha256.New()
	var size [8]byte
	part := func(b []byte) {
		binary.BigEndian.PutUint64(size[:], uint64(len(b)))
		h.Write(size[:])
		h.Write(b)
	}
	for _, s := range sources {
		part([]byte(s.Name))
		part(s.Data)
	}
	for _, u := range failed {
		part([]byte("unreadable " + u.Path))
		part([]byte(u.Err.Error()))
	}
	return fingerprint(h.Sum(nil))
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
			w.opt.Log.Warn("events about the files of rules are lost", "error", err)
			changed = true
		case <-quiet.C:
			latest = time.Time{}
			w.rewatch()
			w.reload()
			if w.settle.waits() {
				quiet.Reset(w.opt.Settle)
			}
		case <-poll.C:
			changed = latest.IsZero() && w.differs()
		}
		if changed {
			now := time.Now()
			w.settle.since = now
			if latest.IsZero() {
				latest = now.Add(10 * w.opt.Debounce)
			}
			quiet.Reset(min(w.opt.Debounce, latest.Sub(now)))
		}
	}
}

// differs reports whether the files have changed without an event.
func (w *Watcher) differs() bool {
	w.rewatch()
	_, _, print, _ := w.read()
	return print != w.seen
}

// reload reads the files, and reports them if they differ from last time.
func (w *Watcher) reload() {
	sources, failed, seen, err := w.read()
	if seen == w.seen && !w.settle.waits() {
		return
	}
	w.seen = seen
	if w.hand != nil {
		if err == nil && len(failed) > 0 {
			sources, err = nil, failed[0].Err
		}
		w.hand(sources, err)
		return
	}
	if err != nil {
		w.opt.Log.Error("rules not reloaded; the old ones stay in force", "error", err)
		w.tell(&Outcome{Err: err})
		return
	}
	m := w.merge(sources, failed)
	if w.last == nil && m.outcome.Err != nil && !w.opt.Skip {
		m.set = nil // as Load does
	}
	print := fingerprintOf(m.sources, nil)
	changed := m.set != nil && print != w.inForce
	if !changed {
		w.settle.end()
	} else if w.settle.holds(m.set, w.set, print, w.opt.Settle, w.opt.Log) {
		return
	}
	w.report(&m, changed)
	if changed {
		w.take(&m)
		if w.opt.OnChange != nil {
			w.opt.OnChange(m.set, warnings(m.outcome.Problems))
		}
	}
	w.tell(&m.outcome)
}

// report logs what came of a reload.
func (w *Watcher) report(m *merged, changed bool) {
	o := &m.outcome
	switch {
	case o.Err != nil && changed:
		w.opt.Log.Error("rules reloaded in part; domains of files with errors keep their old rules",
			"error", o.Err, "kept", o.Kept, "not_limited", o.Missing, "refused", o.Refused, "rules", len(m.set.Rules()))
	case o.Err != nil:
		w.opt.Log.Error("rules not reloaded; the old ones stay in force", "error", o.Err)
	case changed:
		w.opt.Log.Info("rules reloaded", "files", len(m.sources), "rules", len(m.set.Rules()), "warnings", len(o.Problems))
	default:
		w.opt.Log.Info("rules files match the rules in force again")
	}
}

// open asks the system for events; without them there is the poll.
func (w *Watcher) open() {
	events, err := w.newEvents()
	if err != nil {
		w.opt.Log.Warn("file notifications unavailable; polling the rules files", "interval", w.opt.Poll, "error", err)
		return
	}
	w.events = events
}

func (w *Watcher) close() {
	if w.events == nil {
		return
	}
	if err := w.events.Close(); err != nil {
		w.opt.Log.Warn("could not close the watcher of the rules files", "error", err)
	}
	w.events = nil
}

// concerns reports whether an event can mean different rules.
func (w *Watcher) concerns(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	return w.names[e.Name] || w.folders[filepath.Dir(e.Name)] || w.watched[e.Name]
}

// rewatch asks for events of the directories that matter now. It is called
// before each reading, so that nothing that happens after goes unnoticed.
func (w *Watcher) rewatch() {
	w.watched = w.wanted()
	if w.events == nil {
		return
	}
	// What appears between looking and asking has no event: look again.
	const most = 5
	for range most {
		w.ask()
		asked := w.watched
		if w.watched = w.wanted(); maps.Equal(asked, w.watched) {
			return
		}
	}
}

// wanted returns the directories that matter, and notes what counts in them.
func (w *Watcher) wanted() map[string]bool {
	w.folders, w.names = map[string]bool{}, map[string]bool{}
	for _, p := range w.paths {
		path, _, _ := rulefile.CutDomains(p)
		if abs, err := filepath.Abs(path); err == nil {
			w.follow(abs, 0)
			w.below(abs, 0)
		}
	}
	want := maps.Clone(w.folders)
	for n := range w.names {
		want[filepath.Dir(n)] = true
	}
	return want
}

// ask subscribes to the system's events of the watched directories, and of no other.
func (w *Watcher) ask() {
	for _, old := range w.events.WatchList() {
		if !w.watched[old] {
			_ = w.events.Remove(old) // gone already, most likely
		}
	}
	for f := range w.watched {
		err := w.events.Add(f)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !w.refusing {
			w.refusing = true
			w.opt.Log.Warn("file notifications unavailable for a directory; polling it", "directory", f, "interval", w.opt.Poll,
				"error", err)
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
		if err != nil || links == files.MaxLinks {
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
	if err != nil || !info.IsDir() || depth > files.MaxDepth {
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
		if !w.opt.Files.Looks(e.Name()) || !link && !e.IsDir() {
			continue
		}
		if link {
			w.follow(child, 0)
		}
		w.below(child, depth+1)
	}
}

// Follow calls changed with the files at paths at first and then whenever they have
// changed, until ctx ends; with an error if one of them cannot be read. The files are
// followed as a [Watcher] follows files of rules.
func Follow(ctx context.Context, paths []string, log *slog.Logger, changed func([]rulefile.Source, error)) error {
	w := New(paths, Options{Log: log})
	w.hand = changed
	return w.Run(ctx)
}

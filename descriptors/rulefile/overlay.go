package rulefile

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

var (
	levelOverlayFile = &keyLevel{"an overlay's top level", []string{"overlay"}}
	levelOverlay     = &keyLevel{"an entry of overlay", []string{
		"domain", "rule", "algorithm", "window", "unit_multiplier", "calendar", "time_zone", "burst", "overflow", "max_debt",
		"local_share", "max_keys", "reserve", "choose", "prefer", "warn_at",
		"request_headers", "on_backend_error", "on_overload",
	}}
)

// Bounds of an overlay.
const (
	maxOverlayEntries = 1000
	maxPattern        = 4096 // bytes
)

// An OverlayEntry says what becomes of the rules that it matches. Fields with their zero value
// change nothing.
type OverlayEntry struct {
	Place descriptors.Place
	// Domain and Rule are patterns of the rule's domain and of its path, as /rlconfig
	// shows them: "key_value.key_value". A * stands for any text.
	Domain, Rule string

	// Algorithm counts against the limit. A token bucket admits as many units per
	// window as the limit says.
	Algorithm limit.Algorithm
	// Window is the limit's window; Multiplier makes it so many times as long.
	Window     time.Duration
	Multiplier int64
	// Calendar says whether windows are those of the calendar, in Zone; nil leaves that
	// as it is.
	Calendar *bool
	Zone     *time.Location
	// Burst is that of a token bucket.
	Burst int64
	// Overflow is what is taken of a cost that has no room, and MaxDebt how far debt
	// goes; OverflowDefault leaves both as they are.
	Overflow descriptors.Overflow
	MaxDebt  int64
	// LocalShare is how many units a replica may take ahead, or limit.AutoShare.
	LocalShare int64
	// MaxKeys is how many values of the rule have counters of their own.
	MaxKeys int64
	// Reserve has requests reserve units of all limits of the rule; nil leaves that as it is.
	Reserve *descriptors.ReserveSpec
	// Choose and Prefer are as in descriptors.Rule; without Choose both stay as they are.
	Choose string
	Prefer int64
	// WarnAt is that of all limits of the rule, and RequestHeaders are those of the rule.
	WarnAt         int64
	RequestHeaders []descriptors.Header

	OnBackendError descriptors.FailurePolicy
	OnOverload     descriptors.FailurePolicy
}

// ReadOverlay reads the entries of all sources, in order. It returns every problem; if
// one of them is more than a warning, it returns false.
func ReadOverlay(sources []Source) (entries []OverlayEntry, problems []descriptors.Problem, ok bool) {
	l := &loader{begins: "overlay"}
	for i := range sources {
		entries = append(entries, l.overlay(&sources[i], maxOverlayEntries-len(entries))...)
	}
	return entries, l.Sorted(), !l.Failed()
}

// overlay reads one source, and at most so many entries.
func (l *loader) overlay(s *Source, most int) (entries []OverlayEntry) {
	l.file, l.stop = s.Name, false
	if len(s.Data) > MaxSourceBytes {
		l.errorf(nil, nil, "the file has %d bytes; at most %d are read", len(s.Data), MaxSourceBytes)
		return nil
	}
	root, ok := l.parse(s.Data)
	if !ok {
		return nil
	}
	l.budget = len(s.Data) + maxExpansion
	f, ok := l.fields(root, levelOverlayFile, nil)
	if !ok {
		return nil
	}
	list := f.get("overlay")
	if isNull(list) {
		l.errorf(root, nil, "the file has no overlay; start it with `overlay:` and a list of entries")
		return nil
	}
	l.list(list, nil, "overlay", func(n *yaml.Node) {
		if len(entries) == most {
			l.stop = true
			l.errorf(n, nil, "more than %d entries in all overlays together", maxOverlayEntries)
			return
		}
		if f, ok := l.fields(n, levelOverlay, nil); ok {
			entries = append(entries, l.overlayEntry(n, f))
		}
	})
	return entries
}

// overlayEntry reads one entry.
func (l *loader) overlayEntry(n *yaml.Node, f fields) OverlayEntry {
	e := OverlayEntry{Place: l.place(n), Domain: l.pattern(n, f, "domain"), Rule: l.pattern(n, f, "rule")}
	if len(f) <= 2 && f.get("domain") != nil && f.get("rule") != nil {
		l.errorf(n, nil, "the entry changes nothing; it may have %s", strings.Join(levelOverlay.keys[2:], ", "))
	}
	if a := f.get("algorithm"); a != nil {
		if a.Value == limit.Concurrency.String() {
			l.errorf(a, nil, "an overlay makes no limits on requests in flight")
		} else if i, ok := l.word(a, nil, "algorithm", algorithmNames()...); ok {
			e.Algorithm = limit.Algorithms()[i]
		}
	}
	e.Window, e.Multiplier = l.overlayWindow(f)
	e.Calendar, e.Zone = l.calendar(f, nil)
	if b := f.get("burst"); b != nil {
		e.Burst, _ = l.integer(b, nil, "burst", 1, limit.MaxUnits)
		if e.Algorithm != limit.TokenBucket {
			l.errorf(b, nil, "burst needs algorithm: %v in the same entry", limit.TokenBucket)
		}
	}
	choose(l, f, nil, "overflow", descriptors.Overflows(), &e.Overflow)
	if n := f.get("max_debt"); n != nil {
		e.MaxDebt, _ = l.integer(n, nil, "max_debt", 1, limit.MaxUnits)
		if e.Overflow != descriptors.OverflowDebt {
			l.errorf(n, nil, "max_debt needs overflow: %v in the same entry", limit.Debt)
		}
	}
	if s := f.get("local_share"); s != nil {
		if e.LocalShare = descriptors.ShareNames[l.follow(s).Value]; e.LocalShare == 0 {
			e.LocalShare, _ = l.integer(s, nil, "local_share", 2, limit.MaxUnits)
		}
	}
	e.MaxKeys, _ = l.integer(f.get("max_keys"), nil, "max_keys", 1, descriptors.MaxKeys)
	e.Reserve = l.reserve(f, nil)
	if e.Choose, e.Prefer = l.choice(f, nil); e.Choose == "" && e.Prefer != 0 {
		l.errorf(f.get("prefer"), nil, "prefer needs choose in the same entry")
	}
	e.WarnAt = l.warnAt(f, nil)
	e.RequestHeaders = l.headers(f.get("request_headers"), nil, "request_headers", new(descriptors.Fields))
	if len(e.RequestHeaders) > 0 && e.WarnAt == 0 {
		l.errorf(f.get("request_headers"), nil, "request_headers needs warn_at in the same entry: it says from when on")
	}
	l.failures(f, nil, &e.OnBackendError, &e.OnOverload)
	return e
}

// overlayWindow reads how long windows are, or how many times as long as they were.
func (l *loader) overlayWindow(f fields) (window time.Duration, times int64) {
	w, m := f.get("window"), f.get("unit_multiplier")
	if w != nil && m != nil {
		l.errorf(m, nil, "the entry has a window as well as a unit_multiplier; one of the two is enough")
		return 0, 0
	}
	if w != nil {
		var d time.Duration
		ok := l.Clean(func() { d = l.duration(w, nil, "window") })
		if ok && (d < limit.MinWindow || d > limit.MaxWindow) {
			l.errorf(w, nil, "window %v is outside %v to 10 years", d, limit.MinWindow)
		}
		return d, 0
	}
	times, _ = l.integer(m, nil, "unit_multiplier", 1, int64(limit.MaxWindow/time.Second))
	return 0, times
}

// pattern reads which domains or paths an entry is for.
func (l *loader) pattern(entry *yaml.Node, f fields, name string) string {
	n := f.get(name)
	if n == nil {
		l.errorf(entry, nil, "the entry has no %s; write \"*\" for all", name)
		return ""
	}
	text, ok := l.text(n, nil, name)
	switch {
	case ok && text == "":
		l.errorf(n, nil, "%s is empty; write \"*\" for all", name)
	case len(text) > maxPattern:
		l.errorf(n, nil, "%s has %d bytes; at most %d are allowed", name, len(text), maxPattern)
	}
	return text
}

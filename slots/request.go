package slots

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-rls/headgate/slots/plan"
)

// A Request is an event that wants a slot.
type Request struct {
	EventID    string    // 1 to MaxEventID bytes of UTF-8
	ConfigName string    // empty: Config.DefaultConfig
	At         time.Time // the earliest time that will do, kept to the microsecond
}

// A Result is the slot of a Request.
type Result struct {
	Slot
	// Replayed: the event had the slot already, perhaps for another time or config
	// than this request's.
	Replayed bool
}

// A BatchResult is what became of one request of a batch.
type BatchResult struct {
	Result
	Err error
}

// NewConfig is what PutConfig makes a new version of.
type NewConfig struct {
	Name    string
	Max     int64
	SizeMs  int64
	Options Options
}

// A FieldError says which field of a request is wrong. Nothing was asked of the
// database, and nothing has changed.
type FieldError struct {
	Field   string // as the JSON API names it, such as "eventId"
	Problem string // such as "must not be empty"
}

func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// BadField returns a FieldError.
func BadField(field, format string, args ...any) error {
	return &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// A ConfigNotFoundError is ErrConfigNotFound with the name that was asked for.
type ConfigNotFoundError struct{ Name string }

func (e *ConfigNotFoundError) Error() string {
	return fmt.Sprintf("no active config is named %q", e.Name)
}
func (e *ConfigNotFoundError) Unwrap() error { return ErrConfigNotFound }

// named adds the name of the config to ErrConfigNotFound.
func named(err error, name string) error {
	if errors.Is(err, ErrConfigNotFound) {
		return &ConfigNotFoundError{name}
	}
	return err
}

// ErrSlotNotFound: the event has no slot.
var ErrSlotNotFound = errors.New("the event has no slot")

// ErrConflict: another change of the same config came first, at each attempt.
var ErrConflict = errors.New("another change of the config came first")

// ErrNeverOpen: no event would ever get a slot by the config.
var ErrNeverOpen = errors.New(
	"calendar opens no window of windowSize within 400 days: windows begin at multiples of their size" +
		" since 1970-01-01T00:00:00Z, and lie wholly in open time")

// ErrOverloaded: too many callers are waiting already.
var ErrOverloaded = errors.New("too many callers wait for slots already")

// A RetryError wraps ErrExhausted, a DelayError, ErrPaused, ErrOverloaded or a StoreError with the time after which it
// is worth asking again.
type RetryError struct {
	After time.Duration
	Err   error
}

func (e *RetryError) Error() string { return e.Err.Error() }
func (e *RetryError) Unwrap() error { return e.Err }

// checkRequest fills in defaults and returns the requested time in
// microseconds, rounded up so that no slot is before it.
func (s *Scheduler) checkRequest(r *Request) (us int64, err error) {
	if err := checkName("eventId", r.EventID, MaxEventID); err != nil {
		return 0, err
	}
	r.ConfigName = cmp.Or(r.ConfigName, s.settings.DefaultConfig)
	if err := checkName("configName", r.ConfigName, MaxConfigName); err != nil {
		return 0, err
	}
	if r.At.Before(minTime) || !r.At.Before(maxTime) {
		return 0, BadField("requestedTime", "is outside the years 1900 to 9000")
	}
	us = r.At.UnixMicro()
	if r.At.Nanosecond()%1000 != 0 {
		us++
	}
	now := s.settings.Now()
	if past := s.settings.MaxPast; past > 0 && now.Sub(r.At) > past {
		return 0, BadField("requestedTime", "is more than %v in the past", past)
	}
	if future := s.settings.MaxFuture; future > 0 && r.At.Sub(now) > future {
		return 0, BadField("requestedTime", "is more than %v in the future", future)
	}
	return us, nil
}

// checkName holds names to what every database keeps apart and can show.
func checkName(field, name string, most int) error {
	switch {
	case name == "":
		return BadField(field, "must not be empty")
	case len(name) > most:
		return BadField(field, "has %d bytes, at most %d", len(name), most)
	case !utf8.ValidString(name):
		return BadField(field, "is not valid UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return BadField(field, "holds a control character")
	case strings.TrimSpace(name) == "":
		return BadField(field, "must not be blank")
	}
	return nil
}

func (c *NewConfig) check() error {
	if err := checkName("configName", c.Name, MaxConfigName); err != nil {
		return err
	}
	switch {
	case c.Name == SharedScope:
		return BadField("configName", "must not be %q, which stands for the counters that all share", SharedScope)
	case c.Max < 0 || c.Max > plan.MaxPerWindow:
		return BadField("maxPerWindow", "is %d, want 0 (paused) to %d", c.Max, int64(plan.MaxPerWindow))
	case c.SizeMs < plan.MinSizeMs || c.SizeMs > plan.MaxSizeMs:
		return BadField("windowSize", "is %v, want %v to %v", time.Duration(c.SizeMs)*time.Millisecond,
			plan.MinSizeMs*time.Millisecond, plan.MaxSizeMs*time.Millisecond)
	case c.Options.MaxDelayMs != 0 && (c.Options.MaxDelayMs < c.SizeMs || c.Options.MaxDelayMs > plan.MaxDelayMs):
		return BadField("maxDelay", "is %s, want at least windowSize (%s) and at most %s",
			plan.FormatSize(c.Options.MaxDelayMs), plan.FormatSize(c.SizeMs), plan.FormatSize(plan.MaxDelayMs))
	case c.Options.Scope != "":
		return checkName("scope", c.Options.Scope, MaxConfigName)
	}
	return nil
}

package slots

import (
	"errors"
	"fmt"
	"time"
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

package notify

import (
	"errors"
	"fmt"
	"time"
)

// ErrNoConfig: nobody has configured the user.
var ErrNoConfig = errors.New("no configuration exists for the user")

// ErrBusy: more requests are under way than the gateway answers at the same time.
var ErrBusy = errors.New("too many requests at the same time")

// ErrGiveUp: a message will not be sent, however often it is tried.
var ErrGiveUp = errors.New("the message is given up")

// A FieldError says what is wrong with a field of a request.
type FieldError struct{ Field, Problem string }

func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// A LimitedError refuses a message: the user's window is full.
type LimitedError struct {
	Limit int64
	Rest  time.Duration // until the window ends
}

func (e *LimitedError) Error() string {
	return fmt.Sprintf("rate limit exceeded: %d messages per window", e.Limit)
}

// A Part is something that the gateway needs.
type Part string

// The parts.
const (
	Store  Part = "store"
	Broker Part = "broker"
)

// An UnavailableError: a part does not answer, or not in time. Nothing was accepted.
type UnavailableError struct {
	Part Part
	Err  error
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("the %s is unavailable: %v", e.Part, e.Err)
}
func (e *UnavailableError) Unwrap() error { return e.Err }

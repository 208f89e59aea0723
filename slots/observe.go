package slots

import (
	"context"
	"errors"
	"time"
)

// Outcome is how a request ended.
type Outcome string

// The outcomes.
const (
	OutcomeNew         Outcome = "new"
	OutcomeReplayed    Outcome = "replayed"
	OutcomeInvalid     Outcome = "invalid"
	OutcomeNotFound    Outcome = "config_not_found"
	OutcomeExhausted   Outcome = "exhausted"
	OutcomeTooLate     Outcome = "too_late"
	OutcomePaused      Outcome = "paused"
	OutcomeOverloaded  Outcome = "overloaded"
	OutcomeTimeout     Outcome = "timeout"
	OutcomeUnavailable Outcome = "unavailable"
	OutcomeFailed      Outcome = "failed"
)

// Outcomes lists all outcomes.
func Outcomes() []Outcome {
	return []Outcome{OutcomeNew, OutcomeReplayed, OutcomeInvalid, OutcomeNotFound, OutcomeExhausted, OutcomeTooLate,
		OutcomePaused, OutcomeOverloaded, OutcomeTimeout, OutcomeUnavailable, OutcomeFailed}
}

func outcomeOf(b *BatchResult) Outcome {
	err := b.Err
	switch {
	case err == nil && b.Replayed:
		return OutcomeReplayed
	case err == nil:
		return OutcomeNew
	case errors.As(err, new(*FieldError)):
		return OutcomeInvalid
	case errors.Is(err, ErrConfigNotFound):
		return OutcomeNotFound
	case errors.Is(err, ErrExhausted):
		return OutcomeExhausted
	case errors.As(err, new(*DelayError)):
		return OutcomeTooLate
	case errors.Is(err, ErrPaused):
		return OutcomePaused
	case errors.Is(err, ErrOverloaded):
		return OutcomeOverloaded
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return OutcomeTimeout
	case KindOf(err) != Failed:
		return OutcomeUnavailable
	}
	return OutcomeFailed
}

// Times after which it is worth asking again.
const (
	retrySoon   = time.Second
	retryPaused = 5 * time.Second // as long as a config may be cached
	// longestRetry is the longest wait that is worth naming.
	longestRetry = 24 * time.Hour
)

// retryable wraps an error that may pass with the time to wait.
func retryable(err error) error {
	switch {
	case err == nil || errors.As(err, new(*RetryError)):
		return err
	case errors.Is(err, ErrPaused):
		return &RetryError{retryPaused, err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, ErrExhausted), errors.Is(err, ErrOverloaded), KindOf(err) != Failed:
		return &RetryError{retrySoon, err}
	}
	return err
}

package notify

import "fmt"

// A Config is what an administrator says about a user.
type Config struct {
	UserID    string
	RateLimit int64 // messages per window; 0: none
	Minutes   int64 // length of the window
}

// Check returns a [*FieldError] for the first value that is out of bounds.
func (c Config) Check() error {
	if err := CheckUserID(c.UserID); err != nil {
		return err
	}
	switch {
	case c.RateLimit < 0 || c.RateLimit > MaxLimit:
		return &FieldError{"rateLimit", fmt.Sprintf("is %d, must be from 0 to %d messages per window", c.RateLimit, MaxLimit)}
	case c.Minutes < 1 || c.Minutes > MaxMinutes:
		return &FieldError{"timeWindow", fmt.Sprintf("is %d, must be from 1 to %d minutes", c.Minutes, MaxMinutes)}
	}
	return nil
}

// Accepted is the answer to a message that is on its way.
type Accepted struct{ Limit, Remaining int64 }

package ratelimit

import "time"

// A CallResult is how a call ended.
type CallResult uint8

// The results of a call.
const (
	CallOK CallResult = iota
	CallOverLimit
	CallInvalid
	CallFailed // by policy, because the backend failed
	NumCallResults
)

// Observe records calls that ended with the same result after the same time. It may
// be called concurrently.
type Observe func(took time.Duration, r CallResult, calls int)

// String returns the result's metric label.
func (r CallResult) String() string {
	return [NumCallResults]string{"ok", "over_limit", "invalid", "failed"}[r]
}

// Result returns how the call ended that r answers.
func (r *Response) Result() CallResult {
	switch {
	case r.Err != nil && r.Err.Code == codeUnavailable:
		return CallFailed
	case r.Err != nil:
		return CallInvalid
	case r.OverLimit:
		return CallOverLimit
	}
	return CallOK
}

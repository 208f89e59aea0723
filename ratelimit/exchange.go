package ratelimit

import "sync"

// An exchange is a call's request and response.
type exchange struct {
	req  Request
	resp Response
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

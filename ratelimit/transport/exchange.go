package transport

import (
	"sync"

	"github.com/headgate-rls/headgate/ratelimit"
)

// An exchange is a call's request and response, pooled together. grpc-go
// encodes the response before it lets go of it, so the codec puts it back.
type exchange struct {
	req       ratelimit.Request
	resp      ratelimit.Response
	malformed error // why req could not be decoded

	reqs  [1]*ratelimit.Request
	resps [1]*ratelimit.Response
}

var exchanges = sync.Pool{New: func() any {
	ex := new(exchange)
	ex.reqs[0], ex.resps[0] = &ex.req, &ex.resp
	return ex
}}

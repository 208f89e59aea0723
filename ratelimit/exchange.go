package ratelimit

import "sync"

// An exchange is a call's request and response, pooled together. grpc-go
// encodes the response before it lets go of it, so the codec puts it back.
type exchange struct {
	req       Request
	resp      Response
	malformed error // why req could not be decoded

	reqs  [1]*Request
	resps [1]*Response
}

var exchanges = sync.Pool{New: func() any {
	ex := new(exchange)
	ex.reqs[0], ex.resps[0] = &ex.req, &ex.resp
	return ex
}}

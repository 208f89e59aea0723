package transport

import (
	"context"
	"slices"
	"sync"

	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A Method is an RPC: its name, how its message is read, what it does, and how its answer is written.
type Method struct {
	Service, Name string // "package.Service" and "Method"
	// Request and Response are its messages in the service's package; "" if they are those of ShouldRateLimit.
	Request, Response string
	// Returns: each of its calls may bring leases back.
	Returns bool
	// Read fills a request from a message, and reuses its memory. What it returns as error is the caller's fault.
	Read func(req *ratelimit.Request, message []byte) error
	// Do answers requests. It may change them first.
	Do func(s *ratelimit.Service, ctx context.Context, reqs []*ratelimit.Request, resps []*ratelimit.Response)
	// Write appends an answer to b as a message.
	Write func(resp *ratelimit.Response, b []byte) []byte
}

// Path is the method's full name, as gRPC has it: "/package.Service/Method".
func (m *Method) Path() string { return "/" + m.Service + "/" + m.Name }

// ShouldRateLimit is Envoy's question.
var ShouldRateLimit = &Method{
	Service: "envoy.service.ratelimit.v3.RateLimitService", Name: "ShouldRateLimit",
	Read: messages.Decode, Do: (*ratelimit.Service).Decide, Write: messages.Append,
}

// Methods are those that are served, by both transports.
var Methods = []*Method{ShouldRateLimit, CheckRateLimit, Report, Reserve, Commit}

// served reports whether a method is one of Methods.
func served(path string) bool {
	return slices.ContainsFunc(Methods, func(m *Method) bool { return m.Path() == path })
}

// demandEncoder panics if the service has no encoder: its answers would lack limits and metadata.
func demandEncoder(s *ratelimit.Service) {
	if !s.Encodes() {
		panic("transport: the service has no Encoder: set ratelimit.Config.Encoder")
	}
}

// An exchange is a call's request and response, pooled together. grpc-go encodes the response before it lets go of
// it, so the codec puts it back.
type exchange struct {
	method    *Method
	req       ratelimit.Request
	resp      ratelimit.Response
	malformed error // why req could not be read

	reqs  [1]*ratelimit.Request
	resps [1]*ratelimit.Response
}

var exchanges = sync.Pool{New: func() any {
	ex := new(exchange)
	ex.reqs[0], ex.resps[0] = &ex.req, &ex.resp
	return ex
}}

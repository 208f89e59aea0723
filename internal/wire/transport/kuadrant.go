package transport

import (
	"context"

	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Kuadrant's gateways ask about a request before they pass it on, and report what it has cost afterwards. Their
// service has Envoy's messages: https://github.com/Kuadrant/limitador, kuadrant/service/ratelimit/v1.
const kuadrant = "kuadrant.service.ratelimit.v1.RateLimitService"

var (
	// CheckRateLimit asks whether there is room, and takes nothing.
	CheckRateLimit = &Method{Service: kuadrant, Name: "CheckRateLimit",
		Read: messages.Decode, Do: check, Write: messages.Append}
	// Report charges hits for work that is done. A limit without room takes of them what its overflow says, and what is
	// left if that is to refuse.
	Report = &Method{Service: kuadrant, Name: "Report",
		Read: messages.Decode, Do: report, Write: messages.Append}
	// Reserve charges what a request may cost, and answers with the ID of the reservation.
	Reserve = &Method{Service: kuadrant, Name: "Reserve", Request: "ReserveRequest", Response: "ReserveResponse",
		Read: messages.DecodeReserve, Do: (*ratelimit.Service).Decide, Write: messages.AppendReserved}
	// Commit settles a reservation by what its request has cost. Without an ID it is a report.
	Commit = &Method{Service: kuadrant, Name: "Commit", Request: "CommitRequest", Response: "CommitResponse",
		Returns: true, Read: messages.DecodeCommit, Do: (*ratelimit.Service).Decide, Write: messages.AppendCommitted}
)

func check(s *ratelimit.Service, ctx context.Context, reqs []*ratelimit.Request, resps []*ratelimit.Response) {
	for _, req := range reqs {
		req.Purpose = ratelimit.Asks
		for i := range req.Descriptors {
			d := &req.Descriptors[i]
			d.Hits, d.HasHits, d.Refund = 0, true, false
		}
	}
	s.Decide(ctx, reqs, resps)
}

func report(s *ratelimit.Service, ctx context.Context, reqs []*ratelimit.Request, resps []*ratelimit.Response) {
	for _, req := range reqs {
		req.NoLease, req.Purpose = true, ratelimit.Reports // a report begins no request in flight
		for i := range req.Descriptors {
			if d := &req.Descriptors[i]; !d.HasHits {
				d.Hits, d.HasHits = uint64(max(req.Hits, 1)), true
			}
		}
	}
	s.Decide(ctx, reqs, resps)
}

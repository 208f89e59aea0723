package transport

import (
	"strings"

	"github.com/headgate-rls/headgate/ratelimit"
)

// headerNames are the request headers that a service wants to see, in the order in which setHeaders takes their
// values.
func headerNames(s *ratelimit.Service) []string {
	names := []string{ratelimit.MetadataID, ratelimit.MetadataOwner, ratelimit.MetadataLeaseKey,
		ratelimit.MetadataRequestID, ratelimit.MetadataAsk}
	if s.Traced() || s.LogsRefusals() {
		names = append(append(names, ratelimit.MetadataTraceParent, ratelimit.MetadataTraceState), b3Names...)
	}
	return names
}

func setHeaders(req *ratelimit.Request, values []string) {
	if len(values) >= 5 {
		req.SetMetadata(values[0], values[1], values[2])
		req.SetRequestID(values[3])
		req.Diagnoses = values[4] != ""
	}
	if len(values) < 7+len(b3Names) {
		return
	}
	if req.TraceParent, req.TraceState = values[5], values[6]; req.TraceParent == "" {
		req.TraceParent = traceParentOfB3(values[7:])
	}
}

// readHeaders is setHeaders for a transport that has the headers by name. Of a repeated one the first counts, but
// those of a trace are joined.
func readHeaders(s *ratelimit.Service, req *ratelimit.Request, header func(name string) []string) {
	names := headerNames(s)
	values := make([]string, len(names))
	for i, name := range names {
		switch list := header(name); {
		case name == ratelimit.MetadataTraceParent, name == ratelimit.MetadataTraceState:
			values[i] = strings.Join(list, ",")
		case len(list) > 0:
			values[i] = list[0]
		}
	}
	setHeaders(req, values)
}

package transport

import (
	"strings"

	"github.com/headgate-rls/headgate/ratelimit"
)

// readMetadata reads what a call says beside its message. values returns the values of a header.
func readMetadata(s *ratelimit.Service, req *ratelimit.Request, values func(name string) []string) {
	first := func(name string) string {
		if list := values(name); len(list) > 0 {
			return list[0]
		}
		return ""
	}
	req.SetMetadata(first(ratelimit.MetadataID), first(ratelimit.MetadataOwner), first(ratelimit.MetadataLeaseKey))
	if s.Traced() || s.LogsRefusals() {
		req.SetTrace(strings.Join(values(ratelimit.MetadataTraceParent), ","), strings.Join(values(ratelimit.MetadataTraceState), ","))
	}
	if s.LogsRefusals() {
		req.SetRequestID(first(ratelimit.MetadataRequestID))
	}
}

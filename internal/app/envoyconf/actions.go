package envoyconf

import (
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/ratelimit"
)

// requestHeader is an action that sends a header. Without it, the entry is left
// out (optional), or the descriptor.
func requestHeader(header, key string, optional bool) flow {
	m := mapping{f("header_name", header), f("descriptor_key", key)}
	if optional {
		m = append(m, f("skip_if_absent", true))
	}
	return flow{one("request_headers", m)}
}

func genericKey(key, value string) flow {
	return flow{one("generic_key", mapping{f("descriptor_key", key), f("descriptor_value", value)})}
}

// resourceActions describe a request for resources.
func (w *wants) resourceActions() list {
	actions := list{requestHeader(":method", "method", false), requestHeader(":path", "path", false)}
	for _, h := range w.Headers {
		actions = append(actions, requestHeader(h, "header."+h, true))
	}
	if w.SOAPAction {
		actions = append(actions, requestHeader("soapaction", "soap_action", true))
	}
	return actions
}

// actions returns what sends a shape's descriptor, or false if the rules do not
// tell where its values come from.
func (s *shape) actions() (list, bool) {
	var actions list
	for i, key := range s.keys {
		a, ok := action(key, s.values[i])
		if !ok {
			return nil, false
		}
		actions = append(actions, a)
	}
	return actions, true
}

// action chooses by the usual names of keys.
func action(key string, values []string) (any, bool) {
	switch key {
	case "remote_address", "source_cluster", "destination_cluster":
		return flow{one(key, flow{mapping{}})}, true
	case "method", "host", "authority":
		header := ":" + strings.Replace(key, "host", "authority", 1)
		return requestHeader(header, key, false), true
	case "path":
		// The header :path has the query too.
		return one("extension", mapping{
			f("name", "path"),
			f("typed_config", typed("extensions.rate_limit_descriptors.expr.v3.Descriptor", f("descriptor_key", key), f("text", "request.url_path"))),
		}), true
	case "generic_key":
		// Several values stand for several routes.
		if len(values) == 1 && values[0] != "" && !strings.Contains(values[0], "*") {
			return flow{one("generic_key", one("descriptor_value", values[0]))}, true
		}
		return nil, false
	}
	if isHeader(key) {
		return requestHeader(key, key, false), true
	}
	return nil, false
}

// plainHeaders are headers whose names could not be told from other words.
var plainHeaders = []string{"accept", "authorization", "cookie", "origin", "referer"}

// isHeader reports whether a key is likely the name of a request header.
func isHeader(key string) bool {
	if slices.Contains(plainHeaders, strings.ToLower(key)) {
		return true
	}
	other := func(r rune) bool {
		return (r|0x20 < 'a' || r|0x20 > 'z') && (r < '0' || r > '9') && r != '-'
	}
	return strings.Contains(strings.Trim(key, "-"), "-") && !strings.ContainsFunc(key, other)
}

// asks are the entries of rate_limits that are sent when a request begins, and
// those, by hits, that are sent again when it ends. unknown are the shapes that
// are left to the operator.
func (c *Config) asks() (begin, end list, unknown []*shape) {
	counted := func(actions list) {
		end = append(end, mapping{
			f("apply_on_stream_done", true),
			f("hits_addend", flow{mapping{f("number", 1), f("is_negative_hits", true)}}),
			f("actions", actions),
		})
	}
	if c.wants.Resources {
		actions := c.wants.resourceActions()
		begin = append(begin, one("actions", actions))
		if c.resourceHits {
			counted(actions)
		}
	}
	for i := range c.wants.shapes {
		s := &c.wants.shapes[i]
		actions, ok := s.actions()
		if !ok {
			unknown = append(unknown, s)
			continue
		}
		begin = append(begin, one("actions", actions))
		if s.hits {
			counted(actions)
		}
	}
	return begin, end, unknown
}

// release is the entry of rate_limits that ends the request's lease. A request
// without a lease, for which Envoy must not call, has no such entry in its
// metadata, and the descriptor is dropped: so no default_value, and no
// skip_if_absent, which would send half of it.
func (c *Config) release() list {
	return list{mapping{
		f("apply_on_stream_done", true),
		f("actions", list{
			genericKey(ratelimit.OpKey, ratelimit.OpRelease),
			one("metadata", mapping{
				f("descriptor_key", ratelimit.LeaseEntry),
				f("source", "DYNAMIC"),
				f("metadata_key", c.leaseKey("key")),
			}),
		}),
	}}
}

// leaseKey is where the lease is in dynamic metadata. What names the namespace
// is called key in some messages and filter in others.
func (c *Config) leaseKey(namespace string) flow {
	return flow{mapping{f(namespace, metadataNamespace), f("path", list{one("key", c.opt.LeaseKey)})}}
}

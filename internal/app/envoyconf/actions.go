package envoyconf

import (
	"fmt"
	"slices"
	"strings"
)

// An ask is a descriptor that Envoy sends, as actions: elements of a YAML list.
type ask struct {
	Actions []string
	Hits    bool // at the request's end, to take a hit off
}

// requestHeader is an action that sends a header. Without it, the entry is left
// out (optional), or the descriptor.
func requestHeader(header, key string, optional bool) string {
	end := "}}"
	if optional {
		end = ", skip_if_absent: true}}"
	}
	return fmt.Sprintf("- {request_headers: {header_name: %s, descriptor_key: %s%s", q(header), q(key), end)
}

// resourceActions describe a request for resources.
func (w *wants) resourceActions() []string {
	actions := []string{requestHeader(":method", "method", false), requestHeader(":path", "path", false)}
	for _, h := range w.Headers {
		actions = append(actions, requestHeader(h, "header."+h, true))
	}
	for _, name := range w.Entries {
		actions = append(actions, entryAction(name))
	}
	if w.SOAPAction {
		actions = append(actions, requestHeader("soapaction", "soap_action", true))
	}
	return actions
}

// entryAction sends a value that requests to resources are counted by.
func entryAction(name string) string {
	if claim, ok := claimOf(name); ok {
		return fmt.Sprintf("- {metadata: {descriptor_key: %s, metadata_key: {key: %s, path: [{key: %s}, {key: %s}]}, "+
			"skip_if_absent: true}}", q(name), jwtFilter, jwtPayload, q(claim))
	}
	if name == "masked_remote_address" {
		return "- {masked_remote_address: {v4_prefix_mask_len: 32, v6_prefix_mask_len: 64}}"
	}
	return "- {" + name + ": {}}"
}

// What Envoy's filter for tokens is called, and in which of its metadata the claims are.
const (
	jwtFilter  = "envoy.filters.http.jwt_authn"
	jwtPayload = "payload"
)

// claimOf returns the claim that an entry is.
func claimOf(name string) (claim string, ok bool) { return strings.CutPrefix(name, "jwt.") }

// asked returns what sends each descriptor of a shape that Envoy asks about: one, or every candidate.
func (s *shape) asked() [][]string {
	if s.choose != "" {
		return s.candidates()
	}
	if actions := s.actions(); actions != nil {
		return [][]string{actions}
	}
	return nil
}

// actions returns what sends a shape's descriptor, or nothing if the rules do not
// say where its values come from.
func (s *shape) actions() []string {
	var actions []string
	for i, key := range s.keys {
		a := action(key, s.values[i])
		if a == "" {
			return nil
		}
		actions = append(actions, a)
	}
	return actions
}

// action chooses by the usual names of keys.
func action(key string, values []string) string {
	switch key {
	case "remote_address", "source_cluster", "destination_cluster":
		return "- {" + key + ": {}}"
	case "method", "host", "authority":
		return requestHeader(":"+strings.Replace(key, "host", "authority", 1), key, false)
	case "path":
		return pathAction
	case "generic_key":
		// Several values stand for several routes.
		if len(values) == 1 && values[0] != "" && !strings.Contains(values[0], "*") {
			return "- {generic_key: {descriptor_value: " + q(values[0]) + "}}"
		}
		return ""
	}
	if isHeader(key) {
		return requestHeader(key, key, false)
	}
	return ""
}

// pathAction sends the path: the header :path has the query too.
const pathAction = `- extension:
    name: path
    typed_config:
      '@type': type.googleapis.com/envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor
      descriptor_key: path
      text: request.url_path`

// plainHeaders are headers whose names look like other words.
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

// candidates returns the actions of each descriptor that a shape is chosen from; nil if the rules do not say what the
// last entry's values are.
func (s *shape) candidates() (all [][]string) {
	last := len(s.keys) - 1
	var before []string
	for i, key := range s.keys[:last] {
		a := action(key, s.values[i])
		if a == "" {
			return nil
		}
		before = append(before, a)
	}
	for _, value := range s.values[last] {
		if value == "" || strings.Contains(value, "*") {
			return nil
		}
		named := fmt.Sprintf("- {generic_key: {descriptor_key: %s, descriptor_value: %s}}", q(s.keys[last]), q(value))
		all = append(all, append(slices.Clone(before), named))
	}
	return all
}

package transport

import "strings"

// Headers of a trace as Zipkin writes them (B3), in one or in several. They count where there is no traceparent.
var b3Names = []string{"b3", "x-b3-traceid", "x-b3-spanid", "x-b3-sampled", "x-b3-flags"}

// traceParentOfB3 makes a traceparent of the values of [b3Names]; "" if they name no trace.
func traceParentOfB3(values []string) string {
	trace, span, sampled := values[1], values[2], values[3]
	if values[4] == "1" { // debug
		sampled = "d"
	}
	if single := values[0]; single != "" {
		parts := strings.SplitN(single, "-", 4) // trace, span, whether it is sampled, and the span above
		if len(parts) < 2 {
			return ""
		}
		trace, span, sampled = parts[0], parts[1], strings.Join(parts[2:min(len(parts), 3)], "")
	}
	if len(trace) == 16 {
		trace = strings.Repeat("0", 16) + trace
	}
	if !isID(trace, 32) || !isID(span, 16) {
		return ""
	}
	flags := "00"
	if sampled == "1" || sampled == "d" || sampled == "true" {
		flags = "01"
	}
	return "00-" + trace + "-" + span + "-" + flags
}

// isID reports whether text is an ID of n hexadecimal digits, which are not all zero.
func isID(text string, n int) bool {
	return len(text) == n && strings.Trim(text, "0123456789abcdef") == "" && strings.Trim(text, "0") != ""
}

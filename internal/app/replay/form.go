package replay

import (
	"bytes"
	"slices"
	"strings"
)

// A form is what the lines of a file are.
type form struct {
	name string
	text *textFormat // nil: the lines are JSON
	// fields are names that a line in JSON has, if it has this form. "x*" is any name that begins with x.
	fields []string
}

// The fields of Envoy's formats that a replay reads by itself. Formats in text have no names; these are the names in
// Istio's JSON.
const (
	startTime     = "start_time"
	durationField = "duration"
	methodField   = "method"
	codeField     = "response_code"
	flagsField    = "response_flags"
	upstreamField = "upstream_host"
)

// forms are the forms that a replay recognizes, the more special ones first: the default formats in text of Istio
// (since 1.9) and Envoy, and those in JSON of Envoy AI Gateway (its documentation, and that before version 0.5), Envoy
// Gateway and Istio.
var forms = []*form{
	{name: "Istio's default text format", text: textOf(`[{start_time}] "{method} {path} {protocol}" {response_code} ` +
		`{response_flags} {response_code_details} {connection_termination_details} "{upstream_transport_failure_reason}" ` +
		`{bytes_received} {bytes_sent} {duration} {upstream_service_time} "{x_forwarded_for}" "{user_agent}" ` +
		`"{request_id}" "{authority}" "{upstream_host}" {upstream_cluster} {upstream_local_address} ` +
		`{downstream_local_address} {downstream_remote_address} {requested_server_name} {route_name}`)},
	{name: "Envoy's default text format", text: textOf(`[{start_time}] "{method} {path} {protocol}" {response_code} ` +
		`{response_flags} {bytes_received} {bytes_sent} {duration} {upstream_service_time} "{x_forwarded_for}" ` +
		`"{user_agent}" "{request_id}" "{authority}" "{upstream_host}"`)},
	captured,
	{name: "Envoy AI Gateway's JSON", fields: []string{startTime, codeField, "gen_ai.*"}},
	{name: "Envoy AI Gateway's JSON", fields: []string{startTime, codeField, "genai_*"}},
	{name: "Envoy Gateway's default JSON", fields: []string{startTime, codeField, "x-envoy-origin-path"}},
	{name: "Istio's JSON", fields: []string{startTime, codeField, "x_forwarded_for"}},
}

// captured is the form of captures, otherJSON that of all other files.
var (
	captured  = &form{name: "a capture of headgate", fields: []string{"t", "domain", "descriptors"}}
	otherJSON = &form{name: "JSON with fields of its own"}
)

// looksAt bounds the text of a file that formOf gets, and looksAtLines its lines. The first lines may be a part of one,
// or of another program.
const looksAt, looksAtLines = 64 << 10, 100

// formOf returns the form of the first line that has one that is known.
func formOf(start []byte) *form {
	n := 0
	for line := range bytes.Lines(start) {
		if n++; n > looksAtLines {
			break
		}
		names := namesIn(line)
		for _, f := range forms {
			if f.text != nil && f.text.cut(line, make([][]byte, len(f.text.pieces))) || f.text == nil && f.in(names) {
				return f
			}
		}
	}
	return otherJSON
}

// known reports whether the names of the fields are those of forms.
func (f *form) known() bool { return f != otherJSON && f != captured }

// in reports whether a line with these fields has the form.
func (f *form) in(names []string) bool {
	for _, want := range f.fields {
		start, any := strings.CutSuffix(want, "*")
		if !slices.ContainsFunc(names, func(n string) bool { return n == want || any && strings.HasPrefix(n, start) }) {
			return false
		}
	}
	return true
}

// namesIn returns the names of the fields of a line in JSON, as far as it can be read.
func namesIn(line []byte) (names []string) {
	s := scanner{text: line}
	_ = s.object(func(name []byte) error {
		names = append(names, string(name))
		return s.skip(0)
	})
	return names
}

// A textFormat is fields with text between them.
type textFormat struct {
	before string // the first field
	pieces []piece
	free   int // the field that may have anything in it
}

type piece struct {
	name    string
	after   string
	numeric bool
}

// numeric are fields that are integers, or "-". By them one format is told from another.
var numeric = []string{codeField, "bytes_received", "bytes_sent", durationField}

// textOf reads a format in which {name} stands for a field.
func textOf(format string) *textFormat {
	t := new(textFormat)
	parts := strings.Split(format, "{")
	t.before = parts[0]
	for i, part := range parts[1:] {
		name, after, _ := strings.Cut(part, "}")
		t.pieces = append(t.pieces, piece{name, after, slices.Contains(numeric, name)})
		if name == "user_agent" {
			t.free = i
		}
	}
	return t
}

// cut cuts a line into the values of the fields. Envoy does not escape what clients send, so it cuts off the fields
// before the user agent from the left and those after it from the right: by no header can a client move another field.
func (t *textFormat) cut(line []byte, values [][]byte) bool {
	rest, found := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte(t.before))
	if !found {
		return false
	}
	for i, p := range t.pieces[:t.free] {
		if values[i], rest, found = bytes.Cut(rest, []byte(p.after)); !found {
			return false
		}
	}
	last := len(t.pieces) - 1
	if rest, found = bytes.CutSuffix(rest, []byte(t.pieces[last].after)); !found {
		return false
	}
	for i := last; i > t.free; i-- {
		before := t.pieces[i-1].after
		at := bytes.LastIndex(rest, []byte(before))
		if at < 0 {
			return false
		}
		values[i], rest = rest[at+len(before):], rest[:at]
	}
	values[t.free] = rest
	for i, p := range t.pieces {
		if _, digits := digits(values[i]); p.numeric && !digits && string(values[i]) != "-" {
			return false
		}
	}
	return true
}

// names are the names of the fields.
func (t *textFormat) names() (list []string) {
	for _, p := range t.pieces {
		list = append(list, p.name)
	}
	return list
}

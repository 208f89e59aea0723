package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// oddLines are captures as headgate does not write them, sound and broken.
var oddLines = []string{
	ask(0, "a", ""), ask(0, "a", `,"until":"`+stamp(time.Second)+`"`), ask(0, "a", `,"hitsAddend":7,"code":"OVER_LIMIT"`),
	` { "t" : "` + stamp(0) + `" , "domain" : "shop" , "descriptors" : [ { "entries" : [ ] } ] } ` + "\r",
	ask(0, `\u00e9\"\\\/\n\ud83d\ude00`, ""), ask(0, `\ud800`, ""), ask(0, `\u12`, ""), ask(0, "é😀", ""),
	ask(0, "\xff", ""),
	ask(0, `x\`, ""), ask(0, "a\x01", ""), ask(0, "a\x00", ""), ask(0, "12345678\x7f", ""),
	ask(0, "a", `,"t":"`+stamp(time.Hour)+`"`), ask(0, "a", `,"\u0074":"`+stamp(time.Hour)+`"`),
	ask(0, "a", `,"until":"`+stamp(time.Hour)+`","\u0075ntil":"`+stamp(time.Minute)+`"`),
	ask(0, "a", `,"until":null`), ask(0, "a", `,"until" :"`+stamp(time.Second)+`"`), ask(0, "a", `,"until":1769903941`),
	ask(0, `t\":\"2026-01-31T23:59:00Z`, ""), ask(0, `","t":"`+stamp(0), ""), ask(0, "a", `,"rule":"\u0026","code":null`),
	ask(0, "a", `,"domain":"other","descriptors":[{"entries":[{"key":"b","value":"c"},{"key":"d"}]}]`),
	ask(0, "a", `,"hitsAddend":01`), ask(0, "a", `,"hitsAddend":"3"`), ask(0, "a", `,"hitsAddend":1e2`),
	strings.Replace(ask(0, "a", ""), "{", `{"code":"OK",`, 1),
	strings.Replace(ask(0, "a", ""), `:00Z`, `:00.123456789Z`, 1),
	strings.Replace(ask(0, "a", ""), `:00Z`, `:00.1234567xyZ`, 1),
	strings.Replace(ask(0, "a", ""), `:00Z`, `:00+01:00`, 1),
	strings.Replace(ask(0, "a", ""), "T23", "T24", 1),
	strings.Replace(ask(0, "a", ""), `"entries"`, `"hits_addend":0,"entries"`, 1),
	`{"t":"` + stamp(0) + `"`, `{"t":"2026`, `{}`, ``, `null`, `[1]`, `{"t":"`, `"`, `\`, `{"t":"\`,
}

// A line reads as encoding/json has it, and the same whatever has been read before.
func FuzzCapture(f *testing.F) {
	for _, text := range oddLines {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want, got line
		err := new(capture).whole(text, &want)
		if err == nil {
			likeJSON(t, text, &want)
		}
		later := bytes.Replace(text, []byte(stamp(0)), []byte(stamp(7*time.Second)), 1)
		for _, before := range [][]byte{nil, text, later} {
			c := new(capture)
			_ = c.parse(before, &got)
			if again := c.parse(text, &got); text0(again) != text0(err) {
				t.Fatalf("%q after %q: %v, want %v", text, before, again, err)
			}
			if err == nil && (got.at != want.at || got.until != want.until || !reflect.DeepEqual(got.asked, want.asked)) {
				t.Fatalf("%q after %q: %+v %+v, want %+v %+v", text, before, got, got.asked, want, want.asked)
			}
		}
	})
}

func text0(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// likeJSON compares what a line says with what encoding/json makes of it.
func likeJSON(t *testing.T, text []byte, l *line) {
	t.Helper()
	var ref struct {
		T           any
		Domain      string
		Rule        *string
		Descriptors []struct {
			Entries []struct{ Key, Value string }
		}
	}
	if !json.Valid(text) {
		t.Fatalf("%q is no JSON", text)
	}
	if json.Unmarshal(text, &ref) != nil || !utf8.Valid(text) {
		return // numbers where texts should be
	}
	if ref.Domain != l.request.Domain || ref.Rule != nil && *ref.Rule != l.rule ||
		len(ref.Descriptors) != len(l.request.Descriptors) {
		t.Fatalf("%q: %+v, want %+v", text, l.request, ref)
	}
	if stamp, ok := ref.T.(string); ok {
		if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil && limit.InstantOf(at) != l.at {
			t.Fatalf("%q: %v, want %v", text, l.at.Time(), at)
		}
	}
	for i, d := range ref.Descriptors {
		entries := l.request.Descriptors[i].Entries
		if len(d.Entries) != len(entries) {
			t.Fatalf("%q: %+v, want %+v", text, entries, d)
		}
		for j, e := range d.Entries {
			if e.Key != entries[j].Key || e.Value != entries[j].Value {
				t.Fatalf("%q: %+v, want %+v", text, entries, d)
			}
		}
	}
}

// A line of an access log has the values that encoding/json finds, and the same whatever has been read before.
func FuzzAccessLog(f *testing.F) {
	const usual = `{"start":"2026-01-31T23:59:00Z","ms":12,"r":{"tenant":"a","n":null},"b":[1,{"x":2}],"n":-1.5e3}`
	for _, text := range []string{usual, `{"start":1769903940,"tenant":"x"}`,
		`{"r.tenant":"\u0041","start":"1769903940.5"}`,
		`{"r":{"tenant":"a"},"r.tenant":"b","start":1769903940,"start":1769903941}`, `{"r":[],"start":true}`, `{"start":01}`,
		`{"start":"2026-01-31T23:59:00Z","r":{"r":{"tenant":"no"},"tenant":"-"}}`,
		`{"":{"":1},"start":1769903940}`, `{"start":"\`,
		"{\"start\":1769903940,\"r\":{\"tenant\":\"\xff\"}}", `{"start":1769903940,"x":` + strings.Repeat("[", 40),
		"{\"start\":1769903940,\"a\tb\":1}", `{"start":1769903940,"r":{"tenant":12345678901234567890}} `} {
		f.Add([]byte(text))
	}
	mapping := Mapping{Domain: "d", Descriptors: []string{"tenant={r.tenant}"}, Time: "start"}
	f.Fuzz(func(t *testing.T, text []byte) {
		var first error
		var want line
		for i, before := range []string{"", usual, string(text), `{"ms":1,"start":"x"}`} {
			a, err := newAccessLog(mapping, otherJSON)
			if err != nil {
				t.Fatal(err)
			}
			var got line
			_ = a.parse([]byte(before), &got)
			err = a.parse(text, &got)
			if i == 0 {
				first, want = err, got
			}
			if text0(err) != text0(first) {
				t.Fatalf("%q after %q: %v, want %v", text, before, err, first)
			}
			if err == nil && (got.at != want.at || !reflect.DeepEqual(got.asked, want.asked)) {
				t.Fatalf("%q after %q: %+v %+v, want %+v %+v", text, before, got, got.asked, want, want.asked)
			}
		}
		if first != nil {
			return
		}
		found, ok := tenantIn(t, text)
		if !utf8.Valid(text) {
			return
		}
		if got := want.request; (got != nil) != ok || ok && got.Descriptors[0].Entries[0].Value != found {
			t.Fatalf("%q: %+v, want %q", text, got, found)
		}
	})
}

// tenantIn returns the value of the field r.tenant, as encoding/json's tokens have it.
func tenantIn(t *testing.T, text []byte) (found string, ok bool) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var read func(path string, inList bool)
	read = func(path string, inList bool) {
		for {
			name := path
			if !inList {
				token, err := d.Token()
				if errors.Is(err, io.EOF) || token == json.Delim('}') {
					return
				} else if err != nil {
					t.Fatalf("%q is no JSON: %v", text, err)
				}
				s := token.(string)
				if path == "" {
					name = s
				} else {
					name = path + "." + s
				}
			}
			token, err := d.Token()
			if err != nil {
				t.Fatalf("%q is no JSON: %v", text, err)
			}
			switch v := token.(type) {
			case json.Delim:
				switch v {
				case '{':
					if inList {
						name = "(in a list)"
					}
					read(name, false)
				case '[':
					read("(in a list)", true)
				default:
					return
				}
			case string:
				if name == "r.tenant" {
					found, ok = v, v != "" && v != "-"
				}
			case json.Number:
				if name == "r.tenant" {
					found, ok = v.String(), true
				}
			case bool:
				if name == "r.tenant" {
					found, ok = map[bool]string{true: "true", false: "false"}[v], true
				}
			case nil:
				if name == "r.tenant" {
					found, ok = "", false
				}
			}
		}
	}
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		t.Fatalf("%q is no object: %v", text, err)
	}
	read("", false)
	return found, ok
}

// plain finds the first byte that matters at each place and beside all others.
func TestPlain(t *testing.T) {
	rnd := random.Rand(t, 0)
	for range 100_000 {
		text := make([]byte, rnd.IntN(24))
		for i := range text {
			text[i] = byte(rnd.IntN(256)) | ' '
			if rnd.IntN(12) == 0 {
				text[i] = "\"\\\x00\x1f !]#\x7f\x80\xff\x21"[rnd.IntN(12)]
			}
		}
		want := 0
		for want < len(text) && text[want] != '"' && text[want] != '\\' && text[want] >= ' ' {
			want++
		}
		if got := plain(text); got != want {
			t.Fatalf("%q: %d, want %d", text, got, want)
		}
	}
}

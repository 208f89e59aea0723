package replay

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit"
)

// addresses returns rules of n requests an hour for each address.
func addresses(tb testing.TB, n int) *descriptors.Set {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "rules.yaml")
	write(tb, file, fmt.Sprintf("domain: shop\ndescriptors: [{key: remote_address, rate_limit: {unit: hour, "+
		"requests_per_unit: %d}}]\n", n))
	return readSet(tb, file)
}

// The files in testdata were written by Envoy 1.40.0 while headgate let 3 requests of each client pass: 127.0.3.1,
// .2 and .3 have sent 5 requests each, in turn, with a user agent that tries to be other fields. Last, 127.0.3.9 has
// got a 429 from the server behind Envoy. test/e2e has Envoy write the same, where the formats are from.
var logged = []struct{ file, form, client string }{
	{"envoy.log", "Envoy's default text format", "{x_forwarded_for|last}"},
	{"istio.log", "Istio's default text format", "{downstream_remote_address|no-port}"},
	{"envoy-gateway.log", "Envoy Gateway's default JSON", "{downstream_remote_address|no-port}"},
	{"ai-gateway.log", "Envoy AI Gateway's JSON", "{downstream_remote_address|no-port}"},
	{"ai-gateway-0.4.log", "Envoy AI Gateway's JSON", "{x-forwarded-for|last}"},
}

func TestFilesOfEnvoy(t *testing.T) {
	for _, c := range logged {
		for _, limit := range []int{2, 3, 4} {
			r := mustRun(t, Options{Files: []string{"testdata/" + c.file}, New: addresses(t, limit), Top: 9, MaxBad: 0,
				Log: Mapping{Domain: "shop", Descriptors: []string{"remote_address=" + c.client}}})
			var keys []string
			for _, k := range r.Keys {
				keys = append(keys, fmt.Sprintf("%s %d", k.Key, k.NewlyRefused))
			}
			slices.Sort(keys)
			got := fmt.Sprintf("%d requests, %d answered, %d → %d refused, %d newly refused, %d newly admitted: %v", r.Requests,
				r.Answered, r.RefusedOld, r.RefusedNew, r.NewlyRefused, r.NewlyAdmitted, keys)
			want := map[int]string{
				2: "16 requests, 16 answered, 6 → 9 refused, 3 newly refused, 0 newly admitted: " +
					"[shop|remote_address=127.0.3.1 1 shop|remote_address=127.0.3.2 1 shop|remote_address=127.0.3.3 1]",
				3: "16 requests, 16 answered, 6 → 6 refused, 0 newly refused, 0 newly admitted: []",
				4: "16 requests, 16 answered, 6 → 3 refused, 0 newly refused, 3 newly admitted: []",
			}[limit]
			if got != want || len(r.Notes()) != 0 {
				t.Errorf("%s, limit %d: %s %v, want %s", c.file, limit, got, r.Notes(), want)
			}
			if as := r.ReadAs(); len(as) != 1 || as[0] != c.form+": testdata/"+c.file {
				t.Errorf("%s is read as %q", c.file, as)
			}
		}
	}
}

// What is missing for a file is said with its form.
func TestFormsAreNamed(t *testing.T) {
	for _, c := range logged {
		_, err := Run(t.Context(), Options{Files: []string{"testdata/" + c.file}, New: addresses(t, 3)})
		if want := c.file + ": the file is in " + c.form + ": --domain is missing"; err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	three := []string{"testdata/istio.log", "testdata/envoy.log", "testdata/istio.log"}
	r := mustRun(t, Options{Files: three, New: addresses(t, 3), Log: Mapping{Domain: "shop",
		Descriptors: []string{"remote_address={x_forwarded_for|last}"}}})
	if as := strings.Join(r.ReadAs(), "; "); as != "Istio's default text format: testdata/istio.log and 1 more; "+
		"Envoy's default text format: testdata/envoy.log" {
		t.Errorf("read as %s", as)
	}
	own := capturedIn(t, `10.0.0.1 - - [31/Jan/2026:23:59:00 +0000] "GET / HTTP/1.1" 200 5`)
	_, err := Run(t.Context(), Options{Files: own, New: addresses(t, 3), MaxBad: 5, Log: Mapping{Domain: "shop",
		Descriptors: []string{"remote_address={a}"}, Time: "t"}})
	if err == nil || !strings.Contains(err.Error(), "not in a format of text that replay knows: Envoy's and Istio's") {
		t.Errorf("a text of another format: %v", err)
	}
}

// envoyLine is a line in Envoy's default format.
func envoyLine(request, code, forwarded, agent, id string) string {
	return fmt.Sprintf(`[2026-01-31T23:59:00.123Z] "%s" %s 0 5 7 1 "%s" "%s" "%s" "shop" "10.0.0.1:80"`, request, code,
		forwarded, agent, id)
}

// A line in text has its values wherever a client may put quotes, and lines that ask about nothing count so.
func TestLinesInText(t *testing.T) {
	const get, ok = "GET /a?b HTTP/1.1", "200 -"
	a, err := newAccessLog(Mapping{Domain: "shop", Descriptors: []string{"m={method},p={path},f={x_forwarded_for}",
		"u={user_agent}", "i={request_id},a={authority}"}}, forms[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, want string }{
		{envoyLine(get, ok, "10.0.0.1", "curl", "x"), "GET /a?b 10.0.0.1 curl x shop 7ms admitted"},
		{envoyLine(get, ok, "10.0.0.1", `a" "b" "c" "d" "e`, "x"), `GET /a?b 10.0.0.1 a" "b" "c" "d" "e x shop 7ms admitted`},
		{envoyLine(get, ok, `1" "2`, "curl", "x"), `GET /a?b 1 2" "curl x shop 7ms admitted`},
		{envoyLine(get, ok, "1", "curl", `x" "y`), `GET /a?b 1 curl" "x y shop 7ms admitted`},
		{envoyLine(get, "429 RL", "1", "-", "x"), "GET /a?b 1 - x shop 7ms refused"},
		{envoyLine(get, "503 UF,RL", "1", "-", "x"), "GET /a?b 1 - x shop 7ms refused"},
		{envoyLine(get, "429 -", "1", "-", "x"), "GET /a?b 1 - x shop 7ms admitted"},
		{envoyLine(get, "200 RLSE", "1", "-", "x"), "GET /a?b 1 - x shop 7ms admitted"},
		{envoyLine("- - HTTP/1.1", "400 DPE", "1", "-", "x"), "nothing"},
		{envoyLine("- - -", "0 -", "1", "-", "x"), "nothing"},
		{envoyLine(get, "OK -", "1", "-", "x"), "the line is not in Envoy's default text format"},
		{strings.Replace(envoyLine(get, ok, "1", "-", "x"), "2026-01", "2026-91", 1), "is not a time"},
		{envoyLine(get, ok, "1", "-", "x")[:90], "the line is not in Envoy's default text format"},
		{`{"start_time":"2026-01-31T23:59:00.123Z"}`, "the line is not in Envoy's default text format"},
	} {
		var l line
		if err := a.parse([]byte(c.line+"\n"), &l); err != nil || l.request == nil {
			if got := fmt.Sprint(err); !strings.Contains(got, c.want) && (err != nil || c.want != "nothing") {
				t.Errorf("%s: %v, want %s", c.line, err, c.want)
			}
			continue
		}
		var got []string
		for _, d := range l.request.Descriptors {
			for _, e := range d.Entries {
				got = append(got, e.Value)
			}
		}
		if !slices.ContainsFunc(l.request.Descriptors, func(d ratelimit.Descriptor) bool { return d.Entries[0].Key == "u" }) {
			got = slices.Insert(got, 3, "-")
		}
		got = append(got, fmt.Sprint(l.until.Sub(l.at)), map[bool]string{true: "refused", false: "admitted"}[l.refused])
		if text := strings.Join(got, " "); text != c.want || !l.answered {
			t.Errorf("%s: %s, want %s", c.line, text, c.want)
		}
	}
}

// The first line that is whole says what a file is.
func TestForms(t *testing.T) {
	text := envoyLine("GET / HTTP/1.1", "200 -", "-", "-", "x")
	for _, c := range []struct {
		name string
		text string
		want *form
	}{
		{"nothing", "", otherJSON},
		{"a cut line", text[40:] + "\n" + text + "\n", forms[1]},
		{"lines of another program", strings.Repeat("2026-01-31T23:59:00Z info xdsproxy connected\n", 50) + text, forms[1]},
		{"too many of them", strings.Repeat("info\n", looksAtLines) + text, otherJSON},
		{"a capture", ask(0, "a", ""), captured},
		{"JSON", `{"start":1,"response_code":200}`, otherJSON},
		{"cut JSON", `{"start_time":1,"x_forwarded_for":"a","response_code":200`, forms[len(forms)-1]},
		{"objects", `{"a":{"b":[1,{}]},"genai_x":1,"start_time":1,"response_code":200}`, forms[4]},
	} {
		if got := formOf([]byte(c.text)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got.name, c.want.name)
		}
	}
}

func TestFilters(t *testing.T) {
	for _, c := range []struct{ filter, value, want string }{
		{"no-port", "10.0.0.1:80", "10.0.0.1"}, {"no-port", "10.0.0.1", "10.0.0.1"}, {"no-port", "[::1]:80", "::1"},
		{"no-port", "::1", "::1"}, {"no-port", "[::1]", "::1"}, {"no-port", "shop:80", "shop"},
		{"first", "10.0.0.1, 10.0.0.2,10.0.0.3", "10.0.0.1"}, {"last", "10.0.0.1, 10.0.0.2 , 10.0.0.3 ", "10.0.0.3"},
		{"first", "a", "a"}, {"last", "a", "a"}, {"first", ", a", "none"}, {"last", "a,", "none"},
		{"network:24", "10.1.2.3", "10.1.2.0/24"}, {"network:24", "10.1.2.3:80", "10.1.2.0/24"},
		{"network:24", "2001:db8::1", "2001:db8::1/128"}, {"network:24/64", "[2001:db8::1]:80", "2001:db8::/64"},
		{"network:8", "::ffff:10.1.2.3", "10.0.0.0/8"}, {"network:0", "10.1.2.3", "0.0.0.0/0"}, {"network:24", "x", "none"},
		{"last|network:16|lower", "x, 10.1.2.3", "10.1.0.0/16"}, {"first|last|no-query|lower", "/A?b,c", "/a"},
		{"network:33", "", "error"}, {"network", "", "error"}, {"network:24/129", "", "error"}, {"network:a", "", "error"},
		{"no-port:80", "", "error"}, {"upper", "", "error"}, {"", "", "error"}, {"first|", "", "error"},
	} {
		a, err := newAccessLog(Mapping{Domain: "shop", Descriptors: []string{"k={v|" + c.filter + "}"}, Time: "t"}, otherJSON)
		got := "error"
		if err == nil {
			var l line
			if err := a.parse(fmt.Appendf(nil, `{"t":1,"v":%q}`, c.value), &l); err != nil {
				t.Fatal(err)
			}
			got = "none"
			if l.request != nil {
				got = l.request.Descriptors[0].Entries[0].Value
			}
		}
		if got != c.want {
			t.Errorf("{%q|%s}: %q, want %q (%v)", c.value, c.filter, got, c.want, err)
		}
	}
}

// A note says so when most lines have a key of their own: of few lines and of very many, and never of fewer than half.
func TestKeysOfTheirOwn(t *testing.T) {
	for _, c := range []struct {
		lines, each int // each value but the first is that of so many lines
		value       func(i int) string
		want        string
	}{
		{99, 1, port, ""},
		{100, 1, port, `v is "10.0.0.1:0", an address with a port, which differs by connection: write {v|no-port}`},
		{30_000, 1, port, "{v|no-port}"}, {30_000, 2, port, ""}, {200, 2, port, ""},
		{200, 1, func(i int) string { return fmt.Sprintf("/pay?n=%d", i) }, "a path with its query: write {v|no-query}"},
		{200, 1, func(i int) string { return fmt.Sprintf("10.0.0.%d, 10.1.0.1", i) }, "{v|first}, or {v|last}"},
		{200, 1, func(i int) string { return fmt.Sprintf("5f1c9a3e-%08x-4c5d", i) }, "the ID of the request"},
		{200, 1, func(i int) string { return fmt.Sprintf("user %d", i) }, `v is "user 0", by {v}: take a field that`},
		{200, 1, func(i int) string { return fmt.Sprint("user ", i*min(i%5, 1)) }, "take a field that many lines share"},
		{200, 1, func(i int) string { return fmt.Sprint("user ", i*min(max(i%5-2, 0), 1)) }, ""},
	} {
		var list []string
		for i := range c.lines {
			list = append(list, fmt.Sprintf(`{"t":%d,"v":%q}`, 1_000_000_000+i, c.value(i/c.each)))
		}
		r := mustRun(t, Options{Files: capturedIn(t, list...), New: addresses(t, 1), Log: Mapping{Domain: "shop",
			Descriptors: []string{"v={v}"}, Time: "t"}})
		if notes := strings.Join(r.About, "; "); !strings.Contains(notes, c.want) || (c.want == "") != (notes == "") {
			t.Errorf("%d lines, %d each, as %s: %q, want %q", c.lines, c.each, c.value(1), notes, c.want)
		}
	}
	// Of two fields each, lines share either, and no two have both.
	var list []string
	for i := range 400 {
		list = append(list, fmt.Sprintf(`{"t":%d,"a":%d,"b":%d}`, 1_000_000_000+i, i/20, i%20))
	}
	r := mustRun(t, Options{Files: capturedIn(t, list...), New: addresses(t, 1), Log: Mapping{Domain: "shop",
		Descriptors: []string{"a={a}", "a={a},b={b}"}, Time: "t"}})
	if len(r.About) != 1 || !strings.Contains(r.About[0], `--descriptor "a={a},b={b}"`) {
		t.Errorf("together: %q", r.About)
	}
	// A port in the address of a client is a mistake, however few the lines are.
	r = mustRun(t, Options{Files: []string{"testdata/istio.log"}, New: addresses(t, 3), Log: Mapping{Domain: "shop",
		Descriptors: []string{"remote_address={downstream_remote_address}", "u={upstream_host}"}}})
	if len(r.About) != 1 || !strings.Contains(r.About[0], "each connection has a key of its own: remote_address is") ||
		!strings.HasSuffix(r.About[0], "write {downstream_remote_address|no-port}") {
		t.Errorf("with ports: %q", r.About)
	}
}

func port(i int) string { return fmt.Sprintf("10.0.0.1:%d", i) }

package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/app/virtual"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/test/random"
)

// rules returns rules of one limit for each tenant.
func rules(tb testing.TB, body string) *descriptors.Set {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "rules.yaml")
	write(tb, file, "domain: shop\ndescriptors:\n- {key: tenant, "+body+"}\n")
	return readSet(tb, file)
}

func perMinute(tb testing.TB, n int64) *descriptors.Set {
	tb.Helper()
	return rules(tb, fmt.Sprintf("limits: [{name: per-tenant, algorithm: fixed_window, limit: %d, window: 1m}]", n))
}

var start0 = time.Date(2026, 1, 31, 23, 59, 0, 0, time.UTC)

func stamp(after time.Duration) string {
	return start0.Add(after).Format("2006-01-02T15:04:05.999999Z")
}

// ask is a line of a capture.
func ask(after time.Duration, tenant, more string) string {
	return fmt.Sprintf(`{"t":"%s"%s,"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"%s"}]}]}`,
		stamp(after), more, tenant)
}

func capturedIn(tb testing.TB, lines ...string) []string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "capture.jsonl")
	write(tb, file, strings.Join(lines, "\n")+"\n")
	return []string{file}
}

func mustRun(tb testing.TB, opt Options) *Report {
	tb.Helper()
	r, err := Run(tb.Context(), opt)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// burst is one tenant's requests: 12 in the first minute, 5 in the second.
func burst() (list []string) {
	for i := range 12 {
		list = append(list, ask(time.Duration(i)*time.Second, "a", ""), ask(time.Duration(i)*time.Second, "b", ""))
	}
	for i := range 5 {
		list = append(list, ask(time.Minute+time.Duration(i)*time.Second, "a", ""))
	}
	return list
}

func TestReport(t *testing.T) {
	r := mustRun(t, Options{Files: capturedIn(t, burst()...), New: perMinute(t, 4), Old: perMinute(t, 10), Top: 1})
	// 23:59:00 to :59 has 12 of each tenant, 00:00 has 5 of a.
	if r.Requests != 29 || r.RefusedOld != 4 || r.RefusedNew != 17 || r.NewlyRefused != 13 || r.NewlyAdmitted != 0 ||
		r.NewlyRefusedKeys != 2 || len(r.Keys) != 1 {
		t.Errorf("%+v", r)
	}
	k := r.Keys[0]
	if k.Key != "shop|tenant=a" || k.Rule != "shop/tenant:per-tenant" || k.NewlyRefused != 7 || k.Peak != 12 ||
		*k.WouldFitWith != 12 || k.LimitOld != 10 || k.LimitNew != 4 || !k.First.Time().Equal(start0.Add(4*time.Second)) {
		t.Errorf("%+v, would fit with %d", k, *k.WouldFitWith)
	}
	var text, list bytes.Buffer
	if err := errors.Join(WriteText(&text, r), json.NewEncoder(&list).Encode(r)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"29 requests from 2026-01-31T23:59:00Z", "4            17           +13", "10 → 4",
		"and 1 key more"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, text.String())
		}
	}
	var again struct {
		From  time.Time
		Rules []struct {
			Rule       string
			RefusedOld int `json:"refused_old"`
			RefusedNew int `json:"refused_new"`
			Change     int
		}
		Keys []struct {
			Key   string
			First time.Time
			Fits  int `json:"would_fit_with"`
		}
	}
	if err := json.Unmarshal(list.Bytes(), &again); err != nil || again.Rules[0].Change != 13 ||
		again.Keys[0].Fits != 12 ||
		!again.From.Equal(start0) || again.Keys[0].First.IsZero() {
		t.Errorf("%v: %+v in\n%s", err, again, list.String())
	}
}

// The number that is said to fit does, and the one below it does not: with each algorithm, found by deciding all again.
func TestWouldFitWithIsTheSmallest(t *testing.T) {
	for _, c := range []struct{ name, rule string }{
		{"fixed_window", "limits: [{algorithm: fixed_window, limit: %d, window: 10s}]"},
		{"sliding_window", "limits: [{algorithm: sliding_window, limit: %d, window: 10s}]"},
		{"sliding_log", "limits: [{algorithm: sliding_log, limit: %d, window: 10s}]"},
		{"token_bucket", "limits: [{algorithm: token_bucket, rate: 1/s, burst: %d}]"},
		{"debt", "overflow: debt, limits: [{algorithm: sliding_log, limit: %d, window: 10s}]"},
		{"concurrency", "concurrency: [{threshold: %d, response: {statusCode: 429}}]"},
		{"with another limit", "limits: [{name: x, algorithm: fixed_window, limit: %d, window: 10s}, " +
			"{name: y, algorithm: fixed_window, limit: 30, window: 1m}]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := 0
			for round := range random.Times(4, 200) {
				found += fitRound(t, random.Rand(t, uint64(round)), c.rule)
			}
			if found == 0 {
				t.Error("no key was newly refused")
			}
		})
	}
}

func fitRound(t *testing.T, rnd *rand.Rand, rule string) (found int) {
	t.Helper()
	var list []string
	at := time.Duration(0)
	for range 300 {
		at += time.Duration(rnd.ExpFloat64() * float64(400*time.Millisecond))
		more := fmt.Sprintf(`,"until":"%s","hitsAddend":%d`, stamp(at+time.Duration(rnd.IntN(5000))*time.Millisecond),
			1+rnd.IntN(3))
		list = append(list, ask(at, string(rune('a'+rnd.IntN(3))), more))
	}
	opt := Options{Files: capturedIn(t, list...), New: rules(t, fmt.Sprintf(rule, 2)), Top: 10}
	refused := func(n int64, key, name string) bool {
		opt := opt
		opt.New = rules(t, fmt.Sprintf(rule, n))
		for _, k := range mustRun(t, opt).Keys {
			if k.Key == key && k.Rule == name {
				return true
			}
		}
		return false
	}
	for _, k := range mustRun(t, opt).Keys {
		if strings.HasSuffix(k.Rule, ":y") {
			continue
		}
		found++
		if k.WouldFitWith == nil {
			t.Fatalf("%s: not known", k.Key)
		}
		n := *k.WouldFitWith
		if refused(n, k.Key, k.Rule) {
			t.Errorf("%s %s: %d does not fit", k.Key, k.Rule, n)
		}
		// Where another limit refuses the same request, the report has that one.
		if !strings.Contains(rule, "name: y") && !refused(n-1, k.Key, k.Rule) {
			t.Errorf("%s %s: %d fits, too, not only %d", k.Key, k.Rule, n-1, n)
		}
	}
	return found
}

// refusing notes which limits of one request's ops refuse.
type refusing struct {
	backends.Backend
	by [2]bool
}

func (s *refusing) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	s.Backend.Take(ctx, reqs, out)
	for i := range reqs {
		for j := range reqs[i].Ops {
			s.by[j] = s.by[j] || !out[i].Outcomes[j].Admitted
		}
	}
}

// Where a request has two limits, the number for each is the smallest with which that limit refuses nothing while the
// other one stays: found by trying all of them.
func TestWouldFitWithBesideAnotherLimit(t *testing.T) {
	set := func(x, y int64) *descriptors.Set {
		return rules(t, fmt.Sprintf("limits: [{name: x, algorithm: fixed_window, limit: %d, window: 10s}, "+
			"{name: y, algorithm: fixed_window, limit: %d, window: 1m}]", x, y))
	}
	found := map[string]bool{}
	for round := range random.Times(3, 60) {
		rnd := random.Rand(t, uint64(round))
		var list []string
		var times []limit.Instant
		for at := time.Duration(0); len(list) < 60; at += time.Duration(rnd.ExpFloat64() * float64(2*time.Second)) {
			list = append(list, ask(at, "a", ""))
			times = append(times, limit.InstantOf(start0.Add(at.Truncate(time.Microsecond))))
		}
		req := &ratelimit.Request{Domain: "shop", InProcess: true, Descriptors: []ratelimit.Descriptor{
			{Entries: []descriptors.Entry{{Key: "tenant", Value: "a"}}}}}
		refused := func(x, y int64) [2]bool {
			s := new(refusing)
			w, err := virtual.New(set(x, y), virtual.Options{Store: func(b backends.Backend) backends.Backend {
				s.Backend = b
				return s
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			for _, at := range times {
				w.Decide(at, req, new(ratelimit.Response))
			}
			return s.by
		}
		const x, y = 4, 14
		for _, k := range mustRun(t, Options{Files: capturedIn(t, list...), New: set(x, y), Top: 10}).Keys {
			found[k.Rule] = true
			n := int64(1)
			if strings.HasSuffix(k.Rule, ":x") {
				for refused(n, y)[0] {
					n++
				}
			} else {
				for refused(x, n)[1] {
					n++
				}
			}
			if k.WouldFitWith == nil || *k.WouldFitWith != n {
				t.Errorf("round %d, %s: %s, want %d", round, k.Rule, k.Fits(), n)
			}
		}
	}
	if len(found) != 2 {
		t.Errorf("only keys of %v are refused", found)
	}
}

// Files are one sequence, however they are cut, packed and ordered, and two runs find the same.
func TestInputsAreAlike(t *testing.T) {
	all := burst()
	whole := capturedIn(t, all...)
	opt := Options{New: perMinute(t, 4), Old: perMinute(t, 10), Top: 5}
	result := func(files []string, stdin string, reorder time.Duration) string {
		opt := opt
		opt.Files, opt.Stdin, opt.Reorder = files, strings.NewReader(stdin), reorder
		var out bytes.Buffer
		r := mustRun(t, opt)
		r.Forms = nil // they name the files
		if err := json.NewEncoder(&out).Encode(r); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := result(whole, "", 0)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(strings.Join(all, "\n")))
	_ = z.Close()
	gz := filepath.Join(t.TempDir(), "x.gz")
	write(t, gz, packed.String())
	var even, odd, spaced []string
	for i, text := range all {
		if i%2 == 0 {
			even = append(even, text)
		} else {
			odd = append(odd, text)
		}
		spaced = append(spaced, " "+strings.NewReplacer(`{"t":`, `{"code": null, "t": `, `"domain":"shop",`, "", "}]}]}",
			`}]}],"domain":"sh\u006fp"}`).Replace(text), "")
	}
	mixed := append([]string{}, all...)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	piped, into, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer piped.Close()
	_, _ = into.WriteString(strings.Join(all, "\n")) // which is less than a pipe has room for
	into.Close()
	for name, got := range map[string]string{
		"a pipe":           result([]string{fmt.Sprintf("/dev/fd/%d", piped.Fd())}, "", 0),
		"again":            result(whole, "", 0),
		"gzip":             result([]string{gz}, "", 0),
		"standard input":   result([]string{"-"}, strings.Join(all, "\n"), 0),
		"two files":        result(append(capturedIn(t, odd...), capturedIn(t, even...)...), "", 0),
		"other JSON":       result(capturedIn(t, spaced...), "", 0),
		"out of order":     result(capturedIn(t, mixed...), "", 2*time.Minute),
		"a file and stdin": result(append(capturedIn(t, odd...), "-"), strings.Join(even, "\n"), 0),
	} {
		if got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

// An access log has the beginning and the duration of a request: so it says what is in flight. Lines come as requests
// end.
func TestAccessLog(t *testing.T) {
	line := func(after time.Duration, ms int, more string) string {
		return fmt.Sprintf(`{"start":"%s","ms":%d,"request":{"tenant":"a","path":"/pay?x=1"},"status":200%s}`, stamp(after),
			ms, more)
	}
	log := Mapping{Domain: "shop", Descriptors: []string{"tenant={request.tenant},path={request.path|no-query}",
		"other={none}"},
		Time: "start", Duration: "ms"}
	set := func(body string) *descriptors.Set {
		file := filepath.Join(t.TempDir(), "rules.yaml")
		write(t, file, "domain: shop\ndescriptors: [{key: tenant, descriptors: [{key: path, value: /pay, "+body+"}]}]\n")
		return readSet(t, file)
	}
	two := set("concurrency: [{threshold: 2, response: {statusCode: 503}}]")
	sec := time.Second
	lines := []string{
		line(1*sec, 500, ""), line(0, 3000, ""), line(0, 4000, `,"none":null`), // at 1 s there are two others
		line(3500*time.Millisecond, 1000, ""), `{"start":"` + stamp(5*sec) + `","request":{"path":"/pay"},"none":"-"}`,
		line(6*sec, 10, `,"none":"x"`),
	}
	opt := Options{Files: capturedIn(t, lines...), New: two, Log: log, Reorder: time.Minute, Top: 5}
	r := mustRun(t, opt)
	if r.Requests != 5 || r.RefusedNew != 1 || r.Unmapped != 1 || r.Keys[0].Key != "shop|tenant=a|path=/pay" ||
		r.Keys[0].Peak != 3 || *r.Keys[0].WouldFitWith != 3 || !r.Keys[0].First.Time().Equal(start0.Add(sec)) {
		t.Errorf("%+v %+v", r, r.Keys)
	}
	opt.Reorder = 0
	if r := mustRun(t, opt); r.Back != 2 || !strings.Contains(strings.Join(r.Notes(), "\n"), ":2") {
		t.Errorf("without --reorder: %+v", r)
	}
	opt.Log.Cost, opt.Log.Descriptors = "status", opt.Log.Descriptors[:1]
	opt.New = set("rate_limit: {unit: minute, requests_per_unit: 500}")
	opt.Files, opt.Reorder = capturedIn(t, lines[:4]...), time.Minute
	if r := mustRun(t, opt); r.RefusedNew != 2 || *r.Keys[0].WouldFitWith != 800 || r.Keys[0].Peak != 800 {
		t.Errorf("with costs: %+v %+v", r, r.Keys)
	}
	// A field may say several things.
	opt.Log.Cost, opt.Log.Descriptors = "ms", append(opt.Log.Descriptors, "ms={ms}", "start={start}")
	opt.New = set("rate_limit: {unit: minute, requests_per_unit: 3500}")
	if r := mustRun(t, opt); r.RefusedNew != 2 || r.Keys[0].Peak != 8500 {
		t.Errorf("with costs that are durations: %+v %+v", r, r.Keys)
	}
}

// What the lines say counts as the answers before; those who were refused when they began need not end.
func TestAnswersOfLines(t *testing.T) {
	files := capturedIn(t, ask(0, "a", `,"code":"OK"`), ask(1, "a", `,"code":"OVER_LIMIT","rule":"shop/tenant:old"`),
		ask(2, "a", `,"code":"OK"`))
	r := mustRun(t, Options{Files: files, New: perMinute(t, 1), Top: 1})
	if r.RefusedOld != 1 || r.RefusedNew != 2 || r.NewlyRefused != 1 || r.Answered != 3 || len(r.Notes()) != 0 ||
		r.Rules[1].Rule != "shop/tenant:old" || r.Rules[1].RefusedOld != 1 {
		t.Errorf("%+v %+v", r, r.Notes())
	}
}

func TestSpans(t *testing.T) {
	files := capturedIn(t, burst()...)
	for _, c := range []struct {
		name                    string
		opt                     Options
		decided, asked, refused int64
	}{
		{"all", Options{}, 29, 29, 17},
		{"from", Options{From: start0.Add(time.Minute)}, 5, 5, 1},
		{"to", Options{To: start0.Add(10 * time.Second)}, 20, 20, 12},
		{"warm", Options{Warm: 10 * time.Second}, 29, 9, 5},
		{"from, warm", Options{From: start0.Add(10 * time.Second), Warm: 5 * time.Second}, 19, 9, 5},
	} {
		c.opt.Files, c.opt.New = files, perMinute(t, 4)
		r := mustRun(t, c.opt)
		if r.Decided != c.decided || r.Requests != c.asked || r.RefusedNew != c.refused {
			t.Errorf("%s: %d decided, %d reported, %d refused", c.name, r.Decided, r.Requests, r.RefusedNew)
		}
	}
}

func TestBrokenLines(t *testing.T) {
	good := ask(0, "a", "")
	for _, c := range []struct{ line, want string }{
		{"{", "column 3: want a string"},
		{`{"t":"` + stamp(0) + `"}`, "domain or descriptors are missing"},
		{strings.Replace(good, `"t"`, `"tt"`, 1), `unknown field "tt"`},
		{strings.Replace(good, `"value"`, `"valeu"`, 1), `did you mean "value"?`},
		{strings.Replace(good, "2026-01-31T", "2026-31-31T", 1), `t: "2026-31-31T23:59:00Z" is not a time`},
		{strings.Replace(good, `"t":`, `"v":2,"t":`, 1), "a later version of headgate"},
		{strings.Replace(good, `"t":`, `"v":"new","t":`, 1), "v"},
		{good + "x", "more text after the object"},
		{good[:len(good)-3], "column"},
		{strings.Replace(good, `"domain"`, `"hitsAddend":-1,"domain"`, 1), "hitsAddend"},
		{strings.Replace(good, `"t":`, `"x":"`+strings.Repeat("y", maxLine)+`","t":`, 1), "longer than"},
		{strings.Repeat(`{"domain":`, 50), "want a string"},
		{`{"domain":"a` + "\x01" + `"}`, "a control character"},
	} {
		r := mustRun(t, Options{Files: capturedIn(t, good, c.line, good), New: perMinute(t, 4), MaxBad: 1})
		if r.Bad != 1 || r.Requests != 2 || !strings.Contains(r.BadLines[0].String(), ":2: ") ||
			!strings.Contains(r.BadLines[0].Error, c.want) {
			t.Errorf("%.60s: %+v, want %q", c.line, r.BadLines, c.want)
		}
		if notes := strings.Join(r.Notes(), "\n"); !strings.Contains(notes, ":2: ") || !strings.Contains(notes,
			"1 line could not") {
			t.Errorf("notes: %s", notes)
		}
	}
	cut := filepath.Join(t.TempDir(), "cut.gz")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(strings.Join(burst(), "\n")))
	_ = z.Close()
	write(t, cut, packed.String()[:packed.Len()-6])
	if r := mustRun(t, Options{Files: []string{cut}, New: perMinute(t, 4), MaxBad: 1}); r.Bad != 1 || r.Requests < 20 {
		t.Errorf("a file of gzip that is cut off: %+v", r)
	}
}

// A file that is still written has the same lines in all passes.
func TestGrowingFile(t *testing.T) {
	files := capturedIn(t, burst()...)
	r := &run{Options: &Options{Files: files}, ctx: t.Context(), sizes: map[string]int64{}}
	for _, pass := range []string{"first", "second"} {
		n := 0
		if _, err := r.pass(pass, func(*line) error { n++; return nil }); err != nil || n != 29 {
			t.Errorf("%s pass: %d lines, %v", pass, n, err)
		}
		f, err := os.OpenFile(files[0], os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(ask(time.Hour, "a", "") + "\n")
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWrongInput(t *testing.T) {
	good := ask(0, "a", "")
	access := `{"start":"` + stamp(0) + `","tenant":"a"}`
	log := func(domain, descriptor, time string) Mapping {
		return Mapping{Domain: domain, Descriptors: []string{descriptor}, Time: time}
	}
	for _, c := range []struct {
		name  string
		lines []string
		opt   Options
		want  string
	}{
		{"empty", []string{""}, Options{}, "the files are empty"},
		{"too many broken lines", []string{"x", "y", good}, Options{MaxBad: 1},
			":2: column 1: want '{'\n2 broken lines are more than"},
		{"only broken lines", []string{"x"}, Options{MaxBad: 1}, "no line could be read: "},
		{"from after the end", []string{good}, Options{From: start0.Add(time.Hour)},
			"the last one was at 2026-01-31T23:59:00Z"},
		{"no domain", []string{access}, Options{Log: log("", "tenant={tenant}", "start")}, "--domain is missing"},
		{"no time", []string{access}, Options{Log: log("shop", "tenant={tenant}", "")}, "--time is missing"},
		{"no descriptor", []string{access}, Options{Log: Mapping{Domain: "shop", Time: "start"}}, "--descriptor is missing"},
		{"open brace", []string{access}, Options{Log: log("shop", "tenant={tenant", "start")}, "a { without a }"},
		{"filter", []string{access}, Options{Log: log("shop", "tenant={tenant|upper}", "start")}, `unknown filter "upper"`},
		{"misspelt field", []string{access}, Options{Log: log("shop", "tenant={tennant}", "start")},
			`no line has the field "tennant"; did you mean "tenant"?; the first line has start, tenant`},
		{"misspelt time", []string{access}, Options{Log: log("shop", "tenant={tenant}", "time"), MaxBad: 5},
			`no line has the field "time"`},
	} {
		c.opt.Files, c.opt.New = capturedIn(t, c.lines...), perMinute(t, 4)
		if _, err := Run(t.Context(), c.opt); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	dir := t.TempDir()
	_, err := Run(t.Context(), Options{Files: []string{dir}, New: perMinute(t, 4)})
	if err == nil || err.Error() != dir+" is a directory; name the files in it" {
		t.Errorf("a directory: %v", err)
	}
}

// A page says the same, and names in it are text.
func TestPage(t *testing.T) {
	hostile := `<script>alert(1)</script>`
	var list []string
	for i := range 6 {
		list = append(list, ask(time.Duration(i)*time.Second, hostile, ""))
	}
	files := capturedIn(t, list...)
	hostileRules := rules(t, "limits: [{name: \"</svg><img src=x>\", algorithm: fixed_window, limit: 2, window: 1m}]")
	r := mustRun(t, Options{Files: files, New: hostileRules, Top: 3})
	r.Keys[0].Key = hostile // as if names were not escaped before
	var out bytes.Buffer
	if err := WriteHTML(&out, r); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, no := range []string{"<script", "<img", "http://", "https://", "url("} {
		if strings.Contains(text, no) {
			t.Errorf("the page has %s", no)
		}
	}
	for _, want := range []string{"&lt;script&gt;", "<polyline", "would fit with 6", "limit after 2"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %s:\n%s", want, text)
		}
	}
}

func TestAllowance(t *testing.T) {
	for _, c := range []struct {
		text            string
		refused, of     int64
		exceeded, valid bool
	}{
		{"newly-refused=0", 1, 1000, true, true}, {"newly-refused=0", 0, 1000, false, true},
		{"newly-refused=5", 5, 1000, false, true}, {"newly-refused=5", 6, 1000, true, true},
		{"newly-refused=0.1%", 1, 1000, false, true}, {"newly-refused=0.1%", 2, 1000, true, true},
		{"newly-refused=101%", 0, 0, false, false}, {"newly-refused=0.5", 0, 0, false, false},
		{"refused=5", 0, 0, false, false}, {"newly-refused", 0, 0, false, false}, {"newly-refused=-1%", 0, 0, false, false},
		{"newly-refused=NaN%", 0, 0, false, false},
	} {
		a, err := ParseAllowance(c.text)
		if (err == nil) != c.valid || err == nil && a.Exceeded(c.refused, c.of) != c.exceeded {
			t.Errorf("%s, %d of %d: %v, %v", c.text, c.refused, c.of, a, err)
		}
	}
}

func TestTimes(t *testing.T) {
	var c clock
	want := time.Date(2026, 2, 1, 3, 4, 5, 120_000_000, time.UTC)
	for _, text := range []string{"2026-02-01T03:04:05.12Z", "2026-02-01T05:04:05.120+02:00", "1769915045.120",
		"1769915045120",
		"1769915045120000", "2026-02-01T03:04:05.120000000Z"} {
		if at, err := c.read([]byte(text)); err != nil || !at.Time().Equal(want) {
			t.Errorf("%s: %v, %v", text, at.Time(), err)
		}
	}
	for _, text := range []string{"", "yesterday", "-1", "1e300", "NaN", "2026-02-30T00:00:00Z", "2026-02-01T24:00:00Z"} {
		if at, err := c.read([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, at)
		}
	}
}

// A line may have the cost of a request without its end: that cost counts, not an average.
func TestCostWithoutAnEnd(t *testing.T) {
	set := rules(t, "reserve: {amount: estimate, default: 100, max: 400, ttl: 1h}, "+
		"limits: [{algorithm: fixed_window, limit: 1000, window: 24h}]")
	lines := []string{ask(0, "a", `,"estimate":400,"cost":10,"until":"`+stamp(time.Second)+`"`)}
	start := 20 * time.Minute // on the next day
	for i := range 4 {
		lines = append(lines, ask(start+time.Duration(i)*time.Minute, "a", `,"estimate":400,"cost":300`))
	}
	r := mustRun(t, Options{Files: capturedIn(t, lines...), New: set})
	if r.Assumed != 0 || r.RefusedNew != 1 { // three times 300 leave no room for 400
		t.Errorf("%d reservations are of assumed costs, %d requests are refused: %+v", r.Assumed, r.RefusedNew, r)
	}
}

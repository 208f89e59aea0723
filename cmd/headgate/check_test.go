package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
)

const sharedRules = `domain: example
descriptors:
  - key: client
    rate_limit: {unit: year, requests_per_unit: 100, local_share: 10}
`

// headgate check says how far a limit can be off for its local_share.
func TestCheckLocalShare(t *testing.T) {
	var out bytes.Buffer
	ctx := context.Background()
	if code := run(ctx, []string{"check", writeRules(t, sharedRules)}, strings.NewReader(""), &out, &out); code != 0 {
		t.Errorf("exit code %d", code)
	}
	const want = "ok: 1 rule in 1 domain\n" +
		"example/client: limit, local_share 10: up to 9 × replicas of 100 may be refused too early in each window of 8760h;" +
		" never more than 100 pass\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	out.Reset()
	file := writeRules(t, strings.Replace(sharedRules, "local_share: 10", "local_share: 101", 1))
	if code := run(ctx, []string{"check", file}, strings.NewReader(""), &out, &out); code != 1 || !strings.Contains(
		out.String(), ":4:67: local_share 101 is more than the limit ever has room for, 100 (at example/client)") {
		t.Errorf("exit code %d: %s", code, &out)
	}
	out.Reset()
	const clean = `{"files":1,"domains":1,"rules":1,"problems":[]}`
	if code := run(ctx, []string{"check", "--format", "json", writeRules(t, sharedRules)}, strings.NewReader(""), &out,
		&out); code != 0 || strings.Join(strings.Fields(out.String()), "") != clean {
		t.Errorf("exit code %d: %s", code, &out)
	}
}

// --strict turns warnings, such as one of a rule without a limit, into errors.
func TestCheckStrictFailsOnWarnings(t *testing.T) {
	file := writeRules(t, "domain: shop\ndescriptors:\n- key: k\n")
	const want = ": warning: no limit: "
	code, out := headgate(t, "check", file)
	if code != 0 || !strings.Contains(out, want) || !strings.Contains(out, "ok: ") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := headgate(t, "check", "--strict", file); code != exitProblems || !strings.Contains(out, want) ||
		strings.Contains(out, "ok: ") {
		t.Errorf("strict: exit code %d: %s", code, out)
	}
	if code, out := headgate(t, "check", "--strict", writeRules(t, sharedRules)); code != 0 {
		t.Errorf("strict, without warnings: exit code %d: %s", code, out)
	}
}

// headgate check knows what the backend that is to keep the rules promises.
func TestCheckFindsLimitsThatTheBackendCannotKeep(t *testing.T) {
	file := writeRules(t, "domain: shop\ndescriptors:\n- {key: k, limits: [{algorithm: sliding_log, limit: 9000000, "+
		"window: 24h}]}\n")
	if code, out := headgate(t, "check", file, "--backend", "redis://h"); code != exitProblems ||
		!strings.Contains(out, file+":3: ") || !strings.Contains(out, "cannot keep this limit") {
		t.Errorf("exit code %d: %s", code, out)
	}
	month := writeRules(t, "domain: shop\ndescriptors:\n- {key: k, rate_limit: {unit: month, requests_per_unit: 5, "+
		"calendar: true}}\n")
	if code, out := headgate(t, "check", month, "--backend", "redis://h?layout=envoy"); code != exitProblems ||
		!strings.Contains(out, "has no windows of the calendar") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := headgate(t, "serve", "--example", "--calendar-months", "--backend", "redis://h?layout=envoy", "--grpc",
		"127.0.0.1:0"); code != exitError || !strings.Contains(out, "--calendar-months: ") {
		t.Errorf("months that the backend cannot keep: exit code %d: %s", code, out)
	}
	if code, out := headgate(t, "check", file, "--backend", "mongodb://h"); code != exitProblems ||
		!strings.Contains(out, "--backend: ") {
		t.Errorf("an unknown backend: exit code %d: %s", code, out)
	}
}

// With layout=envoy it finds each rule for which envoyproxy/ratelimit has no counter.
func TestCheckFindsRulesWithoutACounterInTheReference(t *testing.T) {
	const shared = "redis://h?layout=envoy"
	for rule, want := range map[string]string{
		"limits: [{algorithm: sliding_window, limit: 9, " +
			"window: 1m}]": "has no sliding_window; memory",
		"limits: [{algorithm: token_bucket, " +
			"rate: 9/s}]": "has no token_bucket",
		"limits: [{algorithm: sliding_log, limit: 9, window: 1m, " +
			"counter: value}]": "has no sliding_log",
		"limits: [{algorithm: fixed_window, limit: 9, " +
			"window: 15m}]": "keeps windows of 1s, 1m, 1h, 24h, 168h, 720h and 8760h only, not 15m",
		"limits: [{algorithm: fixed_window, limit: 9, " +
			"window: 100ms}]": "keeps time to 1s, window 100ms is shorter",
		"limits: [{algorithm: fixed_window, limit: 9, window: 1m}, {algorithm: fixed_window, limit: 99, " +
			"window: 1h}]": "which has none for several limits in one rule: leave them out as long as both decide",
		"limits: [{algorithm: fixed_window, limit: 9, window: 1m, " +
			"counter: value}]": "which has none for counter: value",
		"limits: [{algorithm: fixed_window, limit: 4294967296, " +
			"window: 1m}]": "only up to 4294967295 units",
		"concurrency: [{threshold: 50, response: " +
			"{statusCode: 429}}]": "has no concurrency",
		"overflow: debt, limits: [{algorithm: fixed_window, limit: 9, " +
			"window: 1m}]": "has no overflow debt",
		"rate_limit: {unit: day, requests_per_unit: 9}": "",
		"rate_limit: {unit: year, requests_per_unit: 4294967295}, overflow: saturate, shadow_mode: true, " +
			"detailed_metric: true": "",
		"limits: [{algorithm: fixed_window, limit: 9, window: 24h}]": "",
		"rate_limit: {unlimited: true}":                              "",
	} {
		file := writeRules(t, "domain: shop\ndescriptors:\n- {key: k, "+rule+"}\n")
		code, out := headgate(t, "check", file, "--backend", shared)
		switch {
		case want == "":
			if code != 0 {
				t.Errorf("%s: exit code %d: %s", rule, code, out)
			}
		case code != exitProblems || !strings.Contains(out, file+":3: ") || !strings.Contains(out, want) || !strings.Contains(
			out, "redis (layout=envoy)"):
			t.Errorf("%s: exit code %d, want %q: %s", rule, code, want, out)
		}
	}
	file := writeRules(t, "domain: shop\nresources:\n- {method: GET, path: /a, limits: [{algorithm: fixed_window, "+
		"limit: 9, window: 1m}]}\n")
	if code, out := headgate(t, "check", file, "--backend", shared); code != exitProblems ||
		!strings.Contains(out, file+":3: ") || !strings.Contains(out, "has none for rules by method and path") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// A command whose answer cannot be written, as on a full disk, fails and says so.
func TestLostAnswersAreErrors(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range []string{"check ../../examples/envoy/rules.yaml", "version", "--help",
		"check --format json ../../examples/envoy/rules.yaml"} {
		var errOut strings.Builder
		if code := run(t.Context(), strings.Fields(args), nil, full, &errOut); code == exitOK ||
			!strings.Contains(errOut.String(), "cannot write the answer: write /dev/full: no space left on device") {
			t.Errorf("%s: code %d, %q", args, code, errOut.String())
		}
	}
}

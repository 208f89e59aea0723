package main

import (
	"bytes"
	"context"
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
		"example/client: limit, local_share 10: up to 9 × replicas of 100 may be refused too early in each window of 8760h; never more than 100 pass\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	out.Reset()
	file := writeRules(t, strings.Replace(sharedRules, "local_share: 10", "local_share: 101", 1))
	if code := run(ctx, []string{"check", file}, strings.NewReader(""), &out, &out); code != 1 || !strings.Contains(out.String(), ":4:67: local_share 101 is more than the limit ever has room for, 100 (at example/client)") {
		t.Errorf("exit code %d: %s", code, &out)
	}
	out.Reset()
	if code := run(ctx, []string{"check", "--format", "json", writeRules(t, sharedRules)}, strings.NewReader(""), &out, &out); code != 0 || out.String() != "[]\n" {
		t.Errorf("exit code %d: %s", code, &out)
	}
}

// headgate check knows what the backend that is to keep the rules promises.
func TestCheckFindsLimitsThatTheBackendCannotKeep(t *testing.T) {
	file := writeRules(t, "domain: shop\ndescriptors:\n- {key: k, limits: [{algorithm: sliding_log, limit: 9000000, window: 24h}]}\n")
	if code, out := headgate(t, "check", file, "--backend", "redis://h"); code != exitProblems || !strings.Contains(out, file+":3: ") || !strings.Contains(out, "cannot keep this limit") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := headgate(t, "check", file, "--backend", "mongodb://h"); code != exitError || !strings.Contains(out, "--backend: ") {
		t.Errorf("an unknown backend: exit code %d: %s", code, out)
	}
}

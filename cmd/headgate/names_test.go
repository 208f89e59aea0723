package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Programs of envoyproxy/ratelimit take the arguments that they take there.
func TestNamesOfTheReference(t *testing.T) {
	for given, want := range map[string]string{
		"/bin/ratelimit --print-config": "ratelimit --print-config",
		"ratelimit_client -dial_string h:1 -domain d -descriptors a=b,c=d --descriptors=e=f": "ask --hits 1 --addr h:1 -- " +
			"d a=b,c=d e=f",
		"ratelimit_client -descriptors a=b -domain=d -grpc-use-tls -grpc-server-ca-file ca": "ask --hits 1 --tls=true " +
			"--tls-ca ca -- d a=b",
		"ratelimit_client -domain d -unknown":                                    "ask --hits 1 --unknown -- d",
		"/bin/ratelimit_config_check -merge_domain_configs -config_dir /nowhere": "check --merge-domains=true /nowhere",
		"headgate serve": "serve",
	} {
		if got := strings.Join(arguments(strings.Fields(given)), " "); got != want {
			t.Errorf("%s: %q, want %q", given, got, want)
		}
	}
}

// ratelimit_config_check reads files of every name, and fails where one is wrong.
func TestConfigCheckReadsAllFiles(t *testing.T) {
	dir := t.TempDir()
	check := func(text string) (code int, out string) {
		if err := os.WriteFile(filepath.Join(dir, "rules"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		code = run(context.Background(), arguments([]string{"ratelimit_config_check", "-config_dir", dir}), nil, &b, &b)
		return code, b.String()
	}
	code, out := check("domain: d\ndescriptors: [{key: a*, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	if code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if code, out := check("domain: d\ndescriptors: [{key: a, rate_limit: {unit: eon}}]\n"); code != 1 ||
		!strings.Contains(out, "rules:2") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

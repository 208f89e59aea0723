package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// unprivileged returns a program that is headgate in a process that may not write what root owns, and a directory that
// it may read.
func unprivileged(t *testing.T) (path, dir string) {
	t.Helper()
	dir = t.TempDir()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(os.Chmod(filepath.Dir(dir), 0o755))
	if os.Getuid() != 0 {
		return program, dir
	}
	text, err := os.ReadFile(program)
	do(err)
	binary := filepath.Join(dir, "headgate")
	do(os.WriteFile(binary, text, 0o755))
	path = filepath.Join(dir, "headgate-as-nobody")
	script := "#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups " + binary + " \"$@\"\n"
	do(os.WriteFile(path, []byte(script), 0o755))
	return path, dir
}

// TestPoliciesThatCanOnlyBeRead: a SQLite file that can only be read is enough to start with and to decide, also if
// its directory cannot be written. Changes get 503, the status says why, and what another process changes is in force.
func TestPoliciesThatCanOnlyBeRead(t *testing.T) {
	testenv.UseSQLite(t)
	for _, directory := range []os.FileMode{0o555, 0o777} {
		t.Run(directory.String(), func(t *testing.T) {
			t.Parallel()
			testReadOnlyPolicies(t, directory)
		})
	}
}

func testReadOnlyPolicies(t *testing.T, directory os.FileMode) {
	as, dir := unprivileged(t)
	data := filepath.Join(dir, "data")
	file := filepath.Join(data, "policies.db")
	protect := func(dir, of os.FileMode) {
		t.Helper()
		for name, mode := range map[string]os.FileMode{data: dir, file: of} {
			if err := os.Chmod(name, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	set := func(limit string) {
		t.Helper()
		if code, out, errOut := testenv.RunProgram(t, program, nil, "policy", "set", "user:a", "--limit", limit, "--window",
			"1h", "--policies", "sqlite:"+file); code != 0 {
			t.Fatal(out + errOut)
		}
	}
	if code, out, errOut := testenv.RunProgram(t, program, nil, "migrate", "--policies", "sqlite:"+file); code != 0 {
		t.Fatal(out + errOut)
	}
	set("5")
	protect(directory, 0o444)
	t.Cleanup(func() { protect(0o755, 0o644) })
	rules := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(rules, []byte("domain: e2e\ndescriptors: [{key: user, policy: 'user:{user}', rate_limit: "+
		"{unit: hour, requests_per_unit: 1000}}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const token = "0123456789abcdef0123456789abcdef"
	hg := testenv.ServeHeadgate(t, as, "--rules", rules, "--policies", "sqlite:"+file, "--admin-token", token)
	admin := func(method, path, body string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+hg.HTTP+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(text)
	}
	limited := func(limit string) func() string {
		return func() string {
			_, out, errOut := testenv.RunProgram(t, program, nil, "ask", "--addr", hg.GRPC, "e2e", "user=a")
			if !strings.Contains(out, "limit="+limit+"/") {
				return out + errOut
			}
			return ""
		}
	}
	testenv.Eventually(t, 10*time.Second, "decide by the policy", limited("5"))
	const policy = `{"key":"user:b","algorithm":"fixed_window","limit":1,"window":"1m"}`
	resp, text := admin(http.MethodPost, "/admin/policies", policy)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "" ||
		!strings.Contains(text, "the database of policies is read-only") {
		t.Errorf("a change: %s, Retry-After %q: %s", resp.Status, resp.Header.Get("Retry-After"), text)
	}
	if resp, text = admin(http.MethodGet, "/admin/policies/user%3Aa", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("to read a policy: %s: %s", resp.Status, text)
	}
	if _, text = admin(http.MethodGet, "/admin/status", ""); !strings.Contains(text, `"status":"READY"`) ||
		!strings.Contains(text, "; none can be changed: the database is read-only") {
		t.Errorf("the status: %s", text)
	}
	for i := range 3 {
		limit := fmt.Sprint(6 + i)
		protect(0o755, 0o644)
		set(limit)
		protect(directory, 0o444)
		testenv.Eventually(t, 10*time.Second, "follow the file", limited(limit))
	}
}

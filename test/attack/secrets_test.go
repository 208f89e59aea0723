package attack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// marker is in each secret of the test below. Nothing that headgate says may have it.
const marker = "gEhEiMnIs"

// secretValues are the values of settings that have secrets, where a plain text does not do, and the flags that each
// needs besides. Nothing listens at port 1. A new secret setting without a row fails the test if it is no plain text.
var secretValues = map[string]struct {
	value string
	with  []string
}{
	"backend": {value: "redis://:" + marker + "@127.0.0.1:1"},
	"backend-per-second": {value: "redis://:" + marker + "@127.0.0.1:1",
		with: []string{"--backend", "redis://127.0.0.1:1"}},
	"policies":          {value: "postgres://u:" + marker + "@127.0.0.1:1/d"},
	"policies-password": {value: marker, with: []string{"--policies", "postgres://u@127.0.0.1:1/d"}},
	"slots":             {value: "postgres://u:" + marker + "@127.0.0.1:1/d"},
	"slots-password":    {value: marker, with: []string{"--slots", "postgres://u@127.0.0.1:1/d"}},
	"xds-header":        {value: "authorization: " + marker, with: []string{"--xds", "127.0.0.1:1", "--xds-wait", "0s"}},
}

// TestNothingTellsSecrets: each secret of the table of settings, as a flag and as a variable, is in no endpoint, no
// line of the log, and not in what commands print.
func TestNothingTellsSecrets(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate often")
	}
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("domain: attack\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, s := range config.Settings().Rows {
		if !s.HasSecret() {
			continue
		}
		found++
		c, ok := secretValues[s.Name]
		if !ok {
			c.value = strings.Repeat(marker, 3)
		}
		if s.Name != "xds-header" {
			c.with = append(c.with, "--rules", rules)
		}
		variable := settings.EnvName(config.Prefix, s.Name) + "=" + c.value
		for how, with := range map[string]struct{ flags, env []string }{
			"flag":       {flags: []string{"--" + s.Name, c.value}},
			"flag=value": {flags: []string{"--" + s.Name + "=" + c.value}},
			"variable":   {env: []string{variable}},
		} {
			if how == "flag=value" && !random.Long() && s.Name != "backend" {
				continue // as the flag with a space
			}
			t.Run(s.Name+" as a "+how, func(t *testing.T) {
				t.Parallel()
				hg := testenv.ServeHeadgate(t, withVariables(t, with.env), slices.Concat(c.with, with.flags)...)
				token := ""
				if s.Name == "admin-token" {
					token = c.value
				}
				tellsNothing(t, hg, token, with.env)
			})
		}
	}
	if found < len(secretValues) {
		t.Errorf("%d settings have secrets, and the test knows %d", found, len(secretValues))
	}
}

// withVariables returns a script that runs headgate with variables, which testenv would leave out.
func withVariables(t *testing.T, env []string) string {
	script := filepath.Join(t.TempDir(), "with-variables")
	text := "#!/bin/sh\n"
	for _, e := range env {
		text += "export '" + e + "'\n"
	}
	if err := os.WriteFile(script, []byte(text+"exec "+program+" \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return script
}

// tellsNothing looks for the marker in all that a process says, and in what commands print with the same variables.
func tellsNothing(t *testing.T, hg *testenv.Headgate, token string, env []string) {
	t.Helper()
	said := map[string]string{}
	for _, path := range []string{"/", "/stats", "/rlconfig", "/metrics", "/debug/pprof/", "/debug/pprof/cmdline",
		"/debug/pprof/goroutine?debug=2", "/debug/pprof/goroutine?debug=1", "/debug/pprof/heap?debug=1",
		"/debug/pprof/allocs", "/debug/pprof/trace?seconds=0.1", "/debug/pprof/symbol", "/debug/nothing"} {
		said["debug "+path] = fetched(t, "http://"+hg.Debug+path, token)
	}
	if !strings.Contains(said["debug /stats"], "serve") || !strings.Contains(said["debug /debug/pprof/cmdline"], "serve") {
		t.Error("the command line is missing")
	}
	for _, path := range []string{"/", "/healthcheck", "/readyz?verbose", "/json", "/limits", "/policies", "/slots",
		"/api/v1/slots", "/api/v1/configs", "/api/v1/windows", "/admin/status", "/admin/metrics", "/admin/rules",
		"/admin/reloads", "/admin/coverage", "/admin/policies", "/admin/openapi.json", "/admin/rate-limit/configs"} {
		said[path] = fetched(t, "http://"+hg.HTTP+path, token)
	}
	commands := [][]string{{"status", "--addr", "http://" + hg.HTTP}, {"status"}, {"ratelimit", "--print-config"},
		{"check"}, {"migrate"}, {"slots", "config", "list"}, {"policy", "list"}, {"serve", "--help"}}
	if env == nil {
		commands = nil // they know nothing of the flags of another process
	}
	for _, command := range commands {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		child := exec.CommandContext(ctx, program, command...)
		child.Env = append(os.Environ(), env...)
		out, _ := child.CombinedOutput() // most fail: they have no rules, or no token
		said[strings.Join(command, " ")] = string(out)
	}
	time.Sleep(300 * time.Millisecond) // for what fails in the background
	said["the log"] = hg.Log()
	for where, text := range said {
		if at := strings.Index(text, marker); at >= 0 {
			t.Errorf("%s tells it: …%s…", where, text[max(0, at-60):min(len(text), at+60)])
		}
	}
}

func fetched(t *testing.T, url, token string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Do(r)
	if err != nil {
		t.Errorf("%s: %v", url, err)
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s: %v", url, err)
	}
	return fmt.Sprint(resp.Header, string(text))
}

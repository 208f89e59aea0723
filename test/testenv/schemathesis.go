package testenv

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// RunSchemathesis sends a server what its OpenAPI document at url allows, and what it does not, and has
// the answers compared with the document: the statuses, headers and schemas, that what is wrong is
// refused and what is right is not. The hooks are in testdata/hooks.py of the test's package; args says
// how much is tried.
func RunSchemathesis(t testing.TB, url, token, args string) {
	t.Helper()
	program := UseClient(t, Schemathesis)
	hooks, err := filepath.Abs("testdata/hooks.py")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	all := append([]string{"run", url, "--checks", "all", "--workers", "1",
		"--request-timeout", "60", "--suppress-health-check", "all", "--no-color",
		"--header", "Authorization: Bearer " + token}, strings.Fields(args)...)
	cmd := exec.CommandContext(ctx, program, all...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "SCHEMATHESIS_HOOKS="+hooks, "PYTHONDONTWRITEBYTECODE=1")
	cmd.WaitDelay = 10 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("schemathesis: %v\n%s", err, out)
	}
}

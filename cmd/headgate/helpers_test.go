package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/serving"
)

// headgate runs a command and returns its exit code and what it printed.
func headgate(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(""), &out, &out)
	return code, out.String()
}

// startServe runs `headgate serve` inside the test.
func startServe(t *testing.T, flags ...string) *serving.Server {
	t.Helper()
	serve := func(ctx context.Context, flags []string, log io.Writer) error {
		if code := run(ctx, append([]string{"serve"}, flags...), strings.NewReader(""), io.Discard, log); code != exitOK {
			return exitCode(code)
		}
		return nil
	}
	return serving.Start(t, serve, flags...)
}

const adminToken = "0123456789abcdef0123456789abcdef"

func writeRules(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

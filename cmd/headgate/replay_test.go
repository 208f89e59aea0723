//go:build !rlsonly

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestExitCodesOfReplay(t *testing.T) {
	rules := func(n string) string {
		return writeRules(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: minute, requests_per_unit: "+n+"}}]\n")
	}
	file := filepath.Join(t.TempDir(), "capture.jsonl")
	line := `{"t":"2026-01-01T00:00:00Z","domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"}]}]}` + "\n"
	if err := os.WriteFile(file, []byte(strings.Repeat(line, 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(t.TempDir(), "page.html")
	few, many, broken := rules("4"), rules("20"), rules("-4")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{file, "--rules", many}, exitOK, "0 newly refused"},
		{[]string{file, "--rules", few, "--against", few}, exitOK, "d/a   6            6            +0"},
		{[]string{file, "--rules", few, "--against", many, "--html", page}, exitNo, "d|a=1  d/a   6"},
		{[]string{file, "--rules", few, "--allow", "newly-refused=60%"}, exitOK, "6 newly refused"},
		{[]string{file, "--rules", few, "--allow", "newly-refused=5"}, exitNo, ""},
		{[]string{file, "--rules", few, "--format", "json"}, exitNo, `"would_fit_with": 10`},
		{[]string{file}, exitProblems, "--rules is missing"},
		{[]string{file, "--rules", broken}, exitProblems, "--rules: "},
		{[]string{file, "--rules", few, "--allow", "5"}, exitProblems, "--allow: "},
		{[]string{file, "--rules", few, "--warm", "soon"}, exitProblems, `--warm: "soon"`},
		{[]string{file, "--rules", few, "--from", "today"}, exitProblems, `--from: "today"`},
		{[]string{file, "--rules", few, "--format", "xml"}, exitProblems, "--format must be text or json"},
		{[]string{few, "--rules", few, "--max-bad", "0"}, exitProblems, few + ":1: column 1"},
		{[]string{filepath.Join(t.TempDir(), "none"), "--rules", few}, exitError, "no such file"},
		{[]string{"-", "--rules", few}, exitProblems, "the files are empty"},
		{[]string{file, "--rules", few, "--html", t.TempDir()}, exitError, "--html: "},
		{[]string{"--rules", few}, exitProblems, "arguments are missing"},
	} {
		code, out := headgate(t, append([]string{"replay"}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("replay %v exits with %d, want %d and %q:\n%s", c.args, code, c.code, c.says, out)
		}
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "would fit with 10") {
		t.Errorf("%v:\n%s", err, text)
	}
}

func TestInterruptedReplaySaysSo(t *testing.T) {
	rules := writeRules(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: minute, requests_per_unit: 1}}]\n")
	file := filepath.Join(t.TempDir(), "capture.jsonl")
	line := `{"t":"2026-01-01T00:00:00Z","domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"}]}]}` + "\n"
	if err := os.WriteFile(file, []byte(strings.Repeat(line, 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if code := run(ctx, []string{"replay", file, "--rules", rules}, nil, &out, &out); code != exitError ||
		out.String() != "headgate: interrupted\n" {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}

// A command that waits for its input ends after a signal.
func TestCommandsThatReadEndAfterASignal(t *testing.T) {
	rules := writeRules(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: minute, requests_per_unit: 1}}]\n")
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"replay --rules " + rules + " -", "replay --rules " + rules + " " + fifo,
		"test " + fifo} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			in, quiet := io.Pipe()
			defer quiet.Close()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			var out, said bytes.Buffer
			if code := run(ctx, strings.Fields(args), in, &out, &said); code != exitError ||
				said.String() != "headgate: interrupted\n" {
				t.Errorf("exit code %d: %s", code, said.String())
			}
		})
	}
}

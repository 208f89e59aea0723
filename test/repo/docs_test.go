package repo

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors/overlay"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// A block is a fenced code block of a Markdown file.
type block struct {
	file string
	line int
	lang string
	test string // what the comment `<!-- test: … -->` above it says
	text string
}

// documents returns the Markdown files of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*/*.md", "backends/*/README.md",
		"charts/*/README.md"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, found...)
	}
	if len(list) < 5 {
		t.Fatalf("only %d documents found", len(list))
	}
	return list
}

var testComment = regexp.MustCompile(`^<!-- test: (.*) -->$`)

func blocks(t *testing.T, file string) []block {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []block
	var open *block
	comment := ""
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for line := 1; s.Scan(); line++ {
		text := s.Text()
		switch fence := strings.TrimSpace(text); {
		case open == nil && strings.HasPrefix(fence, "```"):
			open = &block{file: file, line: line, lang: strings.TrimPrefix(fence, "```"), test: comment}
		case open != nil && fence == "```":
			list = append(list, *open)
			open, comment = nil, ""
		case open != nil:
			open.text += text + "\n"
		case testComment.MatchString(text):
			comment = testComment.FindStringSubmatch(text)[1]
		case fence != "":
			comment = ""
		}
	}
	if err := s.Err(); err != nil || open != nil {
		t.Fatalf("%s: %v, block left open: %v", file, err, open != nil)
	}
	return list
}

// Rules in documents load.
func TestDocumentedRules(t *testing.T) {
	n := 0
	for _, file := range documents(t) {
		for _, b := range blocks(t, file) {
			if b.lang != "yaml" || !regexp.MustCompile(`(?m)^domain:`).MatchString(b.text) || strings.HasPrefix(b.test, "bad") {
				continue
			}
			n++
			source := rulefile.Source{Name: fmt.Sprintf("%s:%d", file, b.line), Data: []byte(b.text)}
			if set, problems := rulefile.Load([]rulefile.Source{source}, rulefile.Options{}); set == nil {
				t.Errorf("%s:%d: %v", file, b.line, problems)
			}
		}
	}
	if n < 3 {
		t.Errorf("only %d blocks of rules found", n)
	}
}

// Overlays in documents load.
func TestDocumentedOverlays(t *testing.T) {
	n := 0
	for _, file := range documents(t) {
		for _, b := range blocks(t, file) {
			if b.lang != "yaml" || !strings.HasPrefix(b.text, "overlay:") {
				continue
			}
			n++
			source := rulefile.Source{Name: fmt.Sprintf("%s:%d", file, b.line), Data: []byte(b.text)}
			if o, problems := overlay.Load([]rulefile.Source{source}); o == nil {
				t.Errorf("%s:%d: %v", file, b.line, problems)
			}
		}
	}
	if n < 1 {
		t.Error("no overlay found")
	}
}

// Commands in documents run. Each sh block says above it how, in a comment:
// "skip REASON", or a list of "background", "wait ADDR", "with-serve",
// `expect "TEXT"`, "exit CODE".
func TestDocumentedCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the service")
	}
	if err := testenv.DependOnSources("../.."); err != nil {
		t.Fatal(err)
	}
	n := 0
	program := "" // in the place of go run, which links it every time
	if !random.Long() {
		var err error
		if program, err = testenv.BuildHeadgate("../..", t.TempDir()); err != nil {
			t.Fatal(err)
		}
		program = asGoRun(t, program)
	}
	for _, file := range documents(t) {
		list := slices.DeleteFunc(blocks(t, file), func(b block) bool { return b.lang != "sh" })
		if len(list) == 0 {
			continue
		}
		n += len(list)
		t.Run(strings.ReplaceAll(strings.TrimPrefix(file, "../../"), "/", "_"), func(t *testing.T) {
			at := newStage(t, program)
			for _, b := range list {
				b.run(t, at)
			}
		})
	}
	if n < 3 {
		t.Errorf("only %d blocks of commands found", n)
	}
}

var (
	expectText = regexp.MustCompile(`expect "([^"]*)"`)
	exitWord   = regexp.MustCompile(`exit (\d+)`)
	waitWord   = regexp.MustCompile(`wait ([\d.:]+)`)
)

// A stage is where the commands of a document run: as they are written but for
// the ports, since another headgate may have the default ones. In the place of
// each comes a free port, in the text, which is what curl sees, and in the
// environment, where the service and its clients look. What make run keeps in the
// working directory or /tmp/shop goes to one of the test's own, and in the short form, a program that is built once
// takes the place of go run.
type stage struct {
	ports *strings.Replacer
	env   []string
}

func newStage(t *testing.T, program string) *stage {
	t.Helper()
	at, pairs := &stage{}, []string(nil)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "HEADGATE_") || strings.HasPrefix(e, "HEADGATE_TEST") {
			at.env = append(at.env, e)
		}
	}
	database := "sqlite:" + filepath.Join(t.TempDir(), "headgate.db")
	pairs = append(pairs, "sqlite:headgate.db", database, "/tmp/shop", filepath.Join(t.TempDir(), "shop"))
	at.env = append(at.env, "HEADGATE_DRAIN_DELAY=0s", "ARGS=--slots "+database+" --policies "+database)
	for setting, port := range map[string]string{"GRPC": "8081", "SERVICES": "8082", "HTTP": "8080", "DEBUG": "6070"} {
		free := strconv.Itoa(testenv.FreePort(t))
		at.env = append(at.env, "HEADGATE_"+setting+"=127.0.0.1:"+free)
		for _, host := range []string{"127.0.0.1:", "localhost:"} {
			pairs = append(pairs, host+port, host+free)
		}
	}
	if program != "" {
		pairs = append(pairs, "go run ./cmd/headgate", program)
	}
	at.ports = strings.NewReplacer(pairs...)
	return at
}

// asGoRun returns a program that runs another one and fails as go run does: with 1, and the status in words.
func asGoRun(t *testing.T, program string) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "headgate")
	text := "#!/bin/sh\n" + program + ` "$@" || { echo "exit status $?" >&2; exit 1; }` + "\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return script
}

// command returns a command in its own group of processes: go run and make have
// children.
func (at *stage) command(text string) *exec.Cmd {
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", at.ports.Replace(text))
	cmd.Dir, cmd.Env = "../..", at.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

func (b block) run(t *testing.T, at *stage) {
	t.Helper()
	switch {
	case b.test == "":
		t.Errorf("%s:%d: say above the block how to test it: <!-- test: … -->", b.file, b.line)
		return
	case strings.HasPrefix(b.test, "skip "):
		t.Logf("%s:%d: not run: %s", b.file, b.line, strings.TrimPrefix(b.test, "skip "))
		return
	case strings.Contains(b.test, "background"):
		b.start(t, at, b.text)
		return
	}
	if strings.Contains(b.test, "with-serve") {
		stop := b.start(t, at, "go run ./cmd/headgate serve --example")
		defer stop()
	}
	var out bytes.Buffer
	cmd := at.command(b.text)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(patience, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer kill.Stop()
	err := cmd.Wait()
	want := "0"
	if m := exitWord.FindStringSubmatch(b.test); m != nil {
		want = m[1]
	}
	if got := fmt.Sprint(cmd.ProcessState.ExitCode()); got != want {
		t.Errorf("%s:%d: exit code %s, want %s (%v)\n%s", b.file, b.line, got, want, err, out.String())
	}
	for _, m := range expectText.FindAllStringSubmatch(b.test, -1) {
		if !strings.Contains(out.String(), m[1]) {
			t.Errorf("%s:%d: no %q in the output:\n%s", b.file, b.line, m[1], out.String())
		}
	}
}

// start runs command until the test or the returned function ends it, and
// waits until it answers.
func (b block) start(t *testing.T, at *stage, command string) (stop func()) {
	t.Helper()
	addr := "127.0.0.1:8081"
	if m := waitWord.FindStringSubmatch(b.test); m != nil {
		addr = m[1]
	}
	addr = at.ports.Replace(addr)
	var out testenv.Log
	cmd := at.command(command)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		kill := time.AfterFunc(20*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		defer kill.Stop()
		_ = cmd.Wait()
	}
	t.Cleanup(stop)
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			return stop
		}
		if time.Now().After(deadline) {
			stop()
			t.Fatalf("%s:%d: %q does not answer on %s:\n%s", b.file, b.line, command, addr, out.String())
		}
	}
}

// patience is how long a command may take. The first one builds the program, on
// a machine that may be busy.
const patience = 5 * time.Minute

var (
	markdownLink    = regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`)
	markdownHeading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchors    = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors returns the names by which links reach the headings of a document, as
// GitHub makes them.
func anchors(t *testing.T, file string) map[string]bool {
	t.Helper()
	list := map[string]bool{}
	for _, m := range markdownHeading.FindAllStringSubmatch(string(readFile(t, file)), -1) {
		list[strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return list
}

// Links to files and to their headings lead somewhere.
func TestLinksLeadSomewhere(t *testing.T) {
	for _, file := range documents(t) {
		for _, m := range markdownLink.FindAllStringSubmatch(string(readFile(t, file)), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			to := file
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(file), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: link to %s leads nowhere", file, m[1])
			} else if m[2] != "" && !anchors(t, to)[m[2]] {
				t.Errorf("%s: %s has no heading #%s", file, to, m[2])
			}
		}
	}
}

var contributingPath = regexp.MustCompile("`((?:[a-z]+/)+[\\w.*]*)`")

// CONTRIBUTING.md names files and folders that exist.
func TestContributingNamesWhatExists(t *testing.T) {
	text := string(readFile(t, "../../CONTRIBUTING.md"))
	_, table, _ := strings.Cut(text, "## Where things go")
	table, _, _ = strings.Cut(table, "\n## ")
	paths := contributingPath.FindAllStringSubmatch(table, -1)
	if len(paths) < 10 {
		t.Fatalf("only %d paths are found", len(paths))
	}
	for _, p := range paths {
		if found, err := filepath.Glob(filepath.Join("../..", p[1])); err != nil || len(found) == 0 {
			t.Errorf("CONTRIBUTING.md names %s, which does not exist (%v)", p[1], err)
		}
	}
}

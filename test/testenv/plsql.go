package testenv

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"time"
)

// PLSQLText is a piece of Oracle's SQL or PL/SQL; a script's statements end with
// semicolons.
type PLSQLText struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// PLSQLErrors returns the syntax errors of texts by the grammar of PL/SQL, as
// "name:line:column message". The grammar is more lenient than Oracle: it finds
// what is certainly wrong.
func PLSQLErrors(tb TB, texts ...PLSQLText) []string {
	tb.Helper()
	path := UseClient(tb, PLSQLGrammar)
	list, err := json.Marshal(texts)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	var out, failure bytes.Buffer
	cmd := exec.Command(path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(list), &out, &failure
	if err := cmd.Start(); err != nil {
		tb.Fatalf("testenv: start %s: %v", path, err)
	}
	// The parser takes seconds for a text of some hundred lines.
	const limit = 5 * time.Minute
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err = cmd.Wait()
	found := strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' })
	// It exits with 1 if it found something.
	if exit := new(exec.ExitError); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1 && len(found) > 0) {
		tb.Fatalf("testenv: %s: %v (within %v)\n%s", path, err, limit, failure.String())
	}
	return found
}

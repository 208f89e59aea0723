package oracletest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A Text is a statement with a name to report it by.
type Text struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Grammar returns what the grammar's program says against the texts.
func Grammar(t *testing.T, list []Text) string {
	t.Helper()
	program := testenv.UseClient(t, testenv.PLSQLGrammar)
	input, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	var out, failure bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &failure
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("%s: %v: %s", program, err, &failure)
	}
	if (err != nil) != (out.Len() > 0) {
		t.Fatalf("%s says %q and ends with %v", program, &out, err)
	}
	return out.String()
}

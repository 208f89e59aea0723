package oracletest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A Text is a statement with a name to report it by.
type Text struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Grammar returns what the grammar's program says against the texts. It takes most of a minute for all of them: texts
// that it has accepted are noted beside the program, and not parsed again.
func Grammar(t *testing.T, list []Text) string {
	t.Helper()
	program := testenv.UseClient(t, testenv.PLSQLGrammar)
	accepted := acceptedBy(t, program)
	list = slices.DeleteFunc(slices.Clone(list), func(text Text) bool { return exists(accepted(text)) })
	if len(list) == 0 {
		return ""
	}
	found := parse(t, program, list)
	if found == "" {
		for _, text := range list {
			_ = os.WriteFile(accepted(text), nil, 0o600) // else it is parsed again
		}
	}
	return found
}

// acceptedBy returns where it is noted that the program has accepted a text: a file named by the sum of the text, in a
// folder named by that of what the program was made of.
func acceptedBy(t *testing.T, program string) func(Text) string {
	t.Helper()
	pin, err := os.ReadFile(filepath.Join(filepath.Dir(program), "PIN"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(filepath.Dir(program), fmt.Sprintf("accepted-%x", sha256.Sum256(pin)))
	_ = os.MkdirAll(dir, 0o755) // where it cannot be made, nothing is noted
	return func(text Text) string { return filepath.Join(dir, fmt.Sprintf("%x", sha256.Sum256([]byte(text.Text)))) }
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// parse has the program parse the texts, and returns what it says against them.
func parse(t *testing.T, program string, list []Text) string {
	t.Helper()
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

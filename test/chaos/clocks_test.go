//go:build chaos

package chaos

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// wrongBy is the environment variable by whose value, a duration of whole
// seconds, the clock of a program from buildWithWrongClock is ahead.
const wrongBy = "CHAOS_CLOCK_WRONG_BY"

// wrongClocks starts replicas whose clocks are 30 s apart.
func wrongClocks(t *testing.T) func(t *testing.T, number int, flags ...string) *testenv.Headgate {
	program := buildWithWrongClock(t)
	offsets := [replicas]string{"-30s", "0s", "30s"}
	return func(t *testing.T, number int, flags ...string) *testenv.Headgate {
		t.Setenv(wrongBy, offsets[number])
		s := testenv.StartHeadgate(t, program, flags...)
		t.Logf("the clock of replica %d is wrong by %s", number, offsets[number])
		return s
	}
}

// buildWithWrongClock builds headgate with a time package whose clock can be set
// wrong: no more than the calendar time, as on a machine that was never
// synchronized; durations and timers are right. Everything in the program sees
// it, and nothing of the program knows. There is no other way to give a process
// a calendar time of its own.
func buildWithWrongClock(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("go env GOROOT: %v", err)
	}
	std := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	const reads, offset = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "\tsec += wrongBy\n"
	if !bytes.Contains(source, []byte(reads)) {
		t.Fatalf("time.Now does not begin with %q in this version of Go: find out what it reads the clock with", reads)
	}
	source = bytes.Replace(source, []byte(reads), []byte(reads+offset), 1)
	added := `package time

import "syscall"

var wrongBy = func() int64 {
	value, _ := syscall.Getenv("` + wrongBy + `")
	d, err := ParseDuration(value)
	if err != nil {
		panic(err)
	}
	return int64(d / Second)
}()
`
	dir := filepath.Join(scratch, "wrong")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for name, content := range map[string][]byte{"time.go": source, "wrong.go": []byte(added)} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(std, name)] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := testenv.BuildHeadgate(sources, dir, "-overlay", file)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

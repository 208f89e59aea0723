package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A script that starts headgate with a reader of its log. The reader ends after the first line once the file "ended"
// exists.
const readerThatEnds = `#!/bin/sh
cd %[1]s && mkfifo log && (while read -r line; do echo "$line"; [ -e ended ] && exit; done <log) &
until [ -p %[1]s/log ]; do sleep 0.01; done
exec %[2]s "$@" >%[1]s/log 2>&1
`

// TestServiceOutlivesItsLogAndSession: the reader of the log ends, and later the process gets SIGHUP. headgate keeps
// running, reads its rules, and SIGTERM still ends it with exit code 0.
func TestServiceOutlivesItsLogAndSession(t *testing.T) {
	dir := t.TempDir()
	rules := func(limit string) string {
		return "domain: e2e\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: " + limit + "}}]\n"
	}
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return name
	}
	file := write("rules.yaml", rules("1"))
	script := write("headgate-with-reader", fmt.Sprintf(readerThatEnds, dir, program))
	hg := testenv.ServeHeadgate(t, script, "--rules", file)
	write("ended", "")
	limited := func(want string) func() string {
		return func() string {
			_, out, errOut := testenv.RunProgram(t, program, nil, "ask", "--addr", hg.GRPC, "e2e", "a=b")
			if !strings.Contains(out, want) {
				return out + errOut
			}
			return ""
		}
	}
	for _, limit := range []string{"2", "3"} {
		write("rules.yaml", rules("none")) // which the log reports
		time.Sleep(500 * time.Millisecond)
		write("rules.yaml", rules(limit))
		testenv.Eventually(t, 10*time.Second, "have headgate read its rules", limited("limit="+limit+"/"))
		time.Sleep(500 * time.Millisecond)
	}
	if lost, err := hg.Metrics("headgate_log_lost_lines_total"); err != nil || lost[0] == 0 {
		t.Errorf("%v lines of the log are counted as lost: %v", lost, err)
	}
	if err := syscall.Kill(hg.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	write("rules.yaml", rules("4"))
	testenv.Eventually(t, 10*time.Second, "have headgate read its rules after SIGHUP", limited("limit=4/"))
	if err := hg.Stop(); err != nil {
		t.Error(err)
	}
}

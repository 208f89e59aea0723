package testenv

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	programStopLimit = 20 * time.Second
	programRunLimit  = 2 * time.Minute // promtool has taken more than half a minute on a busy machine
)

// Program is a running program that is tested. Its output goes to a log. Its
// methods may be called from any goroutine, except Terminate, Wait and Kill, which
// end the test when they fail.
type Program struct {
	tb   TB
	proc *process
}

// Built returns the path of a program that scripts/setup-egtest.sh builds: name in a folder of
// the test environment, unless an environment variable says where it is. Where it is not, the
// test is skipped.
func Built(tb TB, variable, folder, name string) string {
	tb.Helper()
	path := os.Getenv(variable)
	if path == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			tb.Fatalf("testenv: %v", err)
		}
		path = filepath.Join(cache, "headgate-testenv", folder, name)
	}
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("%s is not there: %v; scripts/setup-egtest.sh builds it, or name one by %s", name, err, variable)
	}
	return path
}

// StartProgram starts a program in a directory of its own, with env besides the
// variables of this process, of which HEADGATE_… are left out: they would be
// settings. The test's cleanup ends it (SIGTERM), fails the test if it does not
// end in time or has panicked, and prints the end of its log if the test failed.
func StartProgram(tb TB, path string, env []string, args ...string) *Program {
	tb.Helper()
	cmd := programCommand(tb, path, env, args)
	proc, err := startCommand(filepath.Base(path), filepath.Join(cmd.Dir, "output.log"), cmd)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	p := &Program{tb, proc}
	tb.Cleanup(p.cleanup)
	return p
}

func programCommand(tb TB, path string, env, args []string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = tb.TempDir()
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "HEADGATE_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// RunProgram runs a program, as StartProgram does, to its end, for two minutes
// at most, and returns what it printed and its exit code.
func RunProgram(tb TB, path string, env []string, args ...string) (code int, out, errOut string) {
	tb.Helper()
	cmd := programCommand(tb, path, env, args)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := startOnLastingThread(cmd); err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	timer := time.AfterFunc(programRunLimit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait() // the exit code is in ProcessState
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// Log returns what the program has printed.
func (p *Program) Log() string { return p.proc.newLog() }

// Exited reports whether the program has ended.
func (p *Program) Exited() bool { return p.proc.exited() }

// PID is the number of the process.
func (p *Program) PID() int { return p.proc.cmd.Process.Pid }

// Terminate asks the program to end, as an orchestrator does (SIGTERM).
func (p *Program) Terminate() {
	p.tb.Helper()
	if err := p.proc.signal(syscall.SIGTERM); err != nil {
		p.tb.Fatalf("testenv: %v", err)
	}
}

// Wait waits for the program's end and returns its exit code, -1 if a signal
// ended it.
func (p *Program) Wait(limit time.Duration) int {
	p.tb.Helper()
	if err := p.proc.wait(limit); err != nil {
		p.tb.Fatalf("testenv: %v", err)
	}
	return p.proc.cmd.ProcessState.ExitCode()
}

// Kill ends the program like a crash (SIGKILL) and waits until it is gone.
func (p *Program) Kill() {
	p.tb.Helper()
	if err := p.proc.kill(); err != nil {
		p.tb.Fatalf("testenv: %v", err)
	}
}

func (p *Program) cleanup() {
	if !p.Exited() {
		if err := p.proc.terminate(programStopLimit); err != nil {
			p.tb.Errorf("testenv: %v", err)
		}
	}
	if strings.Contains(p.Log(), "panic") {
		p.tb.Errorf("testenv: %s panicked:\n%s", p.proc.name, tail(p.proc.log, 60))
	} else if p.tb.Failed() {
		p.tb.Logf("testenv: the log of %s ends with:\n%s", p.proc.name, tail(p.proc.log, 40))
	}
}

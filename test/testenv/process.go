package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process is a running server. Its output goes to a log file.
type process struct {
	cmd  *exec.Cmd
	name string
	log  string
	// logStart is the size of the log when the process was started: a restarted
	// server must not be taken for ready because of what the old one said.
	logStart int64
	done     chan struct{}
	err      error // of Wait, valid once done is closed
}

// startRequests feeds the one thread that starts all processes.
var startRequests = sync.OnceValue(func() chan<- func() {
	requests := make(chan func())
	go func() {
		// The kernel kills a child when the thread that started it ends, not
		// when the process does. A thread of which nothing else can make use
		// lives exactly as long as the process.
		runtime.LockOSThread()
		for f := range requests {
			f()
		}
	}()
	return requests
})

// dependOnSources is called before each process that a test starts.
var dependOnSources = func() error { return nil }

// startOnLastingThread starts a command that ends with this process. It has
// SysProcAttr.
func startOnLastingThread(cmd *exec.Cmd) error {
	if err := dependOnSources(); err != nil {
		return err
	}
	dieWithParent(cmd.SysProcAttr)
	started := make(chan error)
	startRequests() <- func() { started <- cmd.Start() }
	return <-started
}

// startProcess starts a program whose output goes to the file log.
func startProcess(name, log string, path string, args ...string) (*process, error) {
	return startCommand(name, log, exec.Command(path, args...))
}

// startCommand is startProcess for a command that has more than arguments.
func startCommand(name, log string, cmd *exec.Cmd) (*process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at the log of %s: %w", name, err)
	}
	cmd.Stdout, cmd.Stderr = f, f
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if err := startOnLastingThread(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{cmd: cmd, name: name, log: log, logStart: info.Size(), done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// newLog returns what the process has logged since it was started.
func (p *process) newLog() string {
	data, err := os.ReadFile(p.log)
	if err != nil || int64(len(data)) < p.logStart {
		return ""
	}
	return string(data[p.logStart:])
}

// exited reports whether the process has ended.
func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("send %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// kill ends the process at once and waits until it is gone.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.wait(10 * time.Second)
}

// terminate asks the process to end and kills it if it does not.
func (p *process) terminate(grace time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if p.wait(grace) == nil {
		return nil
	}
	if err := p.kill(); err != nil {
		return err
	}
	return fmt.Errorf("%s did not end within %v of SIGTERM and was killed", p.name, grace)
}

func (p *process) wait(limit time.Duration) error {
	select {
	case <-p.done:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s (process %d) still runs after %v", p.name, p.cmd.Process.Pid, limit)
	}
}

// pause stops the process and waits until the kernel has done so: a signal is
// delivered some time after it was sent.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return waitFor(10*time.Second, "pause "+p.name, func() (bool, string, error) {
		if p.exited() {
			return false, "", fmt.Errorf("it has ended")
		}
		return isStopped(p.cmd.Process.Pid), "running", nil
	})
}

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

package testenv

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// killTree ends the process and its children at once, like a crash of the
// machine, and waits until all are gone. The children go first, under a parent
// that is frozen and cannot notice. One that would not freeze is killed as well.
func (p *process) killTree() error {
	if p.exited() {
		return nil
	}
	_ = p.pause()
	children, err := childrenOf(p.cmd.Process.Pid)
	for _, child := range children {
		err = errors.Join(err, signalChild(child, syscall.SIGKILL))
	}
	if err := errors.Join(err, p.kill()); err != nil {
		return err
	}
	return waitFor(10*time.Second, "kill the children of "+p.name, func() (bool, string, error) {
		for _, child := range children {
			if !isGone(child) {
				return false, fmt.Sprintf("process %d runs", child), nil
			}
		}
		return true, "", nil
	})
}

// pauseTree freezes the process and its children.
func (p *process) pauseTree() error {
	if err := p.pause(); err != nil {
		return err
	}
	children, err := childrenOf(p.cmd.Process.Pid)
	for _, child := range children {
		err = errors.Join(err, signalChild(child, syscall.SIGSTOP))
	}
	if err != nil {
		return err
	}
	return waitFor(10*time.Second, "pause the children of "+p.name, func() (bool, string, error) {
		for _, child := range children {
			if !isStopped(child) && !isGone(child) {
				return false, fmt.Sprintf("process %d runs", child), nil
			}
		}
		return true, "", nil
	})
}

// resumeTree lets a paused process and its children go on.
func (p *process) resumeTree() error {
	children, err := childrenOf(p.cmd.Process.Pid)
	for _, child := range children {
		err = errors.Join(err, signalChild(child, syscall.SIGCONT))
	}
	return errors.Join(err, p.resume())
}

// signalChild sends a signal to a process that may have ended.
func signalChild(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, pid, err)
	}
	return nil
}

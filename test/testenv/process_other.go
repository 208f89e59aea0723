//go:build !linux

package testenv

import (
	"errors"
	"syscall"
)

// Only Linux ties a child's life to its parent's.
func dieWithParent(*syscall.SysProcAttr) {}

// Elsewhere the state of a process takes more than reading a file to find out.
func isStopped(int) bool { return true }

// isGone asks with the signal that does nothing.
func isGone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func childrenOf(int) ([]int, error) { return nil, nil }

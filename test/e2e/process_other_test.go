//go:build !linux

package e2e

import "syscall"

// Only Linux ties a child's life to its parent's.
func dieWithParent() *syscall.SysProcAttr { return nil }

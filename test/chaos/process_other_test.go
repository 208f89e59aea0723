//go:build chaos && !linux

package chaos

import "syscall"

// Only Linux ties a child's life to its parent's.
func dieWithParent() *syscall.SysProcAttr { return nil }

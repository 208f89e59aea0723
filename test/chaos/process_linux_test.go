//go:build chaos

package chaos

import "syscall"

// dieWithParent has the kernel kill a process whose test ended without
// cleanups, for instance because it ran into its time limit.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

package e2e

import "syscall"

// dieWithParent has the kernel kill a service whose test process ended without
// cleanups, for instance because a test ran into its time limit.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

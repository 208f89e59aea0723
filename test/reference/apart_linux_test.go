package reference

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

// alone is held by a group that has no network of its own: their tests all use the same ports.
var alone sync.Mutex

// runApart runs a process in a network of its own. Where the system does not allow that, it runs after all others, in
// that of the system.
func runApart(cmd *exec.Cmd) error {
	runtime.LockOSThread() // the kernel kills the process when this thread ends
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Start()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC) {
		alone.Lock()
		defer alone.Unlock()
		same := exec.Command(cmd.Path, cmd.Args[1:]...)
		same.Dir, same.Env, same.Stdout, same.Stderr = cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr
		same.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return same.Run()
	}
	if err != nil {
		return err
	}
	return cmd.Wait()
}

// linkUp has the network of this process reach itself.
func linkUp() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	// struct ifreq of the kernel, with its flags.
	req := struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_UP | syscall.IFF_RUNNING}
	copy(req.name[:], "lo")
	if _, _, code := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS,
		uintptr(unsafe.Pointer(&req))); code != 0 && code != syscall.EPERM { // that of the system is up
		return code
	}
	return nil
}

//go:build egtest

// Package egtest runs headgate where Envoy Gateway runs its rate limit service: Envoy
// Gateway in standalone mode, a real Envoy that it configures, and headgate under the
// name and environment of its Deployment.
//
// The tests need programs that take minutes to build (see scripts/setup-egtest.sh), and
// fixed ports, which they get in a network of their own. They run by `make egtest`.
package egtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"github.com/headgate-rls/headgate/test/testenv"
)

// program is headgate under the reference's name.
var program string

// inside says that this process has a network of its own.
const inside = "HEADGATE_EGTEST_INSIDE"

func TestMain(m *testing.M) {
	if os.Getenv(inside) == "" {
		os.Exit(again())
	}
	if err := loopbackUp(); err != nil {
		fmt.Fprintln(os.Stderr, "egtest: the loopback interface:", err)
		os.Exit(1)
	}
	testenv.Main(m, func(root, dir string) error {
		built, err := testenv.BuildHeadgate(root, dir)
		if err != nil {
			return err
		}
		program = filepath.Join(dir, "ratelimit")
		return os.Link(built, program)
	})
}

// again runs this program in a network of its own, and returns its exit code.
func again() int {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=yes")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "egtest: a network of its own, for which the system must allow namespaces:", err)
	return 1
}

// loopbackUp enables the loopback interface of a new network.
func loopbackUp() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	request := struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_UP | syscall.IFF_RUNNING}
	copy(request.name[:], "lo")
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return l.Close()
}

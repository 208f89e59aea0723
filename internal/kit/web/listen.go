package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// Listen opens address: host:port, unix:PATH, or unix:@NAME for a socket in
// Linux's abstract namespace. A socket at a path gets mode, unless that is zero. Errors
// name the flag that has the address.
func Listen(ctx context.Context, flag, address string, mode os.FileMode) (net.Listener, error) {
	network, addr := "tcp", address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, addr = "unix", path
		if err := removeStale(ctx, path); err != nil {
			return nil, fmt.Errorf("--%s %s: %w", flag, address, err)
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", flag, address, explainListen(err))
	}
	if network == "unix" && mode != 0 && !strings.HasPrefix(addr, "@") {
		if err := os.Chmod(addr, mode); err != nil {
			_ = l.Close()
			return nil, fmt.Errorf("--socket-mode: %w", err)
		}
	}
	return l, nil
}

// listenHints say what to do about errors of the system.
var listenHints = []struct {
	err  error
	hint string
}{
	{syscall.EADDRINUSE, "another process listens there: stop it or choose another address"},
	{syscall.EADDRNOTAVAIL, "this machine does not have the address; an empty host, as in :8081, means all addresses"},
	{syscall.ENOENT, "create the directory first"},
	{syscall.EACCES, "choose a port from 1024 up, or a directory that this user may write to"},
}

// explainListen reduces err to what the system says, and what to do about it.
func explainListen(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		err = call.Err
	}
	for _, h := range listenHints {
		if errors.Is(err, h.err) {
			return fmt.Errorf("%w; %s", err, h.hint)
		}
	}
	return err
}

// removeStale removes the socket that a killed process left at path. A socket
// that someone answers, or a file that is not a socket, is an error.
func removeStale(ctx context.Context, path string) error {
	if strings.HasPrefix(path, "@") {
		return nil
	}
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return errors.New("the file exists and is not a socket")
	}
	var d net.Dialer
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		_ = c.Close()
		return errors.New("another process listens there: stop it or choose another path")
	}
	return os.Remove(path)
}

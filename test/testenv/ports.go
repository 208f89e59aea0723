package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Ports come from below the range that the kernel hands out to outgoing
// connections (32768 and up on Linux), so that no client takes one in the moment
// between choosing and using it. Redis Cluster also needs the port 10000 above.
const (
	firstPort = 11000
	lastPort  = 21999
	busOffset = 10000
)

// FreePort returns a TCP port of 127.0.0.1 that nothing uses. It stays reserved
// among all test processes of this machine until the test ends.
func FreePort(tb TB) int {
	tb.Helper()
	port, release, err := reservePort()
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(release)
	return port
}

// reservePort finds a port that is free together with its cluster bus port.
func reservePort() (port int, release func(), err error) {
	// A lock per port keeps test processes that run at the same time from
	// choosing the same one; the kernel drops it with the process.
	dir := filepath.Join(os.TempDir(), "headgate-testports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, nil, fmt.Errorf("reserve a port: %w", err)
	}
	const attempts = 200
	for range attempts {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return 0, nil, fmt.Errorf("reserve a port: %w", err)
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil && portFree(port) &&
			portFree(port+busOffset) {
			return port, func() { _ = lock.Close() }, nil
		}
		_ = lock.Close()
	}
	return 0, nil, fmt.Errorf("reserve a port: %d random ports between %d and %d are all in use", attempts,
		firstPort, lastPort)
}

func portFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

//go:build !386

package sockio_test

import (
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sockio"
)

// A pool makes this check before it uses an idle connection again.
func TestPooledConnReadsOnlyWhenThereIsSomething(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		ours, other := pair(t, network)
		// peeked returns what a read would find, once want says that it is there.
		peeked := func(want string) string {
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				found := "nothing"
				raw, err := sockio.PooledConn(ours).(syscall.Conn).SyscallConn()
				if err != nil {
					t.Fatal(err)
				}
				if err := raw.Read(func(fd uintptr) bool {
					b := make([]byte, 10)
					n, _, err := syscall.Recvfrom(int(fd), b, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
					found = string(b[:max(n, 0)])
					if err != nil {
						found = err.Error()
					}
					return true
				}); err != nil {
					found = err.Error()
				}
				if found == want || time.Now().After(end) {
					return found
				}
			}
		}
		if got := peeked("nothing"); got != "nothing" {
			t.Errorf("found %q on an idle connection", got)
		}
		if _, err := other.Write([]byte("word")); err != nil {
			t.Fatal(err)
		}
		if got := peeked("word"); got != "word" {
			t.Errorf("found %q, want the word", got)
		}
		if _, err := io.ReadFull(ours, make([]byte, 4)); err != nil {
			t.Error(err)
		}
		if got := peeked("nothing"); got != "nothing" {
			t.Errorf("found %q after the word was read", got)
		}
		_ = other.Close()
		if got := peeked(""); got != "" {
			t.Errorf("found %q, want the end", got)
		}
	})
}

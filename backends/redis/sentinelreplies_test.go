package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// A fakeSentinel answers each command with the same reply, because no real Sentinel sends such replies. Once it
// has a master, it answers as a Sentinel that knows it.
type fakeSentinel struct {
	net.Listener
	reply  string                    // empty: none
	answer func(words string) string // instead of it, if it is not nil
	master atomic.Pointer[string]
}

func startFakeSentinel(t *testing.T, reply string) *fakeSentinel {
	return startFake(t, &fakeSentinel{reply: reply})
}

func startFake(t *testing.T, f *fakeSentinel) *fakeSentinel {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f.Listener = l
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { nc.Close() })
			go f.serve(nc)
		}
	}()
	return f
}

func (f *fakeSentinel) serve(nc net.Conn) {
	r := bufio.NewReader(nc)
	for {
		words, err := readCommand(r)
		if err != nil {
			return
		}
		reply, master := f.reply, f.master.Load()
		if f.answer != nil {
			reply = f.answer(words)
		}
		if master != nil {
			host, port, _ := net.SplitHostPort(*master)
			switch words {
			case "sentinel get-master-addr-by-name hg":
				reply = fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
			case "sentinel sentinels hg":
				reply = "*0\r\n"
			default:
				reply = "-ERR unknown command\r\n" // such as HELLO
			}
		}
		if _, err := io.WriteString(nc, reply); err != nil {
			return
		}
	}
}

// readCommand returns the words of a command.
func readCommand(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	n, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "*")))
	var words []string
	for ; n > 0 && err == nil; n-- {
		var word []byte
		if line, err = r.ReadString('\n'); err == nil {
			length, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "$")))
			word = make([]byte, length+len("\r\n"))
			_, err = io.ReadFull(r, word)
		}
		words = append(words, strings.TrimSpace(string(word)))
	}
	return strings.ToLower(strings.Join(words, " ")), err
}

// TestRepliesOfSentinel: whatever a Sentinel replies, calls fail in time and cost little memory. They are answered
// again as soon as the Sentinel names the master.
func TestRepliesOfSentinel(t *testing.T) {
	master := testenv.StartRedis(t)
	closed := strconv.Itoa(testenv.FreePort(t))
	for name, reply := range map[string]string{
		"nothing":               "",
		"no master":             "*-1\r\n",
		"an error":              "-ERR unknown command\r\n",
		"a large array":         "*100000000\r\n",
		"a long error":          "-ERR " + strings.Repeat("e", 60000) + "\r\n",
		"a large string":        "$2147483647\r\n",
		"arrays in arrays":      strings.Repeat("*1\r\n", 1<<16),
		"no RESP":               "HTTP/1.1 400 Bad Request\r\n\r\n",
		"one word":              "*1\r\n$9\r\n127.0.0.1\r\n",
		"a port that is none":   "*2\r\n$9\r\n127.0.0.1\r\n$5\r\nredis\r\n",
		"a long name":           "*2\r\n$60000\r\n" + strings.Repeat("h", 60000) + "\r\n$4\r\n6379\r\n",
		"a master that is away": fmt.Sprintf("*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%s\r\n", len(closed), closed),
	} {
		t.Run(name, func(t *testing.T) {
			f := startFakeSentinel(t, reply)
			b := open(t, "redis+sentinel://"+f.Addr().String()+"/hg?timeout=500ms")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			for range 3 {
				err := takeWithin(b, 300*time.Millisecond)
				if !errors.Is(err, backends.ErrUnavailable) {
					t.Errorf("error %v, want that the backend is unavailable", err)
				} else if n := len(err.Error()); n > 1000 {
					t.Errorf("the error has %d bytes: %.300s…", n, err)
				}
			}
			runtime.ReadMemStats(&after)
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("three calls of 300 ms took %v", took)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20 {
				t.Errorf("three calls allocated %d MiB", grown>>20)
			}
			f.master.Store(&master.Addr) // knows it from now on
			testenv.Eventually(t, 10*time.Second, "get an answer of the master", func() string {
				if err := takeWithin(b, time.Second); err != nil {
					return err.Error()
				}
				return ""
			})
		})
	}
}

func takeWithin(b *Backend, d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	out := make([]limit.Verdict, 1)
	b.Take(ctx, []limit.Request{{Ops: []limit.Op{{Key: limit.Key{Group: "g", Limit: "l"}, Cost: 1,
		Limit: limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1000, Window: time.Hour})}}}}, out)
	return out[0].Err
}

package redis

import (
	"bufio"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestRefusedClientsAreToldWhy: Redis has reached maxclients. It replies with an error and closes the connection.
func TestRefusedClientsAreToldWhy(t *testing.T) {
	s := testenv.StartRedis(t)
	if err := s.Client().ConfigSet(t.Context(), "maxclients", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		err := open(t, s.URL()).Ping(t.Context())
		if err == nil || !strings.Contains(err.Error(), "max number of clients reached") {
			t.Errorf("%v", err)
		}
	}
}

func TestRepliesAreBounded(t *testing.T) {
	for _, c := range []struct {
		name, reply string
		err         error
		inside      int // replies that are not complete at the end
	}{
		{"simple ones", "+OK\r\n:1\r\n-ERR no\r\n_\r\n#t\r\n,1.5\r\n(123\r\n", nil, 0},
		{"strings", "$3\r\n*9\n\r\n$0\r\n\r\n$-1\r\n=7\r\ntxt:abc\r\n!3\r\nERR\r\n", nil, 0},
		{"arrays", "*3\r\n*0\r\n*-1\r\n*2\r\n$1\r\na\r\n~1\r\n:1\r\n>1\r\n+x\r\n", nil, 0},
		{"maps", "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n%0\r\n", nil, 0},
		{"attributes", "*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n|1\r\n+a\r\n+b\r\n:3\r\n", nil, 0},
		{"many items", strings.Repeat("*1000000\r\n"+strings.Repeat(":1\r\n", 1_000_000), 2), nil, 0},
		{"half an array", "*2\r\n*3\r\n:1\r\n", nil, 2},
		{"a long error", "-ERR " + strings.Repeat("e", 60_000) + "\r\n", nil, 0},
		{"a large string", "$67108865\r\n", errReplyTooLarge, 0},
		{"a number beyond all numbers", "$99999999999999999999999\r\n", errReplyTooLarge, 0},
		{"a large array", "*1048577\r\n", errReplyTooLarge, 0},
		{"a large map", "%524289\r\n", errReplyTooLarge, 0},
		{"large arrays in large arrays", strings.Repeat("*600000\r\n", 2), errReplyTooLarge, 1},
		{"arrays in arrays", strings.Repeat("*1\r\n", maxReplyDepth+1), errReplyTooLarge, maxReplyDepth},
		{"attributes in attributes", strings.Repeat("|1\r\n", maxReplyDepth+1), errReplyTooLarge, maxReplyDepth},
		{"a line without end", "+" + strings.Repeat("x", maxReplyLine+1), errReplyTooLarge, 0},
		{"a length without end", "$" + strings.Repeat("0", maxReplyLine+1), errReplyTooLarge, 0},
		{"no number", "*x\r\n", errReplyMalformed, 0},
	} {
		for _, most := range []int{1, 7, 4096, len(c.reply)} {
			if most == 1 && len(c.reply) > 1<<20 {
				continue
			}
			var s replyScanner
			for rest := c.reply; rest != ""; {
				n := min(most, len(rest))
				s.take([]byte(rest[:n]))
				rest = rest[n:]
			}
			if !errors.Is(s.err, c.err) || s.depth != c.inside || s.err == nil && s.depth == 0 && (s.items != 0 || s.kind != 0 ||
				s.text != 0) {
				t.Errorf("%s, in parts of %d bytes: %v, %d replies are not complete, %d items", c.name, most, s.err,
					s.depth, s.items)
			}
		}
	}
}

// TestNoReplyIsTooMuch uses a fake server, because no real Redis returns such replies.
func TestNoReplyIsTooMuch(t *testing.T) {
	for _, reply := range []string{
		"*1000000000\r\n", "*9223372036854775807\r\n", "$2147483647\r\n", "$9223372036854775807\r\n",
		strings.Repeat("*1\r\n", 1<<22),
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				nc, err := l.Accept()
				if err != nil {
					return
				}
				defer nc.Close()
				go func() {
					if _, err := bufio.NewReader(nc).ReadString('\n'); err == nil {
						_, _ = nc.Write([]byte(reply)) // its reader may be gone
					}
				}()
			}
		}()
		client := redis.NewClient(&redis.Options{Addr: l.Addr().String(), Dialer: new(servers).dial, Protocol: 2,
			MaxRetries: -1, ReadTimeout: 20 * time.Second, DisableIdentity: true})
		defer client.Close()
		if err := client.Do(context.Background(), "x").Err(); !errors.Is(err, errReplyTooLarge) {
			t.Errorf("%.30q: %v, want %v", reply, err, errReplyTooLarge)
		}
	}
}

// FuzzReplyScanner: the scanner rejects replies by an error, and never panics.
func FuzzReplyScanner(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nabc\r\n:1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var whole, parts replyScanner
		whole.take(b)
		for rest := b; len(rest) > 0; {
			n := 1 + rand.IntN(len(rest))
			parts.take(rest[:n])
			rest = rest[n:]
		}
		if (whole.err == nil) != (parts.err == nil) || whole.err == nil && whole != parts {
			t.Errorf("%+v, in parts %+v", whole, parts)
		}
		if whole.items < 0 || whole.depth < 0 || whole.items > maxReplyItems+maxReplyDepth {
			t.Errorf("%+v", whole)
		}
	})
}

func BenchmarkReplyScanner(b *testing.B) {
	reply := []byte("*2\r\n$64\r\n" + strings.Repeat("x", 64) + "\r\n*4\r\n:1\r\n:1000\r\n:1\r\n:1700000000000\r\n")
	var s replyScanner
	for b.Loop() {
		s.take(reply)
	}
}

package unary

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/random"
)

// A stage is a server with one worker, which is busy until let go.
type stage struct {
	*testing.T
	s     *Server
	addr  string
	begun chan string // the messages of each slice
	turn  chan struct{}
}

const methodTurn = "/t.T/Turn"

func newStage(t *testing.T, most int) *stage {
	st := &stage{T: t, begun: make(chan string, 5000), turn: make(chan struct{})}
	st.s, st.addr = start(t, func(conf *Config) {
		conf.Workers, conf.QueueLimit = 1, most
		conf.Handlers[methodTurn] = Handler{
			Serve: func(_ context.Context, calls []*Call) {
				var all []string
				for _, c := range calls {
					all = append(all, string(c.Message))
					c.Reply = append(c.Reply, "served"...)
				}
				st.begun <- strings.Join(all, " ")
				<-st.turn
			},
			Shed: func(calls []*Call) {
				for _, c := range calls {
					c.Reply = append(c.Reply, "shed"...)
				}
			},
		}
	})
	t.Cleanup(func() { close(st.turn) }) // before the server is closed
	p := newPeer(t, st.addr)
	p.callWithin("", methodTurn, "first")
	<-st.begun
	return st
}

// callWithin makes a call with a time-out, if that is not empty.
func (p *peer) callWithin(timeout, method, message string) uint32 {
	p.tb.Helper()
	headers := callHeaders(method)[:12]
	if timeout != "" {
		headers = append(headers, "grpc-timeout", timeout)
	}
	id := p.open(false, headers...)
	p.must(p.fr.WriteData(id, true, grpcMessage([]byte(message))))
	p.flush()
	return id
}

func (st *stage) wantWaiting(n int) {
	st.Helper()
	eventually(st.T, fmt.Sprintf("%d calls wait", n), func() bool { return st.s.workers.queue.waiting() == n })
}

// TestNoisyConnectionIsShedFirst: a full queue takes the call of a quiet
// connection at the cost of the one with the most, and serves it next.
func TestNoisyConnectionIsShedFirst(t *testing.T) {
	st := newStage(t, 50)
	noisy, quiet, other := newPeer(t, st.addr), newPeer(t, st.addr), newPeer(t, st.addr)
	var ids []uint32
	for range 60 {
		ids = append(ids, noisy.callWithin("", methodTurn, "noisy"))
	}
	st.wantWaiting(50)
	other.callWithin("", methodTurn, "other")
	eventually(t, "eleven are shed", func() bool { return st.s.Stats().Shed == 11 })
	id := quiet.callWithin("", methodTurn, "quiet")
	eventually(t, "twelve are shed", func() bool { return st.s.Stats().Shed == 12 })
	if a := noisy.answer(ids[59]); string(a.body) != "\x00\x00\x00\x00\x04shed" {
		t.Errorf("the latest call of the noisy connection: %+v", a)
	}
	var order []string
	for range 4 {
		st.turn <- struct{}{}
		order = append(order, strings.Fields(<-st.begun)[0])
	}
	if want := []string{"noisy", "other", "quiet", "noisy"}; !slices.Equal(order, want) {
		t.Errorf("served in the order %v, want %v", order, want)
	}
	if a := quiet.answer(id); string(a.body) != "\x00\x00\x00\x00\x06served" {
		t.Errorf("the quiet connection: %+v", a)
	}
}

// TestLateInQueueIsAnsweredInTime: what gets no turn is answered before its
// deadline, although all workers are busy.
func TestLateInQueueIsAnsweredInTime(t *testing.T) {
	st := newStage(t, 50)
	p := newPeer(t, st.addr)
	id := p.callWithin("2S", methodTurn, "x")
	p.callWithin("", methodTurn, "patient")
	if a := p.answer(id); string(a.body) != "\x00\x00\x00\x00\x04shed" {
		t.Errorf("%+v", a)
	}
	st.wantWaiting(1)
}

// TestHurriedCallsGoAlone: calls that come together are served together by how
// much time they have, and not too many at once.
func TestHurriedCallsGoAlone(t *testing.T) {
	st := newStage(t, 5000)
	p := newPeer(t, st.addr)
	for i := range 700 {
		text, timeout := "w", "20S"
		if i%100 == 50 {
			text, timeout = "hurried", "9S"
		}
		id := p.open(false, append(callHeaders(methodTurn)[:12], "grpc-timeout", timeout)...)
		p.must(p.fr.WriteData(id, true, grpcMessage([]byte(text))))
	}
	p.flush()
	st.wantWaiting(700)
	seen := map[string]int{}
	for n := 0; n < 700; {
		st.turn <- struct{}{}
		slice := strings.Fields(<-st.begun)
		if len(slice) > maxJob {
			t.Errorf("%d calls at once", len(slice))
		}
		for _, text := range slice {
			if text != slice[0] {
				t.Fatalf("%s and %s are served together", text, slice[0])
			}
			seen[text]++
			n++
		}
	}
	if seen["hurried"] != 7 || seen["w"] != 693 {
		t.Errorf("%v", seen)
	}
}

func TestUrgencyIsCoarse(t *testing.T) {
	now := time.Now()
	for a := time.Duration(0); a < 200*time.Hour; a += a/50 + 1 {
		b := a + a/8 + 2
		if urgency(now.Add(a), now) == urgency(now.Add(b), now) {
			t.Fatalf("%v and %v go together", a, b)
		}
		if urgency(now.Add(a), now) > urgency(now.Add(a+1), now) {
			t.Fatalf("%v is in less of a hurry than %v", a, a+1)
		}
	}
}

// TestQueueAgreesWithAPlainList compares the queue with a plain list.
func TestQueueAgreesWithAPlainList(t *testing.T) {
	r := random.Rand(t, 1)
	now := time.Now()
	for range 200 {
		q := new(queue)
		q.init(40, nil, func() {})
		conns := make([]*conn, 5)
		for i := range conns {
			conns[i] = new(conn)
		}
		var list []*job // in order of arrival
		removed := map[jobOwner]int{}
		drop := func(j *job) { list = slices.DeleteFunc(list, func(k *job) bool { return k == j }) }
		load := func(c jobOwner) (n int) {
			for _, j := range list {
				if j.owner == c {
					n += len(j.streams)
				}
			}
			return n
		}
		for range 100 {
			switch n := r.IntN(10); {
			case n < 6:
				c := conns[r.IntN(1+r.IntN(len(conns)))]
				j := &job{owner: c, line: &c.line, streams: make([]*stream, 1+r.IntN(9))}
				if r.IntN(2) == 0 {
					j.due = now.Add(time.Duration(r.IntN(100)))
				}
				list = append(list, j)
				clear(removed)
				for _, out := range q.push(j) {
					removed[out.owner] += len(out.streams)
					drop(out)
				}
				for loser := range removed {
					for _, c := range conns {
						if load(c) > load(loser)+removed[loser] {
							t.Fatal("a connection with fewer calls lost one")
						}
					}
				}
			case n < 9:
				if len(list) > 0 {
					j := q.pop(q.served)
					if at := slices.IndexFunc(list, func(k *job) bool { return k.owner == j.owner }); list[at] != j {
						t.Fatal("not the oldest of its connection")
					}
					drop(j)
				}
			default:
				at := now.Add(time.Duration(r.IntN(100)))
				for _, j := range q.late(at) {
					if j.due.IsZero() || at.Before(j.due) {
						t.Fatal("not late")
					}
					drop(j)
				}
				if slices.ContainsFunc(list, func(j *job) bool { return !j.due.IsZero() && !at.Before(j.due) }) {
					t.Fatal("a late one stays")
				}
			}
			total := 0
			for _, c := range conns {
				if n := load(c); n != c.line.calls {
					t.Fatalf("a line of %d calls, want %d", c.line.calls, n)
				}
				total += load(c)
			}
			if q.waiting() != total || total > 40 || len(q.lines) > 0 != (q.next != nil) {
				t.Fatalf("%d calls wait, want %d", q.waiting(), total)
			}
		}
	}
}

// TestFirstGoesWithTheHurried: a call whose effect others must see is served with
// them, in the order in which they came, though it has more time.
func TestFirstGoesWithTheHurried(t *testing.T) {
	h := &handler{Handler: Handler{First: func(c *Call) bool { return string(c.Message) == "end" }}}
	now := time.Now()
	var streams []*stream
	for _, c := range []struct {
		text string
		left time.Duration
	}{{"patient", time.Minute}, {"end", 30 * time.Second}, {"ask", 20 * time.Millisecond}, {"end", 0}} {
		st := &stream{call: Call{Message: []byte(c.text)}}
		if c.left > 0 {
			st.call.Deadline = now.Add(c.left)
		}
		streams = append(streams, st)
	}
	setUrgency(h, streams, now)
	sortByUrgency(streams)
	var order []string
	for _, st := range streams {
		order = append(order, fmt.Sprintf("%s %v", st.call.Message, st.urgency == streams[0].urgency))
	}
	if want := []string{"end true", "ask true", "end true", "patient false"}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
}

// waiting returns how many calls wait.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.calls
}

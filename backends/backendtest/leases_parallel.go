package backendtest

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// checkLeasesParallel: however many acquire and release at once, no more than
// Max are inside, all get in, and in the end nobody is left there.
func checkLeasesParallel(e *env) {
	e.keepsLeases()
	e.open()
	handles := []backends.Backend{e.b}
	if e.s.Shared {
		handles = append(handles, e.openAnother())
	}
	t := &throng{
		key: e.key("", "throng", limit.Concurrency), limit: e.inFlight(5, time.Hour), at: e.clock(), callers: 16,
		each: e.times(8, 30),
	}
	err := t.run(context.Background(), handles...)
	if most := t.most.Load(); err != nil || most > t.limit.Max() || t.admitted.Load() != int64(t.callers*t.each) {
		e.Fatalf("%d admitted, want %d; %d at once, at most %d; error %v", t.admitted.Load(), t.callers*t.each, most,
			t.limit.Max(), err)
	}
	if out := e.lease(t.at(), t.key, t.limit, leaseOp{}); out.InFlight != 0 || out.Remaining != t.limit.Max() {
		e.Errorf("all have left, yet %+v", out)
	}
}

// clock returns the instants of calls on what goes for real time: the store's
// own clock, or else one that moves with each call.
func (e *env) clock() func() limit.Instant {
	if e.s.Caps.ServerClock {
		return func() limit.Instant { return 0 }
	}
	var now atomic.Int64
	now.Store(int64(e.start()))
	return func() limit.Instant { return limit.Instant(now.Add(e.step)) }
}

// deadLeases is how many leases the process has that is killed, and deadWindow
// after how long they expire.
const (
	deadLeases = 2
	deadWindow = 2 * time.Second
)

// checkLeasesProcesses: three processes acquire and release, and one of them is
// killed. The others go on without noticing, and its leases expire at their end
// and not before.
func checkLeasesProcesses(e *env) {
	e.keepsLeases()
	if !e.s.Shared || e.s.Child == "" {
		e.Skip("no store that processes share, or Suite.Child is not given")
	}
	e.open()
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	e.Cleanup(cancel)
	at := limit.Instant(0)
	if !e.s.Caps.ServerClock {
		at = e.start()
	}
	l := e.inFlight(deadLeases+3, deadWindow)
	job := childJob{Spec: l.Spec(), Key: e.key("", "processes", limit.Concurrency), At: at}
	var children []*child
	for range 3 {
		children = append(children, e.startChild(ctx, 0))
	}
	victim, others := children[0], children[1:]

	hold := job
	hold.Hold = deadLeases
	held := e.ask(victim, &hold)
	endless := job
	endless.Callers, endless.Each, endless.Owner = 2, 1<<30, "victim/"
	e.begin(victim, &endless)
	each := e.times(20, 100)
	for i, c := range others {
		j := job
		j.Callers, j.Each, j.Owner = 4, each, strconv.Itoa(i)+"/"
		e.begin(c, &j)
	}
	time.Sleep(20 * time.Millisecond)
	e.kill(victim)
	if e.s.Caps.ServerClock {
		e.wantDead(job.Key, l, held.At)
	}
	for i, c := range others {
		if r := e.end(c); r.Err != "" || r.Admitted != int64(4*each) {
			e.Errorf("process %d, beside one that was killed: %+v", i, r)
		}
	}
	e.wantLapse(job.Key, l, held.At)
}

// wantDead wants the leases of a process that is gone, taken at an instant, to
// be there until they expire. It returns how many there are after that, -1 before.
func (e *env) wantDead(k limit.Key, l *limit.Limit, taken limit.Instant) int64 {
	e.Helper()
	end := expiry(taken, l)
	at := limit.Instant(0)
	if !e.s.Caps.ServerClock {
		at = end - limit.Instant(e.step)
	}
	v := e.take(leaseOp{}.request(at, k, l))
	switch n := v.Outcomes[0].InFlight; {
	case v.At >= end:
		return n
	case n < deadLeases:
		e.Fatalf("leases of a dead process expire at %d, yet at %d: %+v", end, v.At, v)
	}
	return -1
}

// wantLapse wants them gone afterwards.
func (e *env) wantLapse(k limit.Key, l *limit.Limit, taken limit.Instant) {
	e.Helper()
	if !e.s.Caps.ServerClock {
		e.wantDead(k, l, taken)
		if out := e.lease(expiry(taken, l), k, l, leaseOp{}); out.InFlight > 0 {
			e.Errorf("leases of a dead process do not expire: %+v", out)
		}
		return
	}
	ctx, cancel := calm()
	defer cancel()
	for ctx.Err() == nil {
		if e.wantDead(k, l, taken) == 0 { // also those that it took until it was killed
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	e.Errorf("leases of a dead process do not expire: %+v", e.lease(0, k, l, leaseOp{}))
}

// begin has a child start with a job, end waits until it is done.
func (e *env) begin(c *child, job *childJob) {
	e.Helper()
	line, err := json.Marshal(job)
	if err != nil {
		e.Fatal(err)
	}
	for _, text := range []string{string(line), "go"} {
		if _, err := io.WriteString(c.in, text+"\n"); err != nil {
			e.Fatal(err)
		}
		if text == "go" {
			return
		}
		if _, err := c.read(); err != nil { // "ready"
			e.Fatal(err)
		}
	}
}

func (e *env) end(c *child) childReply {
	e.Helper()
	r, err := c.read()
	if err != nil {
		e.Fatal(err)
	}
	return r
}

// ask has a child do a job.
func (e *env) ask(c *child, job *childJob) childReply {
	e.Helper()
	e.begin(c, job)
	r := e.end(c)
	if r.Err != "" {
		e.Fatalf("child process: %s", r.Err)
	}
	return r
}

// kill ends a child as a crash does.
func (e *env) kill(c *child) {
	e.Helper()
	c.killed = true
	if err := c.cmd.Process.Kill(); err != nil {
		e.Fatal(err)
	}
}

package backendtest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// Several processes on one store. The test binary starts itself again; each
// child reads jobs, one JSON line each, from its standard input and answers
// on its standard output behind a mark, since the testing package prints there
// as well.
const (
	childEnv  = "HEADGATE_BACKENDTEST_CHILD"
	childMark = "backendtest-child:"
)

// A childJob is a crowd for a child to send, or what it does with leases. It sets up when it reads the job
// and starts with the next line, so that all children start together.
type childJob struct {
	Spec    limit.Spec
	Key     limit.Key
	At      limit.Instant
	Callers int

	// Of a limit on requests in flight: leases to keep, or else how often each
	// caller acquires and releases one, as whose.
	Hold, Each int
	Owner      string
}

type childReply struct {
	Admitted int64
	Err      string
	At       limit.Instant // of a verdict
}

// Child serves the suite from another process. Call it from the test that
// Suite.Child names; in an ordinary run it skips.
func Child(t *testing.T, open func(tb testing.TB) backends.Backend) {
	if os.Getenv(childEnv) == "" {
		t.Skip("one of several processes of the conformance suite")
	}
	offset, err := time.ParseDuration(os.Getenv(childEnv))
	if err != nil {
		t.Fatal(err)
	}
	b := open(t)
	defer b.Close()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var job childJob
		if err := json.Unmarshal(in.Bytes(), &job); err != nil {
			t.Fatal(err)
		}
		fmt.Println(childMark + `{"Err":"ready"}`)
		in.Scan()
		line, _ := json.Marshal(job.run(b, offset))
		fmt.Println(childMark + string(line))
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
}

// run sends the job's crowd. A store without a clock believes the callers',
// which differ.
func (j *childJob) run(b backends.Backend, offset time.Duration) childReply {
	l, err := limit.New(j.Spec)
	if err != nil {
		return childReply{Err: err.Error()}
	}
	if j.Hold > 0 {
		return j.hold(b, l)
	}
	if j.Each > 0 {
		return j.throng(b, l)
	}
	at := j.At
	if at != 0 {
		at = at.Add(offset)
	}
	var reply childReply
	ctx, cancel := calm()
	defer cancel()
	first := make([]limit.Verdict, 1) // asks only, for the instant
	b.Take(ctx, []limit.Request{request(at, j.Key, l, 0)}, first)
	c := crowd{callers: j.Callers, each: 1, slice: 1, req: request(at, j.Key, l, 1)}
	reply.Admitted, err = c.send(b)
	if err == nil {
		err = first[0].Err
	}
	if err != nil {
		reply.Err = err.Error()
	}
	reply.At = first[0].At
	return reply
}

// hold acquires leases and keeps them.
func (j *childJob) hold(b backends.Backend, l *limit.Limit) (reply childReply) {
	ctx, cancel := calm()
	defer cancel()
	for i := range j.Hold {
		out := make([]limit.Verdict, 1)
		b.Take(ctx, []limit.Request{acquire("held/"+strconv.Itoa(i)).request(j.At, j.Key, l)}, out)
		if out[0].Err != nil || !out[0].Admitted {
			return childReply{Err: fmt.Sprintf("lease %d: %+v", i, out[0])}
		}
		reply.Admitted++
		if reply.At == 0 {
			reply.At = out[0].At // of the first, which expires first
		}
	}
	return reply
}

// throng acquires and releases. Nobody's clock plays a part: instants are the
// parent's or the store's.
func (j *childJob) throng(b backends.Backend, l *limit.Limit) childReply {
	t := &throng{key: j.Key, limit: l, at: func() limit.Instant { return j.At }, owner: j.Owner, callers: j.Callers,
		each: j.Each}
	var reply childReply
	if err := t.run(context.Background(), b); err != nil {
		reply.Err = err.Error()
	}
	reply.Admitted = t.admitted.Load()
	return reply
}

// A child is the parent's end.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	killed bool // by the suite
}

func (e *env) startChild(ctx context.Context, offset time.Duration) *child {
	exe, err := os.Executable()
	if err != nil {
		e.Fatal(err)
	}
	c := &child{cmd: exec.CommandContext(ctx, exe, "-test.run=^"+e.s.Child+"$", "-test.count=1", "-test.v=false")}
	c.cmd.Env = append(os.Environ(), e.s.ChildEnv...)
	c.cmd.Env = append(c.cmd.Env, childEnv+"="+offset.String())
	if os.Getenv("GORACE") == "" { // which has a process linger for a second
		c.cmd.Env = append(c.cmd.Env, "GORACE=atexit_sleep_ms=0")
	}
	c.cmd.Stderr = os.Stderr
	c.cmd.WaitDelay = time.Second
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		e.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		e.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		_ = c.in.Close()
		for c.out.Scan() { // let it finish what it prints
		}
		if err := c.cmd.Wait(); err != nil && !c.killed {
			e.Errorf("child process: %v", err)
		}
	})
	return c
}

// read returns the next reply.
func (c *child) read() (childReply, error) {
	for c.out.Scan() {
		if line, ok := strings.CutPrefix(c.out.Text(), childMark); ok {
			var r childReply
			return r, json.Unmarshal([]byte(line), &r)
		}
	}
	return childReply{}, fmt.Errorf("the child process ended: %v", c.out.Err())
}

// checkProcesses: with all but one unit used, three processes whose clocks are
// 30 s apart get one unit by 100 takes; and of a fresh limit exactly Max.
func checkProcesses(e *env) {
	if !e.s.Shared || e.s.Child == "" {
		e.Skip("no store that processes share, or Suite.Child is not given")
	}
	e.open()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	e.Cleanup(cancel)
	var children []*child
	for _, offset := range []time.Duration{-30 * time.Second, 0, 30 * time.Second} {
		children = append(children, e.startChild(ctx, offset))
	}
	at := limit.Instant(0)
	if !e.s.Caps.ServerClock {
		at = e.start()
	}
	for _, a := range e.algorithms() {
		l := e.longLimit(a, 60)
		job := childJob{Spec: l.Spec(), Key: e.key("", "fresh", a), At: at, Callers: 34}
		e.runJob(children, &job, l.Capacity())
		job.Key = e.key("", "used", a)
		before := at
		if before != 0 { // no later than the slowest clock
			before = before.Add(-30 * time.Second)
		}
		e.take(request(before, job.Key, l, l.Capacity()-1))
		e.runJob(children, &job, 1)
	}
}

// runJob gives job to all children at once and wants want admitted in all.
func (e *env) runJob(children []*child, job *childJob, want int64) {
	line, err := json.Marshal(job)
	if err != nil {
		e.Fatal(err)
	}
	for _, text := range []string{string(line), "go"} {
		for _, c := range children {
			if _, err := io.WriteString(c.in, text+"\n"); err != nil {
				e.Fatal(err)
			}
		}
		var admitted int64
		for _, c := range children {
			r, err := c.read()
			if err != nil {
				e.Fatal(err)
			}
			if text == "go" {
				e.judge(job, &r)
			}
			admitted += r.Admitted
		}
		if text == "go" && admitted != want {
			e.Errorf("%v: %d processes were admitted %d times, want %d", job.Spec.Algorithm, len(children), admitted, want)
		}
	}
}

// judge looks at one child's reply.
func (e *env) judge(job *childJob, r *childReply) {
	if r.Err != "" {
		e.Errorf("%v: child process: %s", job.Spec.Algorithm, r.Err)
	}
	if now := limit.InstantOf(time.Now()); job.At == 0 && (r.At < now-5e6 || r.At > now+5e6) {
		e.Errorf("%v: a child's verdict is of %d, now is %d", job.Spec.Algorithm, r.At, now)
	}
}

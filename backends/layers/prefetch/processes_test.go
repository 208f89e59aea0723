package prefetch_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/layers/prefetch"
	"github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// Several processes on one Redis. The test binary starts itself again with
// childEnv, which has what each has to do, and reads from its output what
// stands behind childMark.
const (
	childEnv  = "HEADGATE_SHARE_CHILD"
	childMark = "share-child:"
)

type childJob struct {
	URL       string
	Algorithm limit.Algorithm
	Key       string
	Max       int64
	Share     int64
	Callers   int
	Takes     int // of each caller; zero means until one is refused
}

type childReply struct {
	Admitted int64 // units
	Refused  int64 // requests
	Held     int64 // at the end
	Trips    int64
	Err      string
}

// counting counts the trips to a store.
type counting struct {
	backends.Backend
	trips atomic.Int64
}

func (c *counting) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	c.trips.Add(1)
	c.Backend.Take(ctx, reqs, out)
}

// TestChild is one of the processes. In an ordinary run it skips.
func TestChild(t *testing.T) {
	text := os.Getenv(childEnv)
	if text == "" {
		t.Skip("one of several processes of TestProcessesTogetherKeepTheLimit")
	}
	var job childJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		t.Fatal(err)
	}
	conf, err := redis.Parse(job.URL)
	if err != nil {
		t.Fatal(err)
	}
	be, err := redis.Open(context.Background(), conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	store, caps := &counting{Backend: be}, conf.Caps()
	b := prefetch.New(store, &caps, prefetch.Config{}, time.Now)
	defer b.Close()
	fmt.Println(childMark + `{"Err":"ready"}`)
	bufio.NewScanner(os.Stdin).Scan() // all start together
	reply := job.run(b)
	reply.Trips = store.trips.Load()
	line, _ := json.Marshal(reply)
	fmt.Println(childMark + string(line))
}

// run sends what the job says.
func (j *childJob) run(b *prefetch.Backend) childReply {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o := prefetch.NewOp(j.Key, prefetch.NewLimit(j.Algorithm, j.Max, (limit.MaxWindow/2).Truncate(time.Second)), 1,
		j.Share)
	var admitted, refused atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	for range j.Callers {
		all.Go(func() {
			out := make([]limit.Verdict, 1)
			for n := 0; j.Takes == 0 || n < j.Takes; n++ {
				b.Take(ctx, []limit.Request{{Ops: []limit.Op{o}}}, out)
				switch {
				case out[0].Err != nil:
					failed.Store(&out[0].Err)
					return
				case out[0].Admitted:
					admitted.Add(1)
					continue
				}
				refused.Add(1)
				if j.Takes == 0 {
					return
				}
			}
		})
	}
	all.Wait()
	reply := childReply{Admitted: admitted.Load(), Refused: refused.Load()}
	if err := failed.Load(); err != nil {
		reply.Err = (*err).Error()
	}
	reply.Held = b.Held(&o)
	return reply
}

// runJobs has a process for each job do it, all at once or in turn.
func runJobs(t *testing.T, jobs []childJob, inTurn bool) (replies []childReply) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	type child struct {
		cmd *exec.Cmd
		in  interface{ Close() error }
		out *bufio.Scanner
	}
	var children []child
	for i := range jobs {
		line, err := json.Marshal(&jobs[i])
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(ctx, exe, "-test.run=^TestChild$", "-test.count=1", "-test.v=false")
		cmd.Env = append(os.Environ(), childEnv+"="+string(line))
		if os.Getenv("GORACE") == "" { // which has a process linger for a second
			cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0")
		}
		cmd.Stderr = os.Stderr
		cmd.WaitDelay = time.Second
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		children = append(children, child{cmd, in, bufio.NewScanner(out)})
	}
	read := func(c child) (r childReply) {
		for c.out.Scan() {
			if text, ok := strings.CutPrefix(c.out.Text(), childMark); ok {
				if err := json.Unmarshal([]byte(text), &r); err != nil {
					t.Error(err)
				}
				return r
			}
		}
		t.Errorf("a child process ended: %v", c.out.Err())
		return r
	}
	for _, c := range children {
		read(c)
	}
	for _, c := range children {
		if !inTurn {
			c.in.Close()
		}
	}
	for _, c := range children {
		if inTurn {
			c.in.Close()
		}
		r := read(c)
		if r.Err != "" {
			t.Errorf("a child process: %s", r.Err)
		}
		replies = append(replies, r)
		for c.out.Scan() { // let it finish what it prints
		}
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("a child process: %v", err)
		}
	}
	return replies
}

// TestProcessesTogetherKeepTheLimit: three processes on one Redis admit no more than the
// limit, and less than it only by what they hold; their trips are few.
func TestProcessesTogetherKeepTheLimit(t *testing.T) {
	server := testenv.StartRedis(t)
	const processes, most, share = 3, 1000, 50
	for _, c := range []struct {
		name    string
		inTurn  bool
		callers int
		takes   [processes]int // of each caller; zero: until refused
		held    int64          // in the end; -1: whatever there may be
	}{
		{"one caller each", false, 1, [processes]int{}, 0},
		{"two stop early", true, 1, [processes]int{1, 60, 0}, 49 + 40},
		{"many callers each", false, 8, [processes]int{60, 60, 60}, -1},
	} {
		for _, a := range prefetch.Sharable {
			t.Run(c.name+"/"+a.String(), func(t *testing.T) {
				jobs := make([]childJob, processes)
				for i := range jobs {
					jobs[i] = childJob{
						URL: server.URL(), Key: t.Name(), Algorithm: a, Max: most, Share: share, Callers: c.callers, Takes: c.takes[i],
					}
				}
				var sum childReply
				for _, r := range runJobs(t, jobs, c.inTurn) {
					sum.Admitted += r.Admitted
					sum.Refused += r.Refused
					sum.Held += r.Held
					sum.Trips += r.Trips
				}
				t.Logf("%+v", sum)
				if sum.Admitted > most || sum.Admitted < most-processes*(share-1) {
					t.Errorf("%d admitted of %d", sum.Admitted, most)
				}
				if c.held >= 0 && sum.Held != c.held || sum.Admitted+sum.Held != most {
					t.Errorf("%d admitted and %d held of %d, want %d held", sum.Admitted, sum.Held, most, c.held)
				}
				// With one caller each, a trip brings a whole share but for the
				// last units, of which there are less than that, and refusals.
				if c.callers == 1 && sum.Trips > most/share+share-1+sum.Refused {
					t.Errorf("%d trips", sum.Trips)
				}
			})
		}
	}
}

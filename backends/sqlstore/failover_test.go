package sqlstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

const loadURL = "HEADGATE_TEST_SQL_LOAD"

// failoverMax is the limit of those who take while a replica is promoted.
const failoverMax = 900

// TestLoadTakesUntilInputEnds is one of several processes: it takes from the group "hot" until its
// input ends, and says what it was told before it asks again.
func TestLoadTakesUntilInputEnds(t *testing.T) {
	address := os.Getenv(loadURL)
	if address == "" {
		t.Skip("one of several processes")
	}
	b := open(t, address)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for l := upTo(failoverMax); ctx.Err() == nil; {
		v := try(context.Background(), b, ask(l, 1, "hot"))[0]
		fmt.Println("told:", said(&v))
		time.Sleep(2 * time.Millisecond)
		if v.Err != nil || !v.Admitted {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// said is a verdict as a process says it.
func said(v *limit.Verdict) string {
	switch {
	case v.Err == nil && v.Admitted:
		return "admitted"
	case v.Err == nil:
		return "refused"
	case errors.Is(v.Err, backends.ErrUnavailable) && errors.Is(v.Err, backends.ErrNotApplied):
		return "not applied"
	case errors.Is(v.Err, backends.ErrUnavailable):
		return "unknown"
	}
	return "an error of no kind: " + v.Err.Error()
}

// A load are processes that take from the same group.
type load struct {
	tally
	failed, refused [3]atomic.Int64 // by process
	inputs          []io.Closer
	all             sync.WaitGroup
}

func startLoad(t *testing.T, address string) *load {
	t.Helper()
	exe, err := os.Executable()
	check(t, err)
	y := &load{}
	for i := range y.failed {
		cmd := exec.Command(exe, "-test.run=^TestLoadTakesUntilInputEnds$", "-test.count=1")
		cmd.Env = append(os.Environ(), loadURL+"="+address)
		in, err := cmd.StdinPipe()
		check(t, err)
		out, err := cmd.StdoutPipe()
		check(t, err)
		check(t, cmd.Start())
		y.inputs = append(y.inputs, in)
		y.all.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if told, ok := strings.CutPrefix(lines.Text(), "told: "); ok {
					y.count(t, i, told)
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("process %d: %v", i, err)
			}
		})
	}
	t.Cleanup(y.stop)
	return y
}

func (y *load) count(t *testing.T, process int, told string) {
	switch told {
	case "admitted":
		y.admitted.Add(1)
	case "refused":
		y.tally.refused.Add(1)
		y.refused[process].Add(1)
	case "not applied":
		y.notApplied.Add(1)
		y.failed[process].Add(1)
	case "unknown":
		y.unknown.Add(1)
		y.failed[process].Add(1)
	default:
		t.Errorf("process %d has %s", process, told)
	}
}

func (y *load) stop() {
	for _, in := range y.inputs {
		_ = in.Close()
	}
	y.all.Wait()
}

// reach waits until so many were admitted.
func (y *load) reach(t *testing.T, n int64) {
	t.Helper()
	testenv.Eventually(t, 30*time.Second, "admit more", func() string {
		if got := y.admitted.Load(); got < n {
			return fmt.Sprint(got, " of ", n)
		}
		return ""
	})
}

// eachSays waits until each process has counted one more.
func (y *load) eachSays(t *testing.T, what string, of *[3]atomic.Int64) {
	t.Helper()
	var before [3]int64
	for i := range of {
		before[i] = of[i].Load()
	}
	testenv.Eventually(t, 30*time.Second, "hear of each process: "+what, func() string {
		for i := range of {
			if of[i].Load() == before[i] {
				return fmt.Sprint("process ", i, " does not say so")
			}
		}
		return ""
	})
}

// soonAfter is how long after a promotion decisions may take to go on, on a busy machine.
const soonAfter = 5 * time.Second

// When the primary dies, or is silent, and its replica is promoted, the processes go on with it by
// themselves. If the primary waits for the replica, all that was admitted is there. Else what the replica
// had not got is admitted once more, and nothing beside it.
func TestReplicaTakesOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine, name              string
		short                     bool // tested in the short form, too: the servers take seconds to start
		synchronous, replicaFirst bool // in the URL
		fault                     func(*testenv.Database)
	}{
		{testenv.Postgres, "killed, synchronous", true, true, true, (*testenv.Database).Kill},
		{testenv.Postgres, "silent, synchronous", true, true, false, (*testenv.Database).Pause},
		{testenv.Postgres, "killed, asynchronous", false, false, true, (*testenv.Database).Kill},
		{testenv.MariaDB, "killed, synchronous", true, true, true, (*testenv.Database).Kill},
		{testenv.MariaDB, "silent, synchronous", false, true, false, (*testenv.Database).Pause},
		{testenv.MariaDB, "killed, asynchronous", false, false, true, (*testenv.Database).Kill},
		{testenv.MySQL, "killed, synchronous", false, true, false, (*testenv.Database).Kill},
		{testenv.MySQL, "silent, asynchronous", false, false, false, (*testenv.Database).Pause},
	} {
		t.Run(c.engine+", "+c.name, func(t *testing.T) {
			if !c.short && !random.Long() {
				t.Skip("only in the long form: a primary and a replica take seconds to start")
			}
			primary := testenv.StartDatabase(t, c.engine, testenv.Primary())
			address := primary.CreateDatabase("limits")
			migrate(t, address)
			replica := primary.StartReplica(c.synchronous)
			const kept = failoverMax / 10 // by the replica, whatever else it gets
			check(t, try(soon(t), open(t, with(address, "timeout=10s")), ask(upTo(failoverMax), kept, "hot"))[0].Err)
			replica.Eventually(databaseOf(t, address), "SELECT MAX(N) FROM HEADGATE_STATE;", strconv.Itoa(kept))
			if !c.synchronous {
				replica.StopFollowing()
			}
			hosts := primary.Addr + "," + replica.Addr
			if c.replicaFirst {
				hosts = replica.Addr + "," + primary.Addr
			}
			both := with(through(t, address, hosts), "timeout=500ms")
			y := startLoad(t, both)
			y.admitted.Add(kept)
			y.reach(t, 2*kept)
			c.fault(primary)
			y.eachSays(t, "a call failed", &y.failed)
			before := y.admitted.Load()
			asked := time.Now()
			replica.Promote()
			promoted := time.Now()
			y.reach(t, before+1)
			took := time.Since(promoted)
			y.eachSays(t, "the limit is used up", &y.refused)
			y.stop()
			recorded := used(t, open(t, both), upTo(failoverMax), "hot")
			t.Logf("decisions went on %v after the promotion, which took %v", took.Round(time.Millisecond),
				promoted.Sub(asked).Round(time.Millisecond))
			if took > soonAfter {
				t.Errorf("decisions went on %v after the promotion", took)
			}
			if recorded != failoverMax {
				t.Errorf("callers are refused at %d of %d units", recorded, failoverMax)
			}
			if c.synchronous {
				y.wantRecorded(t, recorded)
				return
			}
			more := y.admitted.Load() - before
			t.Logf("%d admitted of %d; the replica had %d of %d, and has admitted %d", y.admitted.Load(), failoverMax, kept,
				before, more)
			if more > failoverMax-kept {
				t.Errorf("the replica had %d of %d units, and has admitted %d", kept, failoverMax, more)
			}
			if y.admitted.Load() <= failoverMax {
				t.Error("nothing was lost, so nothing is shown")
			}
		})
	}
}

// databaseOf is the name of a URL's database.
func databaseOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	check(t, err)
	return strings.TrimPrefix(u.Path, "/")
}

// A server that crashes loses nothing of durable commits, and of relaxed ones no more than README.md
// says. Nobody is refused for that.
func TestCrashLosesWhatIsDocumented(t *testing.T) {
	const most = 600 * time.Millisecond // README.md
	for _, commit := range []string{"durable", "relaxed"} {
		t.Run(commit, func(t *testing.T) {
			server := testenv.StartDatabase(t, testenv.Postgres)
			address := server.CreateDatabase("limits")
			migrate(t, address)
			b := open(t, with(address, "timeout=2s&commit="+commit))
			l, lost := upTo(1_000_000), 0
			// A relaxed commit may be on its way to the disk just in time.
			for round := 0; round < 2 || commit == "relaxed" && lost == 0 && round < 20; round++ {
				group := fmt.Sprint("k", round)
				y, admitted, stall := takeUntilCrash(t, b, server, group, time.Duration(300+70*round)*time.Millisecond)
				server.Restart()
				recorded := int(used(t, open(t, address), l, group))
				if commit == "durable" {
					y.wantRecorded(t, int64(recorded))
					continue
				}
				if recorded > len(admitted)+int(y.unknown.Load()) {
					t.Errorf("%d units are recorded, %d were admitted", recorded, len(admitted))
				}
				if recorded >= len(admitted) {
					continue
				}
				lost += len(admitted) - recorded
				span := admitted[len(admitted)-1].Sub(admitted[recorded])
				t.Logf("%d of %d units are lost, those of the last %v; the machine stood still for up to %v",
					len(admitted)-recorded, len(admitted), span, stall)
				if span > most+2*stall {
					t.Errorf("units of the last %v are lost, want those of %v at most", span, most)
				}
			}
			if commit == "relaxed" && lost == 0 {
				t.Error("no crash has lost anything: commits are not relaxed")
			}
		})
	}
}

// takeUntilCrash takes one unit after the other, and kills the server meanwhile. It returns when each was
// admitted, and for how long this process did not get to run at worst.
func takeUntilCrash(t *testing.T, b *Backend, server *testenv.Database, group string,
	after time.Duration) (y *tally, admitted []time.Time, stall time.Duration) {
	t.Helper()
	y = &tally{}
	for range 3 { // connects
		_ = y.take(t, b, 10*time.Second, ask(upTo(1_000_000), 1, "connects"))
	}
	y = &tally{}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for last := time.Now(); ctx.Err() == nil; last = time.Now() {
			time.Sleep(time.Millisecond)
			stall = max(stall, time.Since(last))
		}
	})
	all.Go(func() {
		for y.take(t, b, 2*time.Second, ask(upTo(1_000_000), 1, group)) == nil {
			admitted = append(admitted, time.Now())
		}
	})
	time.Sleep(after)
	server.Kill()
	stop()
	all.Wait()
	return y, admitted, stall
}

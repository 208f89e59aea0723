package slotstest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// chaosCallers of each process.
const chaosCallers = 22

// chaosStart is the first window that is asked for.
var chaosStart = time.Date(2026, 11, 1, 5, 59, 50, 0, time.UTC)

// atATime is how many tests run at a time by default, where that is more than there are
// cores: stores wait for locks and servers most of the time.
const atATime = 4

// Main is the TestMain of a package that calls RunChaos: it runs the tests, or does
// a process's part in RunChaos if this process was started for that. open makes a
// Store of a Harness's name and a Database's URL.
func Main(m *testing.M, open func(harness, url string) (slots.Store, error)) {
	text := os.Getenv(envChaosChild)
	if text == "" {
		flag.Parse()
		cores := runtime.GOMAXPROCS(0)
		if parallel := flag.Lookup("test.parallel").Value; cores < atATime && parallel.String() == fmt.Sprint(cores) {
			if err := parallel.Set(fmt.Sprint(atATime)); err != nil {
				panic(err)
			}
		}
		os.Exit(m.Run())
	}
	if err := serveChaos(text, open); err != nil {
		fmt.Fprintln(os.Stderr, "slotstest:", err)
		os.Exit(1)
	}
}

// serveChaos does what it is ordered to until the process that ordered it has
// ended.
func serveChaos(text string, open func(harness, url string) (slots.Store, error)) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	store, err := open(o.Harness, o.URL)
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	defer store.Close()
	diary, err := os.OpenFile(o.Diary, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer diary.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	s, err := slots.NewScheduler(store, slots.Settings{
		Procedure: o.Engine == EngineProcedure, Timeout: 5 * time.Second,
	})
	if err != nil {
		return err
	}
	var callers sync.WaitGroup
	for i := range uint64(chaosCallers) {
		callers.Go(func() { (&chaosCaller{o, s, diary}).run(ctx, rand.New(rand.NewPCG(o.Seed, i))) })
	}
	callers.Wait()
	return nil
}

type chaosCaller struct {
	order
	scheduler *slots.Scheduler
	diary     *os.File
}

func (c *chaosCaller) run(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		// The later it is, the higher the numbers: processes meet on the same events.
		newest := time.Now().UnixMilli() / 4 % 1_000_000
		r := slots.Request{
			EventID:    fmt.Sprintf("%s-e%d", c.Prefix, newest-rng.Int64N(20)),
			ConfigName: c.Prefix,
			At:         chaosStart.Add(time.Duration(rng.Int64N(chaosWindows*chaosSizeMs*1000)) * time.Microsecond),
		}
		res, err := c.scheduler.Assign(ctx, r)
		switch {
		case err == nil:
			c.note(res.Slot)
		case ctx.Err() != nil || errors.As(err, new(*slots.RetryError)) || errors.Is(err, context.DeadlineExceeded):
			rest(ctx, 10*time.Millisecond)
		default:
			c.note(slots.Slot{ID: err.Error()})
			rest(ctx, time.Second)
		}
	}
}

// note writes an answer down, in one piece, before anybody could have acted on it.
func (c *chaosCaller) note(s slots.Slot) {
	line, err := json.Marshal(s)
	if err == nil {
		_, err = c.diary.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "slotstest: write the diary:", err)
	}
}

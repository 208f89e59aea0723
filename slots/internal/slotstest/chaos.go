package slotstest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/random"
)

const (
	// EnvChaosSeconds is how long RunChaos troubles each engine; by default
	// 3, and 6 in the long form.
	EnvChaosSeconds = "HEADGATE_SLOTS_CHAOS_SECONDS"
	// envChaosChild has what a process of RunChaos is to do.
	envChaosChild = "HEADGATE_SLOTS_CHAOS_CHILD"

	chaosProcesses = 3
	chaosHighest   = 9 // limit of a window at any time
	chaosSizeMs    = 1000
	chaosWindows   = 40     // that are asked for
	chaosWritten   = 50_000 // bytes of diaries; an answer has about 250
)

// RunChaos has three processes assign slots, kills them at random and starts
// them again, breaks connections, forces deadlocks and changes the limit
// meanwhile. In the end all invariants must hold, and every answer that any of
// the processes got must be what is stored.
//
// The processes are this test's program again: its TestMain must call
// Main.
func RunChaos(t *testing.T, h Harness) {
	db := h.Fresh(t)
	store := db.Open(t)
	for _, engine := range h.engines(store) {
		t.Run(engine, func(t *testing.T) {
			f := &fixture{Harness: h, db: db, store: store, engine: engine, prefix: "chaos-" + engine, number: new(atomic.Int64)}
			(&chaos{f: f, dir: t.TempDir(), rng: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))}).run(t)
		})
	}
}

// chaos is one run.
type chaos struct {
	f        *fixture
	dir      string // of the processes' diaries
	rng      *rand.Rand
	children [chaosProcesses]*exec.Cmd
	number   int
	kills    int
}

// order is what a process has to do.
type order struct {
	Harness, URL, Engine, Prefix, Diary string
	Seed                                uint64
}

func (c *chaos) run(t *testing.T) {
	f := c.f
	s := f.scheduler(t, f.store, slots.Settings{})
	f.config(t, s, chaosHighest, chaosSizeMs)
	for i := range c.children {
		c.start(t, i)
	}
	defer c.stop()
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	var trouble sync.WaitGroup
	trouble.Go(func() { c.changeLimits(ctx, t, s) })
	trouble.Go(func() { c.cross(ctx) })
	if f.db.CutAll != nil {
		trouble.Go(func() { c.cut(ctx) })
	}
	for enough := time.Now().Add(chaosTime(t)); time.Now().Before(enough); {
		rest(ctx, time.Duration(200+c.rng.IntN(1200))*time.Millisecond)
		i := c.rng.IntN(chaosProcesses)
		c.kill(i)
		c.start(t, i)
	}
	cancel()
	trouble.Wait()
	// On a busy machine there may be next to nothing to judge yet.
	for most := time.Now().Add(suiteLimit); time.Now().Before(most) && c.written() < chaosWritten; {
		time.Sleep(50 * time.Millisecond)
	}
	c.stop()
	c.judge(t, s)
}

// written is how many bytes the diaries have.
func (c *chaos) written() (bytes int64) {
	files, _ := filepath.Glob(filepath.Join(c.dir, "diary-*")) // the pattern is right
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}

func chaosTime(t *testing.T) time.Duration {
	seconds := random.Times(3, 6)
	if text := os.Getenv(EnvChaosSeconds); text != "" {
		if _, err := fmt.Sscan(text, &seconds); err != nil {
			t.Fatalf("%s=%q: want a number of seconds", EnvChaosSeconds, text)
		}
	}
	return time.Duration(seconds) * time.Second
}

// start starts the process again.
func (c *chaos) start(t *testing.T, i int) {
	c.number++
	o := order{
		Harness: c.f.Name, URL: c.f.db.URL, Engine: c.f.engine, Prefix: c.f.prefix, Seed: uint64(c.number),
		Diary: filepath.Join(c.dir, fmt.Sprintf("diary-%d", c.number)),
	}
	text, err := json.Marshal(o)
	must(t, err, "order")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envChaosChild+"="+string(text))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// It ends when this pipe does, should this process die.
	_, err = cmd.StdinPipe()
	must(t, err, "pipe")
	must(t, cmd.Start(), "start a process")
	c.children[i] = cmd
}

func (c *chaos) kill(i int) {
	if cmd := c.children[i]; cmd != nil {
		_ = cmd.Process.Kill() // it may have ended, which the diaries tell
		_ = cmd.Wait()
		c.children[i] = nil
		c.kills++
	}
}

func (c *chaos) stop() {
	for i := range c.children {
		c.kill(i)
	}
}

// changeLimits changes the limit all the time, up to the highest.
func (c *chaos) changeLimits(ctx context.Context, t *testing.T, s *slots.Scheduler) {
	for n := int64(0); ctx.Err() == nil; n++ {
		_, err := s.PutConfig(ctx, slots.NewConfig{Name: c.f.prefix, Max: 3 + n%(chaosHighest-2), SizeMs: chaosSizeMs})
		if err != nil && ctx.Err() == nil && !errors.As(err, new(*slots.RetryError)) && !errors.Is(err, slots.ErrConflict) {
			t.Errorf("put a config: %v", err)
		}
		rest(ctx, 300*time.Millisecond)
	}
}

func (c *chaos) cut(ctx context.Context) {
	for ctx.Err() == nil {
		rest(ctx, 100*time.Millisecond+time.Duration(rand.Int64N(int64(800*time.Millisecond))))
		c.f.db.CutAll()
	}
}

// cross has pairs of transactions insert the same events in opposite order,
// which is a deadlock whenever they meet. All of them are rolled back.
func (c *chaos) cross(ctx context.Context) {
	far := slots.Series{Scope: c.f.prefix + "-far", SizeMs: 1000}
	_, _ = c.f.store.Provision(ctx, far, 0, 2000, nil) // without it there are no deadlocks, that is all
	for n := 0; ctx.Err() == nil; n++ {
		together(2, func(i int) {
			tx, err := c.f.store.Begin(ctx, "")
			if err != nil {
				return
			}
			defer tx.Rollback()
			at := int64(i) * 1000
			if _, ok, err := tx.Lock(ctx, far, at, 10); err != nil || !ok {
				return
			}
			for k := range 2 {
				event := fmt.Sprintf("%s-cross-%d-%d", c.f.prefix, n, (i+k)%2)
				slot := slots.Slot{ID: c.f.id(), EventID: event, Series: far, RequestedUs: at * 1000, WindowMs: at, ScheduledMs: at,
					ConfigID: "c"}
				if tx.Claim(ctx, far, at, []slots.Slot{slot}) != nil {
					return
				}
			}
		})
		rest(ctx, 20*time.Millisecond)
	}
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// judge looks at what is left.
func (c *chaos) judge(t *testing.T, s *slots.Scheduler) {
	f := c.f
	f.store = f.db.Open(t) // one that has seen nothing
	series := f.series(chaosSizeMs)
	wrong := c.settled(t, series)
	if len(wrong) > 0 {
		t.Errorf("%d things are wrong:\n%s", len(wrong), strings.Join(wrong[:min(len(wrong), 10)], "\n"))
	}
	stored := map[string]slots.Slot{}
	for _, list := range f.slotsOf(t, series) {
		for _, slot := range list {
			stored[slot.EventID] = slot
		}
	}
	answers, writers := c.diaries(t, stored)
	t.Logf("%d processes, %d of them told %d answers; %d slots", c.kills, writers, answers, len(stored))
	if answers < 50 {
		t.Error("next to nothing was assigned")
	}
	// No lock is left behind: the earliest window with room is to be had.
	f.config(t, s, 1_000_000, chaosSizeMs)
	res, err := persist(limited(t), s, f.request(-1, chaosStart))
	if err != nil || res.WindowMs != chaosStart.UnixMilli() {
		t.Errorf("after all: %+v, %v; want the first window", res, err)
	}
}

// settled audits until nothing is wrong: the last commits may still be on their
// way when their clients are dead.
func (c *chaos) settled(t *testing.T, s slots.Series) (wrong []string) {
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		var err error
		wrong, err = Audit(limited(t), c.f.store, s, chaosHighest)
		if err == nil && len(wrong) == 0 {
			return nil
		}
		if err != nil { // a connection that was cut
			wrong = []string{err.Error()}
		}
		if time.Now().After(deadline) {
			return wrong
		}
	}
}

// diaries compares the answers that the processes got with what is stored.
func (c *chaos) diaries(t *testing.T, stored map[string]slots.Slot) (answers, writers int) {
	files, err := filepath.Glob(filepath.Join(c.dir, "diary-*"))
	must(t, err, "diaries")
	for _, file := range files {
		n := c.diary(t, file, stored)
		answers += n
		if n > 0 {
			writers++
		}
	}
	return answers, writers
}

func (c *chaos) diary(t *testing.T, file string, stored map[string]slots.Slot) (answers int) {
	r, err := os.Open(file)
	must(t, err, "diary")
	defer r.Close()
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return answers // what has no end was being written when the process was killed
		}
		must(t, err, "diary")
		var slot slots.Slot
		must(t, json.Unmarshal(line, &slot), "diary")
		answers++
		if slot.EventID == "" {
			t.Errorf("a process had an error: %s", line)
		} else if !same(slot, stored[slot.EventID]) {
			t.Errorf("event %q was given %+v, stored is %+v", slot.EventID, slot, stored[slot.EventID])
		}
	}
}

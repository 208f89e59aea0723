package attack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/random"
)

// smallContainer is the limit of memory, in MiB, of headgate in the attacks of this file.
const smallContainer = 128

// late is what Envoy waits for an answer by default.
const late = 20 * time.Millisecond

// lateShare returns how many of the bystander's calls may be late: 1 % in the long form, which needs a machine with
// nothing else to do. The short form runs beside other tests.
func lateShare() float64 { return size(0.1, 0.01) }

// smallAttacks are attacks that must leave headgate alive in a small container, and a bystander's calls in time.
var smallAttacks = []attack{
	{name: "half requests on 2,000 connections", run: halfOnMany},
	{name: "half requests on 2,000 connections, by grpc-go", flags: []string{"--transport", "grpc"}, run: halfOnMany},
	{name: "half header blocks on 2,000 connections", run: halfHeaders},
	{name: "half requests of HTTP on 2,000 connections", run: halfOfHTTP},
	{name: "6,000 connections that say nothing", run: silentConnections},
}

func TestAttacksInASmallContainer(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	for _, a := range smallAttacks {
		t.Run(strings.ReplaceAll(a.name, " ", "_"), func(t *testing.T) {
			if len(a.flags) > 0 && !random.Long() {
				t.Skip("only in the long form: the other transport")
			}
			a.program = contained(t, smallContainer)
			r := a.measure(t)
			t.Log("\n" + table([]result{r}))
			r.inTime(t, lateShare())
		})
	}
}

// manyConnections is how many connections an attack on a small container opens.
const manyConnections = 2000

// halfOnMany sends the first half of requests on many connections, and goes on with small ones.
func halfOnMany(g *target) {
	part := prefixed(0, make([]byte, 64<<10))
	begin := func(w *wire, n int) {
		_ = w.fr.WriteData(w.open(headers(methodDecide)...), false, part[:n])
	}
	for range manyConnections {
		w := g.tryConnect()
		if w == nil {
			continue
		}
		for range 4 {
			begin(w, 16<<10)
		}
		w.flush()
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		for _, w := range g.conns {
			begin(w, 1000)
			w.flush()
			time.Sleep(time.Millisecond)
		}
	}
	g.note("%d connections, %d closed", len(g.conns), g.closed())
}

// halfHeaders begins a header block on each of many connections.
func halfHeaders(g *target) {
	part := make([]byte, 16<<10)
	for range manyConnections {
		w := g.tryConnect()
		if w == nil {
			continue
		}
		_ = w.fr.WriteRawFrame(1, 0, 1, part) // HEADERS without END_HEADERS
		for range 7 {
			_ = w.fr.WriteRawFrame(9, 0, 1, part) // CONTINUATION
		}
		w.flush()
	}
	time.Sleep(time.Second)
	g.note("%d connections, %d closed", len(g.conns), g.closed())
}

func (g *target) closed() (n int) {
	for _, w := range g.conns {
		if w.closed.Load() {
			n++
		}
	}
	return n
}

// halfOfHTTP sends, to the port of HTTP, first halves of bodies, then of headers.
func halfOfHTTP(g *target) {
	for _, text := range []string{
		"POST /json HTTP/1.1\r\nHost: a\r\nContent-Length: 700000\r\n\r\n" + strings.Repeat("[", 64<<10),
		"POST /json HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 30<<10),
	} {
		g.raw(g.hg.HTTP, manyConnections, text)
		time.Sleep(time.Second)
	}
}

// silentConnections opens connections to the ports that clients reach.
func silentConnections(g *target) {
	for _, address := range []string{g.hg.GRPC, g.hg.HTTP, g.hg.Services} {
		g.raw(address, manyConnections, "")
	}
	time.Sleep(time.Second)
}

// raw opens connections and sends a text on each. They are closed after the memory has been measured.
func (g *target) raw(address string, n int, text string) {
	opened := 0
	for range n {
		nc, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			continue
		}
		opened++
		g.t.Cleanup(func() { nc.Close() })
		_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = nc.Write([]byte(text)) // it may be refused
	}
	g.note("%d connections to %s", opened, address)
}

// groupsOfMemory are where Linux has groups of processes with a limit of memory, of version 2 and of version 1, and the
// file with the limit.
var groupsOfMemory = []struct{ dir, limit string }{
	{"/sys/fs/cgroup", "memory.max"},
	{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
}

// contained returns a program that runs headgate with at most so many MiB of memory, as a
// container would: above it, the system kills it. It skips the test where such a group cannot be made.
func contained(t *testing.T, mib int) string {
	t.Helper()
	for _, at := range groupsOfMemory {
		group := filepath.Join(at.dir, fmt.Sprintf("headgate-attack-%d-%x", os.Getpid(), time.Now().UnixNano()))
		if os.Mkdir(group, 0o700) != nil {
			continue
		}
		t.Cleanup(func() { // after headgate has ended
			if !waitUntil(5*time.Second, func() bool { return os.Remove(group) == nil }) {
				t.Errorf("%s is left", group)
			}
		})
		// Not created: where there is no such file, the directory is none of a group with a limit.
		f, err := os.OpenFile(filepath.Join(group, at.limit), os.O_WRONLY, 0)
		if err != nil {
			continue
		}
		_, err = fmt.Fprint(f, mib<<20)
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		return inGroup(t, group)
	}
	t.Skip("needs a control group with a limit of memory, which root can make")
	return ""
}

// inGroup returns a script that runs headgate in a group.
func inGroup(t *testing.T, group string) string {
	script := filepath.Join(t.TempDir(), "contained")
	text := fmt.Sprintf("#!/bin/sh\necho $$ >%s/cgroup.procs && exec %s \"$@\"\n", group, program)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return script
}

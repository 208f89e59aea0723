package attack

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// Readers of long lists, which nobody needs a token for: those that hardly read what they have asked for, and those
// that read it as everybody does.

// longLists are what readers ask for: up to 300 KB each.
var longLists = []string{"/api/v1/slots?limit=1000", "/api/v1/windows?limit=1000"}

// healthWithin is how long a health check may take while others read lists.
const healthWithin = 100 * time.Millisecond

// TestSlowReadersLeaveMemoryToOthers: in a small container, clients that ask for long lists and hardly read them.
func TestSlowReadersLeaveMemoryToOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	var health checks
	a := attack{name: "slow readers of lists", program: contained(t, smallContainer), flags: flagsOfSlots(fileOfSlots(t)),
		run: func(g *target) {
			g.assignSlots()
			stop := health.watch(g)
			g.readers("slow")
			stop()
			for metric, why := range map[string]string{
				`headgate_http_no_memory_total{transport="http"}`:     "lists that found no room in memory",
				`headgate_transport_timeouts_total{transport="http"}`: "connections that do not read",
			} {
				v, err := g.hg.Metrics(metric)
				if err != nil || v[0] == 0 {
					g.t.Errorf("%s: %v %v, want some %s", metric, v, err, why)
				}
			}
			for _, line := range []string{"no room in memory", "does not read"} {
				if !strings.Contains(g.hg.Log(), line) {
					g.t.Errorf("the log does not say %q", line)
				}
			}
		}}
	r := a.measure(t)
	t.Log("\n" + table([]result{r}))
	r.inTime(t, lateShare())
	if r.peakMiB >= smallContainer {
		t.Errorf("%d MiB were resident", r.peakMiB)
	}
	health.inTime(t)
}

// TestReadersOfListsLeaveTurnsToOthers: eight clients that read lists as fast as they come, with a store in its process
// and with one outside.
func TestReadersOfListsLeaveTurnsToOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	for name, store := range map[string]func(*testing.T) string{
		"SQLite": fileOfSlots,
		"PostgreSQL": func(t *testing.T) string {
			return testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("readers")
		},
	} {
		t.Run(name, func(t *testing.T) {
			var health checks
			a := attack{name: "eight readers of lists in " + name, flags: flagsOfSlots(store(t)), run: func(g *target) {
				g.assignSlots()
				stop := health.watch(g)
				g.readers("ordinary")
				stop()
			}}
			r := a.measure(t)
			t.Log("\n" + table([]result{r}))
			r.inTime(t, lateShare())
			health.inTime(t)
		})
	}
}

func fileOfSlots(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "slots.db") }

func flagsOfSlots(url string) []string {
	return []string{"--slots", url, "--slots-migrate", "--slots-seed", "100000/PT4S"}
}

// assignSlots has a list of a thousand slots.
func (g *target) assignSlots() {
	g.t.Helper()
	at := time.Now().UTC().Format(time.RFC3339)
	events := make([]string, 1000)
	for i := range events {
		events[i] = fmt.Sprintf(`{"eventId":"event-%026d","requestedTime":%q}`, i, at)
	}
	body := `{"events":[` + strings.Join(events, ",") + "]}"
	resp, err := http.Post("http://"+g.hg.HTTP+"/api/v1/slots:batch", "application/json", strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || strings.Count(string(text), `"status":200`) != len(events) {
		g.t.Fatalf("%d %.200s", resp.StatusCode, text)
	}
}

// checks are health checks of the port that is attacked, each on a connection of its own.
type checks struct {
	took   []time.Duration
	failed int
	why    string
}

const checkEvery = 50 * time.Millisecond

// watch makes checks until it is stopped.
func (c *checks) watch(g *target) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			case <-time.After(checkEvery):
			}
			path := []string{"/healthcheck", "/readyz"}[i%2]
			began := time.Now()
			resp, err := client.Get("http://" + g.hg.HTTP + path)
			c.took = append(c.took, time.Since(began))
			if err != nil {
				c.failed, c.why = c.failed+1, err.Error()
				continue
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				c.failed, c.why = c.failed+1, resp.Status
			}
		}
	}()
	return func() { close(quit); <-done }
}

// inTime fails the test if checks failed, or if more than a few took too long.
func (c *checks) inTime(t *testing.T) {
	t.Helper()
	slices.Sort(c.took)
	late := 0
	for _, d := range c.took {
		if d > healthWithin {
			late++
		}
	}
	if len(c.took) == 0 {
		t.Error("no health check was made")
		return
	}
	t.Logf("%d health checks: median %v, the slowest %v, %d late, %d failed (%s)", len(c.took), c.took[len(c.took)/2],
		c.took[len(c.took)-1], late, c.failed, c.why)
	if c.failed > 0 || float64(late) > lateShare()*float64(len(c.took)) {
		t.Errorf("health checks must succeed within %v", healthWithin)
	}
}

// envReaders has a child of the test read lists from an address: "slow ADDRESS" or "ordinary ADDRESS".
const envReaders = "HEADGATE_ATTACK_READERS"

func (g *target) readers(how string) {
	child := exec.Command(os.Args[0], fmt.Sprintf("-full=%v", *full))
	child.Env = append(os.Environ(), envReaders+"="+how+" "+g.hg.HTTP)
	out, err := child.CombinedOutput()
	if err != nil {
		g.t.Errorf("%v: %s", err, out)
	}
	g.note("%s", out)
}

// fewReaders have connections from the start. As many have room in a small container; those that come later displace
// each other.
const fewReaders = 200

// readersChild is the child.
func readersChild(what string) {
	how, address, _ := strings.Cut(what, " ")
	n, read := 8, readAll
	if how == "slow" {
		n, read = 1248, readSlowly
	}
	lasts := size(8*time.Second, time.Minute)
	end := time.Now().Add(lasts)
	var made, answers atomic.Int64
	var clients sync.WaitGroup
	for i := range n {
		clients.Go(func() {
			if i >= fewReaders {
				time.Sleep(lasts / 2)
			}
			for time.Now().Before(end) {
				nc, err := net.DialTimeout("tcp", address, time.Second)
				if err != nil {
					time.Sleep(50 * time.Millisecond)
					continue
				}
				made.Add(1)
				_ = nc.SetDeadline(end)
				answers.Add(read(nc, i, end))
				_ = nc.Close()
			}
		})
	}
	clients.Wait()
	fmt.Printf("%d connections, %d answers read", made.Load(), answers.Load())
}

// readSlowly asks for forty lists at once, and reads nothing, a byte a second, or as little as keeps the connection
// open, until it is closed.
func readSlowly(nc net.Conn, i int, end time.Time) int64 {
	_ = nc.(*net.TCPConn).SetReadBuffer(4 << 10)
	one := "GET " + longLists[i%len(longLists)] + " HTTP/1.1\r\nHost: a\r\n\r\n"
	if _, err := io.WriteString(nc, strings.Repeat(one, 40)); err != nil {
		return 0
	}
	pause, some := time.Second, make([]byte, []int{1, 4 << 10, 64 << 10}[i%3])
	if i%4 == 0 {
		pause = time.Until(end) / 2 // reads nothing
	}
	for {
		time.Sleep(pause)
		if _, err := nc.Read(some); err != nil {
			return 0
		}
	}
}

// readAll asks for one list after the other.
func readAll(nc net.Conn, i int, _ time.Time) (n int64) {
	answers := bufio.NewReader(nc)
	for {
		fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", longLists[0])
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			return n
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return n
		}
		if resp.StatusCode != http.StatusOK {
			panic(fmt.Sprint(i, resp.Status)) // the parent says so
		}
		n++
	}
}

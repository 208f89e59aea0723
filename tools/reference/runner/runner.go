// Package runner stands in for the package of that name in envoyproxy/ratelimit: its tests start headgate by it, as a
// process with the environment that their settings are made of, and read its metrics where they would read their own.
package runner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/envoyproxy/ratelimit/src/settings"
	gostats "github.com/lyft/gostats"
)

// program is the variable with the path of headgate under the name ratelimit.
const program = "REFERENCE_TESTS_PROGRAM"

// A Runner is one process.
type Runner struct {
	run *process
}

type process struct {
	settings settings.Settings
	statsd   *collector
	answered atomic.Int64 // how often bytes of the process have reached a client

	reading sync.Mutex
	page    []string // lines of the metrics
	read    time.Time
	at      int64 // answered when they were read

	mu      sync.Mutex
	cmd     *exec.Cmd // nil before it was started
	stopped bool
	ended   chan struct{}
}

// NewRunner returns a process that [Runner.Run] starts.
func NewRunner(s settings.Settings) Runner {
	p := &process{settings: s, ended: make(chan struct{})}
	if len(s.ExtraTags) > 0 { // which only StatsD has
		p.statsd = listen()
	}
	return Runner{p}
}

// GetStatsStore returns the metrics of the process.
func (r *Runner) GetStatsStore() gostats.Store {
	return store{gostats.NewStore(gostats.NewNullSink(), false), r.run}
}

// Run runs the process until [Runner.Stop]. That it ends by itself is a panic.
func (r *Runner) Run() {
	runtime.LockOSThread() // the kernel kills the process when this thread ends
	p := r.run
	defer close(p.ended)
	cmd := exec.Command(os.Getenv(program))
	cmd.Env = append(os.Environ(), environment(p.settings)...)
	// The reference stops at once; nobody waits for a load balancer here.
	cmd.Env = append(cmd.Env, "HEADGATE_DRAIN_DELAY=0s")
	own := freePort()
	cmd.Env = append(cmd.Env, fmt.Sprint("GRPC_PORT=", own))
	if p.statsd != nil {
		_, port, _ := net.SplitHostPort(p.statsd.Addr().String())
		cmd.Env = append(cmd.Env, "USE_STATSD=true", "STATSD_HOST=127.0.0.1", "STATSD_PORT="+port,
			"STATS_FLUSH_INTERVAL=100ms")
	}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		return
	}
	err := cmd.Start()
	p.cmd = cmd
	p.mu.Unlock()
	if err == nil {
		defer p.forward(own).Close()
	}
	if err == nil {
		err = cmd.Wait()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		panic(fmt.Sprint("headgate ended by itself: ", err))
	}
}

// Stop ends the process, and waits until it has ended.
func (r *Runner) Stop() {
	p := r.run
	p.mu.Lock()
	p.stopped = true
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	p.mu.Unlock()
	<-p.ended
}

// freePort returns a port that nobody has now.
func freePort() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// forward has the port that the tests know lead to that of the process, once it is open, and notes when the process
// answers: what it counts changes no more until then.
func (p *process) forward(port int) io.Closer {
	f := &forwarder{stop: make(chan struct{})}
	go func() {
		for !f.open(p.settings.GrpcPort, port) {
			select {
			case <-f.stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		for {
			client, err := f.listener.Accept()
			if err != nil {
				return
			}
			go p.connect(client, port)
		}
	}()
	return f
}

// connect copies what the two say to each other.
func (p *process) connect(client net.Conn, port int) {
	defer client.Close()
	server, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		p.answered.Add(1)
		if _, failed := client.Write(buf[:n]); err != nil || failed != nil {
			return
		}
	}
}

// A forwarder listens once there is somebody to forward to.
type forwarder struct {
	stop chan struct{}

	mu       sync.Mutex
	closed   bool
	listener net.Listener
}

func (f *forwarder) open(at, port int) bool {
	conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		return false
	}
	conn.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.listener, err = net.Listen("tcp", fmt.Sprint(":", at))
	return err == nil
}

func (f *forwarder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	close(f.stop)
	if f.listener != nil {
		return f.listener.Close()
	}
	return nil
}

// environment returns the variables that settings are made of.
func environment(s settings.Settings) (list []string) {
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("envconfig")
		if name == "" {
			continue
		}
		byDefault := v.Type().Field(i).Tag.Get("default")
		if d, err := time.ParseDuration(byDefault); err == nil && v.Field(i).Type() == reflect.TypeFor[time.Duration]() {
			byDefault = d.String()
		}
		if text := text(v.Field(i).Interface()); text != byDefault { // what nobody has set is not in the environment
			list = append(list, name+"="+text)
		}
	}
	return list
}

// text writes a setting as the environment has it.
func text(value any) string {
	switch value := value.(type) {
	case []string:
		return strings.Join(value, ",")
	case map[string]string:
		var pairs []string
		for k, v := range value {
			pairs = append(pairs, k+":"+v)
		}
		slices.Sort(pairs)
		return strings.Join(pairs, ",")
	}
	return fmt.Sprint(value)
}

// A store reads the metrics of a process, of which it makes none itself.
type store struct {
	empty
	of *process
}

// empty is named so because the interface has a method Store.
type empty = gostats.Store

// Flush does nothing: metrics are read when they are asked for.
func (store) Flush() {}

func (s store) NewCounter(name string) gostats.Counter {
	c := s.empty.NewCounter(name)
	c.Set(s.of.metric(name))
	return c
}

func (s store) NewGauge(name string) gostats.Gauge {
	g := s.empty.NewGauge(name)
	g.Set(s.of.metric(name))
	return g
}

func (s store) NewCounterWithTags(name string, tags map[string]string) gostats.Counter {
	c := s.empty.NewCounterWithTags(name, tags)
	var keys []string
	for k := range tags {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		name += ".__" + k + "=" + tags[k]
	}
	c.Set(s.of.statsd.sum(name))
	return c
}

// hits are the names of metrics of rules.
var hits = regexp.MustCompile(`^ratelimit\.service\.rate_limit\.([^.]+)\.([^.]+)(?:\.([^.]+))?\.([a-z_]+)$`)

// metric reads a metric of the page for Prometheus, by its name in StatsD. One that is not there is 0.
func (p *process) metric(name string) uint64 {
	series := strings.ReplaceAll(name, ".", "_")
	if m := hits.FindStringSubmatch(name); m != nil {
		labels := fmt.Sprintf("domain=%q,key1=%q", m[1], m[2])
		if m[3] != "" {
			labels += fmt.Sprintf(",key2=%q", m[3])
		}
		series = "ratelimit_service_rate_limit_" + m[4] + "{" + labels + "}"
	}
	for _, line := range p.metrics() {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			f, err := strconv.ParseFloat(value, 64)
			if err != nil {
				panic(err)
			}
			return uint64(f)
		}
	}
	return 0
}

// maxAge is for how long metrics are as they were if the process has answered nobody: it may have read rules.
const maxAge = 200 * time.Millisecond

// metrics returns the lines of the reference's metrics. They are read anew if they may have changed.
func (p *process) metrics() []string {
	p.reading.Lock()
	defer p.reading.Unlock()
	answered := p.answered.Load()
	if p.page != nil && answered == p.at && time.Since(p.read) < maxAge {
		return p.page
	}
	p.at, p.read, p.page = answered, time.Now(), p.page[:0]
	resp, err := http.Get(fmt.Sprintf("http://localhost:%d/metrics", p.settings.DebugPort))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		panic(fmt.Sprint(resp.Status, err))
	}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "ratelimit_") {
			p.page = append(p.page, strings.TrimSpace(line))
		}
	}
	return p.page
}

// A collector adds up what StatsD sends to it.
type collector struct {
	net.Listener

	mu      sync.Mutex
	sums    map[string]uint64
	flushes int
}

func listen() *collector {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	c := &collector{Listener: l, sums: map[string]uint64{}}
	go c.accept()
	return c
}

// accept reads one connection after the other: each is a flush.
func (c *collector) accept() {
	for {
		conn, err := c.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			panic(err)
		}
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			c.add(lines.Text())
		}
		conn.Close()
		c.mu.Lock()
		c.flushes++
		c.mu.Unlock()
	}
}

var counted = regexp.MustCompile(`^(.*):([0-9]+)\|c$`)

func (c *collector) add(line string) {
	m := counted.FindStringSubmatch(line)
	if m == nil {
		return
	}
	n, err := strconv.ParseUint(m[2], 10, 64)
	if err != nil {
		panic(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sums[m[1]] += n
}

// sum returns what has been sent of a counter, once two more flushes have come: the first may have begun before.
func (c *collector) sum(name string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline := time.Now().Add(10 * time.Second)
	for until := c.flushes + 2; c.flushes < until; {
		if time.Now().After(deadline) {
			panic("nothing comes by StatsD")
		}
		c.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		c.mu.Lock()
	}
	return c.sums[name]
}

package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A serverProcess is this program serving a case.
type serverProcess struct {
	cmd  *exec.Cmd
	addr string
	pid  int
	stop func()
}

func startServer(ctx context.Context, args []string) (*serverProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &serverProcess{cmd: cmd, pid: cmd.Process.Pid}
	s.stop = func() { _ = in.Close(); _ = cmd.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("the server did not start: %w", err)
	}
	s.addr = strings.TrimSpace(line)
	return s, nil
}

// A redisServer is a Redis of the benchmark's own.
type redisServer struct {
	addr   string
	url    string
	pid    int
	client *redis.Client
	stop   func()
}

// startRedis starts redis-server on a free port.
func startRedis(ctx context.Context) (*redisServer, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w; `make setup` installs it", err)
	}
	addr, port, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "hgbench")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, binary, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "",
		"--appendonly", "no")
	if err := cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	r := &redisServer{addr: addr, url: "redis://" + addr, pid: cmd.Process.Pid,
		client: redis.NewClient(&redis.Options{Addr: addr})}
	r.stop = func() {
		_ = r.client.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	if err := waitFor(ctx, func() error { return r.client.Ping(ctx).Err() }); err != nil {
		r.stop()
		return nil, fmt.Errorf("redis-server does not answer: %w", err)
	}
	return r, nil
}

// freeAddr returns an address with a port that is free now.
func freeAddr() (addr, port string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer l.Close()
	addr = l.Addr().String()
	_, port, err = net.SplitHostPort(addr)
	return addr, port, err
}

// startLimit is how long a server may take to answer.
const startLimit = 10 * time.Second

// waitFor repeats ready until it succeeds, and returns its last error.
func waitFor(ctx context.Context, ready func() error) error {
	for more := after(startLimit); ; time.Sleep(20 * time.Millisecond) {
		if err := ready(); err == nil || ctx.Err() != nil || !more() {
			return err
		}
	}
}

// clockTick is the unit of /proc/PID/stat's times on Linux.
const clockTick = 10 * time.Millisecond

// cpuTimes returns the CPU time that each process and its children have used so far.
func cpuTimes(pids []int) ([]time.Duration, error) {
	var list []time.Duration
	for _, pid := range pids {
		used, err := treeTime(pid)
		if err != nil {
			return nil, err
		}
		list = append(list, used)
	}
	return list, nil
}

// cpuTime adds up the first so many of a process's times: in user and in kernel mode, and both of
// the children that it has waited for.
func cpuTime(pid, times int) (time.Duration, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The second field is the name in parentheses; utime is the 14th.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 15 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	ticks := int64(0)
	for _, f := range fields[11 : 11+times] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// treeTime returns the CPU time that a process and its children have used so far. PostgreSQL has a
// process for each session.
func treeTime(pid int) (time.Duration, error) {
	used, err := cpuTime(pid, 4)
	if err != nil {
		return 0, err
	}
	lists, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		return 0, err
	}
	for _, list := range lists {
		children, _ := os.ReadFile(list) // a thread that has ended has none
		for _, child := range strings.Fields(string(children)) {
			n, err := strconv.Atoi(child)
			if err != nil {
				return 0, err
			}
			if more, err := treeTime(n); err == nil { // one that has ended is its parent's
				used += more
			}
		}
	}
	return used, nil
}

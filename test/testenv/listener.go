package testenv

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A listener is a server's process on a port of its own, and what it takes to
// start it there again.
type listener struct {
	title  string // such as "Redis"
	log    string
	ready  string        // what the server logs once it listens
	within time.Duration // how long a start may take
	// command makes the command of a server on this port.
	command func(port int) *exec.Cmd
	// answers checks that the server, which listens, answers.
	answers func() error
	// kill ends the process at once, and whatever it has started.
	kill func(*process) error

	addr    string // host:port
	port    int
	release func() // gives the port back

	mu   sync.Mutex
	proc *process
}

var errPortTaken = errors.New("the port is taken")

// launch starts the server on a free port for the first time. Should something
// foreign take the port first, it tries another one.
func (l *listener) launch() error {
	for attempt := 1; ; attempt++ {
		port, release, err := reservePort()
		if err != nil {
			return err
		}
		l.port, l.addr, l.release = port, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), release
		if err = l.start(); err == nil {
			return nil
		}
		release()
		l.release = nil
		if !errors.Is(err, errPortTaken) || attempt == 5 {
			return err
		}
	}
}

// start starts the process and waits until it answers; if it does not, no
// process is left behind.
func (l *listener) start() error {
	proc, err := startCommand(l.name(), l.log, l.command(l.port))
	if err != nil {
		return err
	}
	err = waitFor(l.within, "start "+l.name(), func() (bool, string, error) {
		log := proc.newLog()
		if proc.exited() {
			if strings.Contains(log, "Address already in use") {
				return false, "", errPortTaken
			}
			return false, "", fmt.Errorf("it ended by itself (%v)", proc.err)
		}
		// The log proves that it is this server which will answer.
		if !strings.Contains(log, l.ready) {
			return false, "it does not listen yet", nil
		}
		if err := l.answers(); err != nil {
			return false, err.Error(), nil
		}
		return true, "", nil
	})
	if err != nil {
		return errors.Join(err, l.kill(proc))
	}
	l.mu.Lock()
	l.proc = proc
	l.mu.Unlock()
	return nil
}

// restart ends the server if it still runs and starts it again on the same port.
func (l *listener) restart() error {
	if err := l.kill(l.process()); err != nil {
		return err
	}
	if err := l.start(); err != nil {
		return fmt.Errorf("restart: %w\nits log ends with:\n%s", err, tail(l.log, 20))
	}
	return nil
}

// process is the one that was started last, or nil.
func (l *listener) process() *process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.proc
}

func (l *listener) running() bool { return !l.process().exited() }

func (l *listener) name() string { return l.title + " on " + l.addr }

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/web"
)

// A server is one HTTP listener and what serves it.
type server struct {
	name     string
	listener net.Listener
	*http.Server
}

// listen opens a listener; with an empty address it returns nil.
func listen(ctx context.Context, name, address string, h http.Handler, write time.Duration,
	log *slog.Logger) (*server, error) {
	if address == "" {
		return nil, nil
	}
	l, err := web.Listen(ctx, name, address, 0)
	if err != nil {
		return nil, err
	}
	return &server{name, l, web.NewServer(h, write, log)}, nil
}

// servers are the listeners of a program.
type servers struct {
	list   []*server
	wait   sync.WaitGroup
	failed chan error
}

func (s *servers) start(list ...*server) {
	s.failed = make(chan error, len(list))
	for _, one := range list {
		if one == nil {
			continue
		}
		s.list = append(s.list, one)
		s.wait.Go(func() {
			if err := one.Serve(one.listener); !errors.Is(err, http.ErrServerClosed) {
				s.failed <- fmt.Errorf("--%s: %w", one.name, err)
			}
		})
	}
}

// stop lets requests in flight finish, and cuts them when time is up.
func (s *servers) stop(within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for _, one := range s.list {
		if err := one.Shutdown(ctx); err != nil {
			_ = one.Close()
		}
	}
	s.wait.Wait()
}

// awaitWithin bounds one attempt of await.
const awaitWithin = 5 * time.Second

// await tries until it works, for a bounded time. It logs the first failure.
func await(ctx context.Context, log *slog.Logger, what string, limit time.Duration,
	try func(context.Context) error) error {
	by := time.Now().Add(limit)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		attempt, cancel := context.WithTimeout(ctx, awaitWithin)
		err := try(attempt)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().Add(pause).After(by):
			return fmt.Errorf("%s: not within %v: %w", what, limit, err)
		case pause == 50*time.Millisecond:
			log.Info("waiting for what is needed", "what", what, "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// A check asks whether a part works, not more often than once a second.
type check struct {
	name    string
	serving bool // the program is ready without it
	log     *slog.Logger
	ping    func(context.Context) error
	problem func(error) string // in words that may be shown to everybody; nil: it does not answer

	mu    sync.Mutex
	asked time.Time
	part  web.Part
}

const (
	askEvery  = time.Second
	askWithin = 2 * time.Second
)

func (c *check) look() web.Part {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.asked) < askEvery {
		return c.part
	}
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	before := c.part.Problem
	c.part = web.Part{Name: c.name, Serving: c.serving}
	if err := c.ping(ctx); err != nil {
		c.part.Problem = "does not answer"
		if c.problem != nil {
			c.part.Problem = c.problem(err)
		}
		if c.part.Problem != before { // the whole error may name hosts
			c.log.Warn("not ready", "part", c.name, "problem", c.part.Problem, "error", err)
		}
	}
	c.asked = time.Now()
	return c.part
}

// looks returns what every check says.
func looks(checks []*check) []web.Part {
	parts := make([]web.Part, len(checks))
	var wait sync.WaitGroup
	for i, c := range checks {
		wait.Go(func() { parts[i] = c.look() })
	}
	wait.Wait()
	return parts
}

// healthz answers as long as the process does.
func healthz(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "OK") }

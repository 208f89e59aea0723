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

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/web"
)

// A Server is one HTTP listener and what serves it.
type Server struct {
	name     string
	Listener net.Listener
	*http.Server
}

// Listen opens a listener; with an empty address it returns nil.
func Listen(ctx context.Context, name, address string, h http.Handler, write time.Duration,
	log *slog.Logger) (*Server, error) {
	if address == "" {
		return nil, nil
	}
	l, err := web.Listen(ctx, name, address, 0)
	if err != nil {
		return nil, err
	}
	return &Server{name, l, web.Bounds{}.NewServer(h, write, log)}, nil
}

// Servers are the listeners of a program.
type Servers struct {
	list []*Server
	wait sync.WaitGroup
	// Failed tells why a listener has failed.
	Failed chan error
}

// Start serves those of the listeners that are not nil.
func (s *Servers) Start(list ...*Server) {
	s.Failed = make(chan error, len(list))
	for _, one := range list {
		if one == nil {
			continue
		}
		s.list = append(s.list, one)
		s.wait.Go(func() {
			if err := one.Serve(one.Listener); !errors.Is(err, http.ErrServerClosed) {
				s.Failed <- fmt.Errorf("--%s: %w", one.name, err)
			}
		})
	}
}

// Stop lets requests in flight finish, and cuts them when time is up.
func (s *Servers) Stop(within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for _, one := range s.list {
		if err := one.Shutdown(ctx); err != nil {
			_ = one.Close()
		}
	}
	s.wait.Wait()
}

// awaitWithin bounds one attempt of Await.
const awaitWithin = 5 * time.Second

// Await tries until it works, for a bounded time. It logs the first failure.
func Await(ctx context.Context, log *slog.Logger, what string, limit time.Duration,
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
		if err := background.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// A Check asks whether a part works, not more often than once a second.
type Check struct {
	Name    string
	Serving bool // the program is ready without it
	Log     *slog.Logger
	Ping    func(context.Context) error
	Problem func(error) string // in words that may be shown to everybody; nil: it does not answer

	mu    sync.Mutex
	asked time.Time
	part  web.Part
}

const (
	askEvery  = time.Second
	askWithin = 2 * time.Second
)

func (c *Check) look() web.Part {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.asked) < askEvery {
		return c.part
	}
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	before := c.part.Problem
	c.part = web.Part{Name: c.Name, Serving: c.Serving}
	if err := c.Ping(ctx); err != nil {
		c.part.Problem = "does not answer"
		if c.Problem != nil {
			c.part.Problem = c.Problem(err)
		}
		if c.part.Problem != before { // the whole error may name hosts
			c.Log.Warn("not ready", "part", c.Name, "problem", c.part.Problem, "error", err)
		}
	}
	c.asked = time.Now()
	return c.part
}

// Looks returns what every check says.
func Looks(checks []*Check) []web.Part {
	parts := make([]web.Part, len(checks))
	var wait sync.WaitGroup
	for i, c := range checks {
		wait.Go(func() { parts[i] = c.look() })
	}
	wait.Wait()
	return parts
}

// Healthz answers as long as the process does.
func Healthz(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "OK") }

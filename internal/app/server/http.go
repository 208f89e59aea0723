package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/internal/wire/transport"
	counters "github.com/headgate-rls/headgate/ratelimit/httpapi"
)

// socketMode is --socket-mode, which was checked when the settings were read.
func socketMode(c *config.Config) os.FileMode {
	mode, _ := c.Permissions()
	return mode
}

const maxHTTPConnections = 4096 // of each listener, where there is memory for as many

// An httpServer is one HTTP listener.
type httpServer struct {
	*http.Server
	name     string
	listener net.Listener
}

// openHTTP opens the HTTP listeners that are configured.
func (s *server) openHTTP(ctx context.Context) error {
	admin, err := s.newAdminPaths()
	if err != nil {
		return err
	}
	p := &sharedPaths{admin: admin, home: counters.Page(),
		slots: first(s, func(a *addition) http.Handler { return a.api }),
		page:  first(s, func(a *addition) http.Handler { return a.page })}
	ready := web.Readiness{Draining: s.phase.draining.Load, Parts: s.parts}
	api := 10*time.Second + s.conf.Slots.Scheduler.Timeout
	conf := &s.conf.Admin
	var adminTLS *certFiles
	if conf.TLSCert != "" {
		adminTLS = &certFiles{flags: "admin", cert: conf.TLSCert, key: conf.TLSKey, clientCA: conf.ClientCA,
			protocols: httpProtocols, log: s.log}
	}
	for _, h := range []struct {
		name, address string
		handler       http.Handler
		write         time.Duration // how long an answer may take
		tls           *certFiles    // nil: no TLS
	}{
		{"http", s.conf.HTTP, p.before(s.httpHandler(ready), rooms{slots: true, admin: conf.Address == ""}), api, nil},
		{"debug", s.conf.Debug, s.debugHandler(), 2 * time.Minute, nil}, // profiles take their time
		{"metrics", s.conf.Metrics, s.metricsHandler(), api, nil},
		// A client with a certificate instead of a token can use slots here, where the same guard is in front of them.
		{"admin", conf.Address, p.before(admin, rooms{slots: s.conf.Slots.Auth, admin: true}), api, adminTLS},
	} {
		if h.address == "" {
			continue
		}
		l, err := web.Listen(ctx, h.name, h.address, socketMode(s.conf))
		if err != nil {
			return err
		}
		stats := new(web.Stats)
		s.metrics.addHTTP(h.name, stats)
		l = stats.Listener(l)
		if h.tls != nil {
			s.certs.follow(h.tls)
			over, err := serverTLS(h.tls)
			if err != nil {
				_ = l.Close()
				return err
			}
			l = tls.NewListener(l, over)
		}
		bounds := web.Bounds{Memory: s.bounds.pool, Stats: stats, HandshakeFailed: s.failures.failed(h.name), Turns: s.turns,
			First:       isHealthCheck,
			Connections: s.bounds.limit.Connections(maxHTTPConnections, otherConnection, httpFiles)}
		s.https = append(s.https, &httpServer{name: h.name, listener: l, Server: bounds.NewServer(h.handler, h.write, s.log)})
	}
	return nil
}

// closeHTTPWithin bounds how long the end waits for HTTP requests.
const closeHTTPWithin = 2 * time.Second

// closeServers lets requests in flight finish for a moment, then cuts them.
func closeServers(list []*httpServer) {
	ctx, cancel := context.WithTimeout(context.Background(), closeHTTPWithin)
	defer cancel()
	for _, h := range list {
		if err := h.Shutdown(ctx); err != nil {
			_ = h.Close()
		}
		_ = h.listener.Close() // in case it was never served
	}
}

// isHealthCheck reports whether a request is one that an orchestrator makes: if it is late, the process is ended.
func isHealthCheck(r *http.Request) bool {
	return r.URL.Path == "/healthcheck" || r.URL.Path == "/readyz"
}

func (s *server) httpHandler(ready http.Handler) http.Handler {
	mux := http.NewServeMux()
	json := transport.JSONHandler(s.limits.service, s.metrics.requests("json"))
	mux.Handle("/json", s.metrics.countHTTP("json", web.SameSite(s.refusals, json)))
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if s.phase.draining.Load() {
			http.Error(w, "draining", http.StatusInternalServerError) // 500 as the reference service
			return
		}
		if !s.phase.serving.Load() {
			http.Error(w, "waiting for rules", http.StatusInternalServerError)
			return
		}
		if s.conf.Limits.AsReference {
			_, _ = io.WriteString(w, "OK") // without the end of a line
			return
		}
		fmt.Fprintln(w, "OK")
	})
	mux.Handle("GET /readyz", ready)
	return mux
}

// sharedPaths are those that more than one listener may have.
type sharedPaths struct {
	slots http.Handler // of /slots and /api/v1/; nil without --slots
	admin http.Handler // of what begins with /admin/
	page  http.Handler // of /policies; nil without --policies
	home  http.Handler // of / and /limits
}

// rooms says which of the shared paths a listener has.
type rooms struct{ slots, admin bool }

// before returns a handler of the paths of slots and of the admin, as the listener has them, and
// next's for the rest. A ServeMux would redirect paths that end in ids such as "..".
func (p *sharedPaths) before(next http.Handler, has rooms) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case has.slots && p.slots != nil && (path == "/slots" || strings.HasPrefix(path, "/slots/") || strings.HasPrefix(path,
			"/api/v1/")):
			p.slots.ServeHTTP(w, r)
		case has.admin && strings.HasPrefix(path, "/admin/"):
			p.admin.ServeHTTP(w, r)
		case has.admin && p.page != nil && (path == "/policies" || strings.HasPrefix(path, "/policies/")):
			p.page.ServeHTTP(w, r)
		case has.admin && (path == "/" || path == "/limits" || strings.HasPrefix(path, "/limits/")):
			p.home.ServeHTTP(w, r)
		case path == "/policies" || path == "/slots":
			web.Error(w, http.StatusNotFound, "headgate serve without --policies URL has no page /policies, without --slots "+
				"URL no page /slots, and with --admin they may be at the other address")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// metricsHandler serves what monitoring asks for, and nothing else.
func (s *server) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+s.conf.MetricsPath, s.metrics.handler())
	return mux
}

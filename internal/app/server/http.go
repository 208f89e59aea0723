package server

import (
	"context"
	"crypto/tls"
	"expvar"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/ratelimit"
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

// An httpFront is what one of them serves, where, and how long an answer may take.
type httpFront struct {
	name, address string
	handler       http.Handler
	write         time.Duration
	tls           *certFiles // nil: no TLS
}

// httpFronts makes the HTTP servers.
type httpFronts struct {
	conf    *config.Config
	log     *slog.Logger
	metrics *serverMetrics
	phase   *phase
	service *ratelimit.Service
	slots   http.Handler // of /slots and /api/v1/; nil without --slots
	admin   http.Handler // of what begins with /admin/
	page    http.Handler // of /policies; nil without --policies
	home    http.Handler // of / and /limits
	ready   http.Handler
	// describe writes where the rules come from.
	describe func(io.Writer) error
	bounds   *bounds
	failures failures
	certs    *certWatch
	turns    *web.Turns // of all listeners
}

// open opens the HTTP listeners that are configured.
func (f *httpFronts) open(ctx context.Context) ([]*httpServer, error) {
	api := 10*time.Second + f.conf.Slots.Scheduler.Timeout
	fronts := []httpFront{
		{name: "http", address: f.conf.HTTP, handler: f.httpHandler(), write: api},
		{name: "debug", address: f.conf.Debug, handler: f.debugHandler(), write: 2 * time.Minute}, // profiles take their time
	}
	if f.conf.Metrics != "" {
		fronts = append(fronts, httpFront{name: "metrics", address: f.conf.Metrics, handler: f.metricsHandler(), write: api})
	}
	// Who has a client certificate instead of a token can use slots here, where the same guard is in front of them.
	admin := httpFront{name: "admin", address: f.conf.Admin.Address, write: api,
		handler: f.before(f.admin, f.conf.Slots.Auth, true)}
	if a := &f.conf.Admin; a.TLSCert != "" {
		admin.tls = &certFiles{flags: "admin", cert: a.TLSCert, key: a.TLSKey, clientCA: a.ClientCA,
			protocols: httpProtocols, log: f.log}
	}
	fronts = append(fronts, admin)
	var list []*httpServer
	for _, h := range fronts {
		if h.address == "" {
			continue
		}
		l, err := web.Listen(ctx, h.name, h.address, socketMode(f.conf))
		if err != nil {
			closeServers(list)
			return nil, err
		}
		stats := new(web.Stats)
		f.metrics.addHTTP(h.name, stats)
		l = stats.Listener(l)
		if h.tls != nil {
			f.certs.files = append(f.certs.files, h.tls)
			conf, err := serverTLS(h.tls)
			if err != nil {
				_ = l.Close()
				closeServers(list)
				return nil, err
			}
			l = tls.NewListener(l, conf)
		}
		bounds := web.Bounds{Memory: f.bounds.pool, Stats: stats, HandshakeFailed: f.failures.failed(h.name), Turns: f.turns,
			Connections: f.bounds.limit.Connections(maxHTTPConnections, otherConnection)}
		list = append(list, &httpServer{name: h.name, listener: l, Server: bounds.NewServer(h.handler, h.write, f.log)})
	}
	return list, nil
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

func (f *httpFronts) httpHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/json", f.metrics.countHTTP("json", transport.JSONHandler(f.service, f.metrics.requests("json"))))
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if f.phase.draining.Load() {
			http.Error(w, "draining", http.StatusInternalServerError) // 500 as the reference service
			return
		}
		if !f.phase.serving.Load() {
			http.Error(w, "waiting for rules", http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "OK")
	})
	mux.Handle("GET /readyz", f.ready)
	return f.before(mux, true, f.conf.Admin.Address == "")
}

// before returns a handler of the paths of slots and of the admin, as the listener has them, and
// next's for the rest. A ServeMux would redirect paths that end in ids such as "..".
func (f *httpFronts) before(next http.Handler, slots, admin bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case slots && f.slots != nil && (path == "/slots" || strings.HasPrefix(path, "/slots/") || strings.HasPrefix(path,
			"/api/v1/")):
			web.EndTurn(r.Context()) // it waits for a database
			f.slots.ServeHTTP(w, r)
		case admin && strings.HasPrefix(path, "/admin/"):
			f.admin.ServeHTTP(w, r)
		case admin && f.page != nil && (path == "/policies" || strings.HasPrefix(path, "/policies/")):
			f.page.ServeHTTP(w, r)
		case admin && (path == "/" || path == "/limits" || strings.HasPrefix(path, "/limits/")):
			f.home.ServeHTTP(w, r)
		case path == "/policies" || path == "/slots":
			web.Error(w, http.StatusNotFound, "headgate serve without --policies URL has no page /policies, without --slots "+
				"URL no page /slots, and with --admin they may be at the other address")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// metricsHandler serves what monitoring asks for, and nothing else.
func (f *httpFronts) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+f.conf.MetricsPath, f.metrics.handler())
	return mux
}

// debugHandler serves what only operators should see, and a list of it.
func (f *httpFronts) debugHandler() http.Handler {
	mux, list := http.NewServeMux(), ""
	for _, page := range f.debugPages() {
		if page.path != f.conf.MetricsPath || f.conf.Metrics != "" {
			mux.Handle(page.path, page.handler)
			list += page.path + ": " + page.help + "\n"
		}
	}
	if f.conf.Metrics == "" {
		mux.Handle("GET "+f.conf.MetricsPath, f.metrics.handler())
		list += f.conf.MetricsPath + ": metrics for Prometheus\n"
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, list) })
	return mux
}

// A debugPage is a row of the table of the debug port, whose paths are those of envoyproxy/ratelimit.
type debugPage struct {
	path, help string
	handler    http.HandlerFunc
}

func (f *httpFronts) debugPages() []debugPage {
	return []debugPage{
		{"/debug/pprof/", "profiles of the process, and a list of them", pprof.Index},
		{"/debug/pprof/cmdline", "the command line", pprof.Cmdline},
		{"/debug/pprof/profile", "a profile of the CPU", pprof.Profile},
		{"/debug/pprof/symbol", "names of addresses in profiles", pprof.Symbol},
		{"/debug/pprof/trace", "a trace of the runtime", pprof.Trace},
		{"/rlconfig", "the rules in force", f.writeRules},
		{"/stats", "memory and command line of the process, from package expvar", writeVariables},
	}
}

func (f *httpFronts) writeRules(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_ = f.describe(w) // the reader may be gone
	_ = f.service.Rules().Dump(w)
}

// writeVariables writes what package expvar knows, as envoyproxy/ratelimit does.
func writeVariables(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	expvar.Do(func(v expvar.KeyValue) { fmt.Fprintf(w, "%s: %s\n", v.Key, v.Value) })
}

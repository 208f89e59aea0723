package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/ratelimit"
)

// tasks are the goroutines of a server, which it waits for.
type tasks struct{ wg sync.WaitGroup }

func (t *tasks) start(f func()) { t.wg.Go(f) }
func (t *tasks) wait()          { t.wg.Wait() }

// An httpServer is one HTTP listener.
type httpServer struct {
	http.Server
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

// httpServers opens the HTTP listeners that are configured.
func (s *server) httpServers(ctx context.Context) ([]*httpServer, error) {
	api := 10*time.Second + s.conf.Slots.Timeout
	fronts := []httpFront{
		{name: "http", address: s.conf.HTTP, handler: s.httpHandler(), write: api},
		{name: "debug", address: s.conf.Debug, handler: s.debugHandler(), write: 2 * time.Minute}, // profiles take their time
	}
	if s.conf.Metrics != "" {
		fronts = append(fronts, httpFront{name: "metrics", address: s.conf.Metrics, handler: s.metricsHandler(), write: api})
	}
	if a := &s.conf.Admin; s.slots != nil {
		front := httpFront{name: "admin", address: a.Address, handler: s.slots.adminListener(), write: api}
		if a.TLSCert != "" {
			front.tls = &certFiles{flags: "admin", cert: a.TLSCert, key: a.TLSKey, clientCA: a.ClientCA, log: s.log}
		}
		fronts = append(fronts, front)
	}
	var list []*httpServer
	for _, h := range fronts {
		if h.address == "" {
			continue
		}
		l, err := listen(ctx, h.name, h.address, s.socketMode())
		if err != nil {
			closeServers(list)
			return nil, err
		}
		if h.tls != nil {
			conf, err := serverTLS(h.tls)
			if err != nil {
				_ = l.Close()
				closeServers(list)
				return nil, err
			}
			l = tls.NewListener(l, conf)
		}
		list = append(list, &httpServer{name: h.name, listener: l, Server: http.Server{
			Handler:           h.handler,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      h.write,
			IdleTimeout:       time.Minute,
			MaxHeaderBytes:    32 << 10,
		}})
	}
	return list, nil
}

// socketMode is --socket-mode, which was checked at start.
func (s *server) socketMode() os.FileMode {
	mode, _ := s.conf.Permissions()
	return mode
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

func (s *server) httpHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/json", s.metrics.CountHTTP("json", ratelimit.JSONHandler(s.service, s.metrics.Requests("json"))))
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if s.draining.Load() {
			http.Error(w, "draining", http.StatusInternalServerError) // 500 as the reference service
			return
		}
		fmt.Fprintln(w, "OK")
	})
	mux.HandleFunc("GET /readyz", s.readyz)
	if s.slots != nil {
		return s.slots.before(mux, true, s.conf.Admin.Address == "")
	}
	return mux
}

// metricsHandler serves what monitoring asks for, and nothing else.
func (s *server) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics.Handler())
	return mux
}

// debugHandler serves what only operators should see.
func (s *server) debugHandler() http.Handler {
	mux := http.NewServeMux()
	if s.conf.Metrics == "" {
		mux.Handle("GET /metrics", s.metrics.Handler())
	}
	mux.HandleFunc("GET /rlconfig", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_ = s.service.Rules().Dump(w) // the reader may be gone
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

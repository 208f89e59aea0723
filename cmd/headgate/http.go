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

// httpServers opens the HTTP listeners that are configured.
func (s *server) httpServers(ctx context.Context) ([]*httpServer, error) {
	var list []*httpServer
	for _, h := range []struct {
		name, address string
		handler       http.Handler
		write         time.Duration
	}{
		{"http", s.conf.HTTP, s.httpHandler(), 10*time.Second + s.conf.Slots.Timeout},
		{"debug", s.conf.Debug, s.debugHandler(), 2 * time.Minute}, // profiles take their time
		{"admin", s.adminAddress(), s.adminHandler(), 10*time.Second + s.conf.Slots.Timeout},
	} {
		if h.address == "" {
			continue
		}
		l, err := listen(ctx, h.name, h.address, s.socketMode())
		if err != nil {
			closeServers(list)
			return nil, err
		}
		if h.name == "admin" && s.conf.Admin.TLSCert != "" {
			conf, err := serverTLS(s.conf.Admin.TLSCert, s.conf.Admin.TLSKey, s.conf.Admin.ClientCA, s.log)
			if err != nil {
				_ = l.Close()
				closeServers(list)
				return nil, fmt.Errorf("--admin-tls-cert: %w", err)
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

// closeServers lets requests in flight finish for a moment, then cuts them.
func closeServers(list []*httpServer) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
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
	mux.Handle("/json", ratelimit.JSONHandler(s.service, s.metrics.Requests("json")))
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if s.draining.Load() {
			http.Error(w, "draining", http.StatusInternalServerError) // 500 as the reference service
			return
		}
		fmt.Fprintln(w, "OK")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s.draining.Load() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		if wrong := s.backend.Load(); wrong != nil {
			http.Error(w, "backend "+s.store.caps.Name+": "+*wrong, http.StatusServiceUnavailable)
			return
		}
		if s.slots != nil {
			if wrong := s.slots.wrong.Load(); wrong != nil {
				http.Error(w, "database of slots: "+*wrong, http.StatusServiceUnavailable)
				return
			}
		}
		fmt.Fprintln(w, "ready")
	})
	if s.slots != nil {
		return s.slots.before(mux, s.conf.Admin.Address == "")
	}
	return mux
}

// adminAddress is where the admin paths are if not with the others.
func (s *server) adminAddress() string {
	if s.slots == nil {
		return "" // there are none
	}
	return s.conf.Admin.Address
}

func (s *server) adminHandler() http.Handler {
	if s.slots == nil {
		return http.NotFoundHandler()
	}
	return s.slots.admin
}

func (s *server) debugHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics.Handler())
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

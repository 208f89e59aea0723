package server

import (
	"expvar"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/web"
)

// A debugPage is one of the debug port.
type debugPage struct {
	path, help string
	handler    http.HandlerFunc
}

// debugHandler serves what only operators should see, and a list of it. The paths are those of envoyproxy/ratelimit.
func (s *server) debugHandler() http.Handler {
	mux, list := http.NewServeMux(), ""
	for _, page := range slices.Concat(profilePages, []debugPage{
		{"/debug/pprof/cmdline", "the command line, without secrets", writeCommandLine},
		{"/rlconfig", "the rules in force", s.writeRules},
		{"/stats", "memory and command line of the process, from package expvar, without secrets", writeVariables},
	}) {
		if page.path != s.conf.MetricsPath || s.conf.Metrics != "" {
			mux.Handle(page.path, page.handler)
			list += page.path + ": " + page.help + "\n"
		}
	}
	if s.conf.Metrics == "" {
		mux.Handle("GET "+s.conf.MetricsPath, s.metrics.handler())
		list += s.conf.MetricsPath + ": metrics for Prometheus\n"
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, list) })
	isMetrics := func(r *http.Request) bool { return s.conf.Metrics == "" && r.URL.Path == s.conf.MetricsPath }
	return web.Private{Hosts: s.conf.DebugHosts, Setting: "--debug-host", Refusals: s.refusals, Open: isMetrics}.Wrap(mux)
}

// withoutTurn is for a page that waits for most of its time.
func withoutTurn(page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer web.Yield(r.Context())()
		page(w, r)
	}
}

func (s *server) writeRules(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if describe := s.limits.rules.describe; describe != nil {
		_ = describe(w) // the reader may be gone
	}
	dump := s.limits.service.Rules().Dump
	if s.conf.Limits.AsReference {
		dump = s.limits.service.Rules().DumpAsReference
	}
	_ = dump(w)
}

// commandLine is that of the process, without the secrets of its settings.
func commandLine() []string { return config.Settings().Hide(os.Args) }

// writeCommandLine writes the command line as package pprof does, which knows no secrets.
func writeCommandLine(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, strings.Join(commandLine(), "\x00"))
}

// writeVariables writes what package expvar knows, as envoyproxy/ratelimit does, but for secrets in the command line.
func writeVariables(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	expvar.Do(func(v expvar.KeyValue) {
		if v.Key != "cmdline" {
			fmt.Fprintf(w, "%s: %s\n", v.Key, v.Value)
			return
		}
		var quoted []string
		for _, arg := range commandLine() {
			quoted = append(quoted, strconv.Quote(arg))
		}
		fmt.Fprintf(w, "%s: [%s]\n", v.Key, strings.Join(quoted, ","))
	})
}

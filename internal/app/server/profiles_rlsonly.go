//go:build rlsonly

package server

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
)

// profilePages are those of package net/http/pprof that `go tool pprof` and `go tool trace` ask for. That package would
// make the program larger, as it also subtracts profiles.
var profilePages = []debugPage{
	{"/debug/pprof/", "profiles of the process, and a list of them", writeProfile},
	{"/debug/pprof/profile", "a profile of the CPU",
		withoutTurn(recorded(30, pprof.StartCPUProfile, pprof.StopCPUProfile))},
	{"/debug/pprof/trace", "a trace of the runtime", withoutTurn(recorded(1, trace.Start, trace.Stop))},
}

// writeProfile writes the profile that a path names, or a list of all.
func writeProfile(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/debug/pprof/")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if name == "" {
		for _, p := range pprof.Profiles() {
			fmt.Fprintf(w, "%d\t%s\n", p.Count(), p.Name())
		}
		return
	}
	p := pprof.Lookup(name)
	if p == nil {
		http.Error(w, "unknown profile; /debug/pprof/ lists them", http.StatusNotFound)
		return
	}
	if name == "heap" && r.FormValue("gc") != "" {
		runtime.GC()
	}
	debug, _ := strconv.Atoi(r.FormValue("debug"))
	if debug == 0 {
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	_ = p.WriteTo(w, debug) // the reader may be gone
}

// maxRecorded bounds for how many seconds a page records.
const maxRecorded = 300

// recorded is a page that records for as many seconds as the request says.
func recorded(seconds float64, start func(io.Writer) error, stop func()) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseFloat(r.FormValue("seconds"), 64)
		if err != nil || n <= 0 {
			n = seconds
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		if err := start(w); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer stop()
		_ = background.Sleep(r.Context(), time.Duration(min(n, maxRecorded)*float64(time.Second))) // the reader may be gone
	}
}

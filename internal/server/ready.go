package server

import (
	"fmt"
	"net/http"
	"strings"
)

// A part is something that the service needs, and what is wrong with it: "" if
// nothing is.
type part struct {
	name, problem string
	// serving: the service is ready all the same.
	serving bool
}

// readiness answers /readyz: whether every part that is needed works. With ?verbose it
// has a line for every part.
type readiness struct {
	draining func() bool
	parts    func() []part
}

func (ready readiness) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if ready.draining() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	var all, wrong strings.Builder
	for _, p := range ready.parts() {
		state := "ok"
		if p.problem != "" {
			state = p.problem
		}
		fmt.Fprintf(&all, "%s: %s\n", p.name, state)
		if p.problem != "" && !p.serving && wrong.Len() == 0 {
			fmt.Fprintf(&wrong, "%s: %s\n", p.name, p.problem)
		}
	}
	code, text := http.StatusOK, "ready\n"
	if wrong.Len() > 0 {
		code, text = http.StatusServiceUnavailable, wrong.String()
	}
	if r.URL.Query().Has("verbose") {
		text = map[bool]string{true: "ready\n", false: "not ready\n"}[code == http.StatusOK] + all.String()
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprint(w, text)
}

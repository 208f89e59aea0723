package web

import (
	"fmt"
	"net/http"
	"strings"
)

// A Part is something that a service needs, and what is wrong with it: "" if
// nothing is.
type Part struct {
	Name, Problem string
	// Serving: the service is ready all the same.
	Serving bool
	// Shared: other replicas have the same problem, such as a store that is away.
	Shared bool
	// Detail is a figure or two for operators, such as how old it is; possibly empty.
	Detail string
}

// Readiness answers /readyz: whether every part that is needed works. With ?verbose it
// has a line for every part. With ?own parts that replicas share do not count: whether another
// replica would do better.
type Readiness struct {
	Draining func() bool
	Parts    func() []Part
}

// ServeHTTP implements http.Handler.
func (ready Readiness) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if ready.Draining() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	own := r.URL.Query().Has("own")
	var all, wrong strings.Builder
	for _, p := range ready.Parts() {
		state := "ok"
		if p.Problem != "" {
			state = strings.Join(strings.Fields(p.Problem), " ") // one line, also of a driver's several
		}
		fmt.Fprintf(&all, "%s: %s\n", p.Name, state)
		if p.Problem != "" && !p.Serving && !(own && p.Shared) && wrong.Len() == 0 {
			fmt.Fprintf(&wrong, "%s: %s\n", p.Name, p.Problem)
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

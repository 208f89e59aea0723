package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
)

// A part is something that the service needs, and what is wrong with it: "" if
// nothing is.
type part struct {
	name, problem string
	// serving: the service is ready all the same.
	serving bool
}

func (s *server) parts() []part {
	backend, _ := s.backend.problem()
	list := []part{{name: "backend " + s.store.caps.Name, problem: backend}}
	if s.slots != nil {
		database, _ := s.slots.database.problem()
		list = append(list, part{name: "database of slots", problem: database})
	}
	return append(list, part{name: "rules", problem: rulesProblem(s.rules.Load()), serving: true})
}

// rulesProblem names the files that have errors and the domains that suffer.
// What the errors are is in the log: this page has no guard.
func rulesProblem(o *descriptors.Outcome) string {
	if o == nil || o.Err == nil {
		return ""
	}
	const most = 20
	var list []string
	errors := o.Errors()
	for _, file := range slices.Sorted(maps.Keys(errors)) {
		if len(list) == most {
			list = append(list, fmt.Sprintf("and %d more files", len(errors)-most))
			break
		}
		list = append(list, file+" has "+count(errors[file], "error"))
	}
	if len(errors) == 0 {
		list = append(list, "the files cannot be read")
	}
	for _, d := range []struct {
		what  string
		names []string
	}{{"domains as before: ", o.Kept}, {"domains that are not limited: ", o.Missing}} {
		if len(d.names) > 0 {
			list = append(list, d.what+strings.Join(d.names[:min(len(d.names), most)], " "))
		}
	}
	return strings.Join(list, "; ")
}

// readyz says whether the service is ready; with ?verbose it has a line for
// every part.
func (s *server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	var all, wrong strings.Builder
	for _, p := range s.parts() {
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

package descriptors

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A reference says that a limit called from, if it has a name, replaces those
// called to. With an empty to it only says that from exists.
type reference struct {
	domain, from, to string
	place            Problem // without a message
}

// maxCircles bounds how many circles of replaces are reported.
const maxCircles = 100

// replaces reads the names that a limit replaces, and notes its own.
func (l *loader) replaces(n *yaml.Node, t *twig, r *Rule, own string) {
	domain := t.domain().key
	if own != "" {
		l.refs = append(l.refs, reference{domain: domain, from: own})
	}
	if n == nil || isNull(n) {
		return
	}
	l.list(n, t, "replaces", func(e *yaml.Node) {
		f, ok := l.fields(e, levelReplaces, t)
		if !ok {
			return
		}
		name := ""
		if v := f.get("name"); v != nil {
			if name, ok = l.text(v, t, "name", maxName); !ok {
				return
			}
		}
		switch {
		case name == "":
			l.errorf(e, t, "an entry of replaces must name a limit")
		case name == own:
			l.errorf(e, t, "the limit %q replaces itself", own)
		default:
			if !slices.Contains(r.Replaces, name) {
				r.Replaces = append(r.Replaces, name)
			}
			l.refs = append(l.refs, reference{domain, own, name,
				Problem{File: l.file, Line: e.Line, Col: e.Column, Path: t.path()}})
		}
	})
}

// checkReplaces looks at the names of all limits together: those that are
// replaced must exist, and no limits may replace each other in a circle, since
// then none of them would apply.
func (l *loader) checkReplaces() {
	names := map[[2]string]bool{}
	for _, r := range l.refs {
		if r.from != "" {
			names[[2]string{r.domain, r.from}] = true
		}
	}
	next := map[[2]string][]*reference{}
	for i := range l.refs {
		r := &l.refs[i]
		if r.to == "" {
			continue
		}
		if !names[[2]string{r.domain, r.to}] {
			p := r.place
			p.Warning = true
			p.Message = fmt.Sprintf("replaces %q, but no limit of the domain has this name", r.to)
			l.add(p)
		} else if r.from != "" {
			from := [2]string{r.domain, r.from}
			next[from] = append(next[from], r)
		}
	}
	for range maxCircles {
		circle := findCircle(l.refs, next)
		if circle == nil {
			return
		}
		p := circle[0].place
		var b strings.Builder
		for _, r := range circle {
			fmt.Fprintf(&b, "%q replaces ", r.from)
			delete(next, [2]string{r.domain, r.from})
		}
		p.Message = fmt.Sprintf("%s%q: limits that replace each other would all not apply", b.String(), circle[0].from)
		l.add(p)
	}
}

// findCircle returns the references of one circle in next, nil if none is
// left. It looks at names in the order of refs, so that what it finds does not
// depend on the order of maps.
func findCircle(refs []reference, next map[[2]string][]*reference) []*reference {
	type step struct {
		name [2]string
		edge int // which of its references was followed
	}
	done := map[[2]string]bool{}
	for i := range refs {
		start := [2]string{refs[i].domain, refs[i].from}
		if done[start] || len(next[start]) == 0 {
			continue
		}
		way, on := []step{{start, 0}}, map[[2]string]int{start: 0}
		for len(way) > 0 {
			last := &way[len(way)-1]
			if last.edge == len(next[last.name]) {
				done[last.name] = true
				delete(on, last.name)
				way = way[:len(way)-1]
				continue
			}
			r := next[last.name][last.edge]
			last.edge++
			to := [2]string{r.domain, r.to}
			if at, ok := on[to]; ok {
				var circle []*reference
				for _, s := range way[at:] {
					circle = append(circle, next[s.name][s.edge-1])
				}
				return circle
			}
			if !done[to] {
				on[to] = len(way)
				way = append(way, step{to, 0})
			}
		}
	}
	return nil
}

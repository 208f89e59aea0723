package descriptors

import (
	"fmt"
	"strings"
)

// A reference says that a limit called from, if it has a name, replaces those
// called to. With an empty to it only says that from exists.
type reference struct {
	domain, from, to string
	place            Problem // without a message
}

// maxCircles bounds how many circles of replaces are reported.
const maxCircles = 100

// checkReplaces looks at the names of all limits together: those that are
// replaced must exist, and no limits may replace each other in a circle, since
// then none of them would apply.
func (b *builder) checkReplaces() {
	refs, names := b.refs, map[[2]string]bool{}
	for _, r := range refs {
		if r.from != "" {
			names[[2]string{r.domain, r.from}] = true
		}
	}
	next := map[[2]string][]*reference{}
	for i := range refs {
		r := &refs[i]
		if r.to == "" {
			continue
		}
		if !names[[2]string{r.domain, r.to}] {
			p := r.place
			p.Warning = true
			p.Message = fmt.Sprintf("replaces %q, but no limit of the domain has this name", r.to)
			b.Add(p)
		} else if r.from != "" {
			from := [2]string{r.domain, r.from}
			next[from] = append(next[from], r)
		}
	}
	for range maxCircles {
		circle := findCircle(refs, next)
		if circle == nil {
			break
		}
		p := circle[0].place
		var text strings.Builder
		for _, r := range circle {
			fmt.Fprintf(&text, "%q replaces ", r.from)
			delete(next, [2]string{r.domain, r.from})
		}
		p.Message = fmt.Sprintf("%s%q: limits that replace each other would all not apply", &text, circle[0].from)
		b.Add(p)
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

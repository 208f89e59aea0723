package descriptors

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// rule reads one entry of a descriptors list, and everything below it.
func (l *loader) rule(n *yaml.Node, parent *twig) {
	if l.nodes++; l.nodes > maxRules {
		if !l.stop {
			l.errorf(n, parent, "more than %d rules", maxRules)
		}
		l.stop = true
		return
	}
	if parent.depth == maxDepth {
		l.errorf(n, parent, "rules are nested deeper than %d", maxDepth)
		return
	}
	t := &twig{parent: parent, depth: parent.depth + 1, file: l.file, line: n.Line, col: n.Column}
	if n.Kind == yaml.MappingNode {
		t.key, t.value = l.peek(n, "key", maxKey), l.peek(n, "value", maxValue)
	}
	f, ok := l.fields(n, levelRule, t)
	if !ok {
		return
	}
	l.identity(n, f, t)
	r := &Rule{Domain: t.domain().key}
	l.modes(f, t, r)
	l.policy(f, t, r)
	l.limitsOf(n, f, t, r)
	l.concurrencyOf(f, t, r)
	below := f.get("descriptors")
	leaf := below == nil || isNull(below) || below.Kind == yaml.SequenceNode && len(below.Content) == 0
	limited := len(r.Limits) > 0 || r.Unlimited || r.Concurrency != nil
	l.pointless(f, t, r, leaf)
	if limited || leaf {
		l.finish(t, r)
	}
	if below != nil && !isNull(below) {
		l.list(below, t, "descriptors", func(n *yaml.Node) { l.rule(n, t) })
	}
}

// identity reads key and value, and puts t among its siblings.
func (l *loader) identity(n *yaml.Node, f fields, t *twig) {
	k := f.get("key")
	if k == nil {
		l.errorf(n, t, "the rule has no key")
		return
	}
	ok := false
	if t.key, ok = l.text(k, t, "key", maxKey); !ok {
		return
	}
	if t.key == "" {
		l.errorf(k, t, "the rule's key is empty")
		return
	}
	if v := f.get("value"); v != nil {
		if t.value, ok = l.text(v, t, "value", maxValue); !ok {
			return
		}
		if t.value == "" {
			l.warnf(v, t, "the value is empty, so the rule applies to every value of the key; leave value out to say so")
		}
	}
	p := t.parent
	if p.ids == nil {
		p.ids = map[string]*twig{}
	}
	if first := p.ids[t.id()]; first != nil {
		l.duplicate(n, t, first)
		return
	}
	p.ids[t.id()] = t
	p.children = append(p.children, t)
}

func (l *loader) duplicate(n *yaml.Node, t, first *twig) {
	if t.key == first.key {
		l.errorf(n, t, "duplicate rule %q, first in %s:%d", t.id(), first.file, first.line)
		return
	}
	l.errorf(n, t, "key %q with value %q is spelt %q like key %q with value %q in %s:%d; statistics could not tell them apart",
		t.key, t.value, t.id(), first.key, first.value, first.file, first.line)
}

// domain returns the root above t.
func (t *twig) domain() *twig {
	for t.parent != nil {
		t = t.parent
	}
	return t
}

// modes reads the reference's switches and metadata.
func (l *loader) modes(f fields, t *twig, r *Rule) {
	r.Shadow = l.boolean(f.get("shadow_mode"), t, "shadow_mode")
	r.Quota = l.boolean(f.get("quota_mode"), t, "quota_mode")
	r.Metric.Detailed = l.boolean(f.get("detailed_metric"), t, "detailed_metric")
	t.metric = l.boolean(f.get("value_to_metric"), t, "value_to_metric")
	if n := f.get("share_threshold"); n != nil && l.boolean(n, t, "share_threshold") {
		switch {
		case !strings.Contains(t.key+t.value, "*"):
			l.errorf(n, t, "share_threshold needs a * in the rule's value (or key): there is nothing to share")
		case t.value == "":
			t.shared = "*"
		default:
			t.shared = t.value
		}
	}
	n := f.get("metadata")
	if n == nil || isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		l.errorf(n, t, "metadata must be a mapping of keys to values, not %s", describe(n))
		return
	}
	left := maxMetadataNodes
	r.Metadata, _ = l.tree(n, t, 0, &left).(map[string]any)
	if left < 0 {
		l.errorf(n, t, "metadata has more than %d values", maxMetadataNodes)
	}
}

// pointless reports fields that do nothing on a rule that limits nothing.
func (l *loader) pointless(f fields, t *twig, r *Rule, leaf bool) {
	if f.get("rate_limit") != nil || f.get("limits") != nil {
		return
	}
	if n := f.get("response"); n != nil {
		l.errorf(n, t, "response needs a rate_limit or limits in the same rule; rules below do not inherit it")
	}
	if f.get("concurrency") != nil {
		return
	}
	for _, name := range []string{"shadow_mode", "quota_mode", "detailed_metric", "metadata"} {
		n := f.get(name)
		set := name == "shadow_mode" && r.Shadow || name == "quota_mode" && r.Quota ||
			name == "detailed_metric" && r.Metric.Detailed || name == "metadata" && r.Metadata != nil
		if set {
			l.warnf(n, t, "%s has no effect: the rule itself has no rate_limit, no limits and no concurrency", name)
		}
	}
	if leaf && t.metric {
		l.warnf(f.get("value_to_metric"), t, "value_to_metric has no effect: neither the rule nor one below it has a limit")
	}
	for _, name := range []string{"on_backend_error", "on_overload", "charge"} {
		if n := f.get(name); n != nil {
			l.errorf(n, t, "%s needs a rate_limit, limits or concurrency in the same rule; rules below do not inherit it", name)
		}
	}
}

// finish numbers the rule and gives it what it has from the rules above it.
func (l *loader) finish(t *twig, r *Rule) {
	var path []string
	shared := make([]string, t.depth)
	valueAt := make([]bool, t.depth)
	anyShared, anyMetric := false, false
	for u := t; u.parent != nil; u = u.parent {
		path = append(path, u.id())
		shared[u.depth-1], valueAt[u.depth-1] = u.shared, u.metric
		anyShared = anyShared || u.shared != ""
		anyMetric = anyMetric || u.metric
	}
	for i, j := 0, len(path)-1; i < j; i, j = i+1, j-1 {
		path[i], path[j] = path[j], path[i]
	}
	r.Path = strings.Join(path, ".")
	r.ID = len(l.rules)
	if anyMetric || r.Metric.Detailed {
		r.ids = path
	}
	if anyShared {
		r.shared = shared
	}
	if anyMetric {
		r.Metric.ValueAt = valueAt
	}
	r.line, r.file = t.line, t.file
	t.rule = r
	l.rules = append(l.rules, r)
}

// at reports a problem of a rule when its file is no longer being read.
func (l *loader) at(t *twig, warning bool, format string, args ...any) {
	l.add(Problem{t.file, t.line, t.col, t.path(), fmt.Sprintf(format, args...), warning})
}

// compile turns what was read into a Set.
func (l *loader) compile() *Set {
	s := &Set{domains: make(map[string]*domain, len(l.order)), rules: l.rules}
	for _, d := range l.order {
		s.domains[d.key] = &domain{root: l.level(d), resources: l.resourceIndex(d)}
	}
	return s
}

// level compiles the children of t.
func (l *loader) level(t *twig) *level {
	if len(t.children) == 0 {
		return nil
	}
	lv := &level{}
	var wild []*twig
	var nodes []*node
	for _, c := range t.children {
		n := &node{rule: c.rule, next: l.level(c)}
		switch {
		case strings.Contains(c.key, "*") || strings.Contains(c.value, "*"):
			wild, nodes = append(wild, c), append(nodes, n)
		case c.value == "":
			if lv.bare == nil {
				lv.bare = map[string]*node{}
			}
			lv.bare[c.key] = n
		default:
			if lv.exact == nil {
				lv.exact = map[Entry]*node{}
			}
			lv.exact[Entry{c.key, c.value}] = n
		}
	}
	if len(wild) > 0 {
		lv.wild = newWildcards(wild, nodes, func(t *twig, inner int) {
			l.at(t, false, "more than %d wildcards of one level have the same beginning and end "+
				"and differ only between their *; matching them would be slow", inner)
		})
		l.shadowed(t, lv, wild)
	}
	return lv
}

// shadowed warns of rules that can never apply because a wildcard wins.
//
// A wildcard matches everything another one matches exactly if it matches the
// other's text: only a * can match a *.
func (l *loader) shadowed(t *twig, lv *level, wild []*twig) {
	warn := func(c *twig, by int32, why string) {
		w := wild[by]
		l.at(c, true, "the rule never applies: %s %q in %s:%d matches all it would", why, w.id(), w.file, w.line)
	}
	every := func(c *twig) *Entry {
		if c.value == "" {
			return &Entry{c.key, "*"}
		}
		return &Entry{c.key, c.value}
	}
	for i, c := range wild {
		if by := lv.wild.lowest(every(c), new(int)); by < int32(i) {
			warn(c, by, "the earlier")
		}
	}
	for _, c := range t.children {
		if c.value == "" && !strings.Contains(c.key, "*") {
			if by := lv.wild.lowest(every(c), new(int)); by != noNode {
				warn(c, by, "wildcards come before it, and")
			}
		}
	}
}

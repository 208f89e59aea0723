package rulefile

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
)

// rule reads one entry of a descriptors list, and everything below it. It returns
// nil if that is no rule at all.
func (l *loader) rule(n *yaml.Node, parent *twig) *descriptors.RuleSpec {
	if l.enough(parent) {
		return nil
	}
	r := &descriptors.RuleSpec{Body: descriptors.Body{Place: l.place(n)}}
	t := &twig{parent: parent, depth: parent.depth + 1}
	if n.Kind == yaml.MappingNode {
		t.key, t.value = l.peek(n, "key"), l.peek(n, "value")
	}
	f, ok := l.fields(n, levelRule, t)
	if !ok {
		return nil
	}
	r.Fields = written(f)
	r.Broken = !l.identity(n, f, t)
	r.Key, r.Value = t.key, t.value
	l.addresses(f, t, r)
	l.modes(f, t, &r.Body)
	r.ValueToMetric = l.boolean(f.get("value_to_metric"), t, "value_to_metric")
	r.ShareThreshold = l.boolean(f.get("share_threshold"), t, "share_threshold")
	l.policy(f, t, &r.Body)
	if n := f.get("policy"); n != nil {
		r.Policy, ok = l.text(n, t, "policy")
		if ok && r.Policy == "" {
			l.errorf(n, t, "policy is empty; leave it out to use the rule's own limit")
		}
	}
	r.Choose, r.Prefer = l.choice(f, t)
	r.CountByValue = l.limitsOf(f, t, &r.Body)
	l.concurrencyOf(f, t, &r.Body)
	below := f.get("descriptors")
	leaf := isNull(below) || below.Kind == yaml.SequenceNode && len(below.Content) == 0
	l.pointless(f, t, &r.Body)
	if leaf && !f.limits() {
		l.exempts(n, t, exemptsAll)
		if r.ValueToMetric {
			l.warnf(f.get("value_to_metric"), t, "value_to_metric has no effect: neither the rule nor one below it has a limit")
		}
	}
	if !isNull(below) {
		l.list(below, t, "descriptors", func(n *yaml.Node) {
			if s := l.rule(n, t); s != nil {
				r.Rules = append(r.Rules, s)
			}
		})
	}
	return r
}

// choice reads from which rules a rule is chosen, and its place among them. Build checks them.
func (l *loader) choice(f fields, t *twig) (name string, prefer int64) {
	if n := f.get("choose"); n != nil {
		var ok bool
		if name, ok = l.text(n, t, "choose"); ok && name == "" {
			l.errorf(n, t, "choose is empty; give it the name of what is chosen, such as model")
		}
	}
	if n := f.get("prefer"); n != nil {
		prefer, _ = l.number(n, t, "prefer")
	}
	return name, prefer
}

// enough counts a rule, and says that no more are read. Reading stops after the
// first rule that Build refuses for their number or depth.
func (l *loader) enough(parent *twig) bool {
	l.nodes++
	l.stop = l.stop || l.nodes > descriptors.MaxRules+1
	return l.stop || parent.depth > descriptors.MaxDepth
}

// identity reads key and value, and reports whether they can be used.
func (l *loader) identity(n *yaml.Node, f fields, t *twig) bool {
	k := f.get("key")
	if k == nil {
		l.errorf(n, t, "the rule has no key")
		return false
	}
	ok := false
	if t.key, ok = l.text(k, t, "key"); !ok {
		return false
	}
	if v := f.get("value"); v != nil {
		if t.value, ok = l.text(v, t, "value"); !ok {
			return false
		}
		if t.value == "" && !l.style.generated {
			l.warnf(v, t, "the value is empty, so the rule applies to every value of the key; leave value out to say so")
		}
	}
	return true
}

// modes reads the reference's switches and metadata.
func (l *loader) modes(f fields, t *twig, r *descriptors.Body) {
	r.Shadow = l.boolean(f.get("shadow_mode"), t, "shadow_mode")
	r.Quota = l.boolean(f.get("quota_mode"), t, "quota_mode")
	r.DetailedMetric = l.boolean(f.get("detailed_metric"), t, "detailed_metric")
	n := f.get("metadata")
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		l.errorf(n, t, "metadata must be a mapping of keys to values, not %s", describe(n))
		return
	}
	left := descriptors.MaxMetadataValues + 1
	r.Metadata, _ = l.tree(n, t, 0, &left).(map[string]any)
}

// limiting are the fields that limit something.
var limiting = []string{"rate_limit", "limits", "concurrency"}

// limits reports whether a rule has a limit, right or wrong.
func (f fields) limits() bool {
	return slices.ContainsFunc(limiting, func(name string) bool { return f.get(name) != nil })
}

// pointless reports fields that do nothing on a rule that limits nothing.
func (l *loader) pointless(f fields, t *twig, r *descriptors.Body) {
	if f.get("rate_limit") != nil || f.get("limits") != nil {
		return
	}
	if n := f.get("response"); n != nil {
		l.errorf(n, t, "response needs a rate_limit or limits in the same rule; rules below do not inherit it")
	}
	if f.get("concurrency") != nil || l.style.generated {
		return
	}
	for _, name := range []string{"shadow_mode", "quota_mode", "detailed_metric", "metadata"} {
		n := f.get(name)
		set := name == "shadow_mode" && r.Shadow || name == "quota_mode" && r.Quota ||
			name == "detailed_metric" && r.DetailedMetric || name == "metadata" && r.Metadata != nil
		if set {
			l.warnf(n, t, "%s has no effect: the rule itself has no rate_limit, no limits and no concurrency", name)
		}
	}
	for _, name := range []string{"on_backend_error", "on_overload", "charge", "overflow", "max_debt", "max_keys",
		"reserve", "request_headers", "by"} {
		if n := f.get(name); n != nil {
			l.errorf(n, t, "%s needs a rate_limit, limits or concurrency in the same rule; rules below do not inherit it", name)
		}
	}
}

package descriptors

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
)

// A builder compiles the parts of one Spec.
type builder struct {
	*Problems
	set     *Set
	domains map[string]*domainBuilder
	order   []*domainBuilder // as they appeared
	refs    []reference
	count   int                         // of rules and resources so far
	limits  map[limit.Spec]*limit.Limit // equal limits are one
	looked  int                         // rules that hidden has looked for
	broken  *Problem                    // of the first part that is Broken, if its source reports no error

	networks int // so far

	rebuilds bool                  // branches are kept for the next set
	old      *Set                  // whose branches can be used again
	branches map[*RuleSpec]*branch // of old
}

// A domainBuilder collects the parts of one domain.
type domainBuilder struct {
	name      string
	absent    DomainPatterns
	cutParams *Switch // nil if no part says anything; so is asSent
	asSent    *Switch
	anyCase   *Switch
	top       siblings
	resources []*resource
	keys      map[string]*resource // for duplicates
	names     map[string]*resource // the same

	begins    string // of the last rule: see begin
	anyKey    bool
	beginsFor string // the first key
}

// siblings are the nodes of one level.
type siblings struct {
	specs []*RuleSpec
	nodes []*node              // of specs
	ids   map[string]*RuleSpec // by composite id, for duplicates
}

// expect makes room for n more nodes.
func (l *siblings) expect(n int) {
	l.specs, l.nodes = slices.Grow(l.specs, n), slices.Grow(l.nodes, n)
	if l.ids == nil && n > 0 {
		l.ids = make(map[string]*RuleSpec, n)
	}
}

func (l *siblings) add(s *RuleSpec, n *node) {
	l.specs, l.nodes = append(l.specs, s), append(l.nodes, n)
}

// A way leads from a domain to a node of its tree.
type way struct {
	parent *way // nil in a domain
	domain *domainBuilder
	spec   *RuleSpec // nil in a domain
	depth  int
	id     string // of spec
	dotted string // [Rule.Path] of a rule here
	shared bool   // a rule on the way shares a counter
	metric bool   // a rule on the way has its value in metrics
}

func (d *domainBuilder) way() *way { return &way{domain: d} }

// to returns the way from w to a rule right below it.
func (w *way) to(s *RuleSpec) way {
	id := s.Label()
	next := way{
		parent: w, domain: w.domain, spec: s, depth: w.depth + 1, id: id, dotted: id,
		shared: w.shared || s.shared() != "", metric: w.metric || s.ValueToMetric,
	}
	if w.depth > 0 {
		next.dotted = w.dotted + "." + id
	}
	return next
}

// Label is the reference's name of a rule, which it keeps unique per level.
func (s *RuleSpec) Label() string {
	if value := s.text(); value != "" {
		return s.Key + "_" + value
	}
	return s.Key
}

// text is what stands for all values of the rule: its value, or its first network; "" for any value.
func (s *RuleSpec) text() string {
	if len(s.Networks) > 0 {
		return s.Networks[0].String()
	}
	return s.Value
}

// String is the place in the tree, for problems.
func (w *way) String() string {
	if w.spec == nil {
		return TreePath("", w.domain.name, "")
	}
	return TreePath(w.parent.String(), w.spec.Key, w.spec.text())
}

// Bounds of a [TreePath], in bytes: of one part, and of all of it, after which "/..."
// stands for the rest.
const (
	maxShown = 600
	maxPath  = 2048
)

// TreePath returns the place in the tree of a node below parent, as
// [Problem.Path] has it.
func TreePath(parent, key, value string) string {
	id := key
	if value != "" {
		id += "_" + value
	}
	if key == "" {
		id = "?" + id
	}
	if len(id) > maxShown {
		id = spell.Short(id)
	}
	switch {
	case parent == "":
		return id
	case len(parent) <= maxPath:
		return parent + "/" + id
	case strings.HasSuffix(parent, "/..."):
		return parent
	}
	return parent + "/..."
}

// at reports a problem of what is at place, and in the tree at path.
// What a problem is: rules with an error are not used.
const (
	isError   = false
	isWarning = true
)

func (b *builder) at(place Place, path string, warning bool, format string, args ...any) {
	b.Add(Problem{place.File, place.Line, place.Col, path, fmt.Sprintf(format, args...), warning})
}

// isBroken returns what a part's Broken says. Without an error of its source, the set would silently lack the part.
func (b *builder) isBroken(broken bool, place Place, path fmt.Stringer) bool {
	if broken && b.broken == nil {
		b.broken = &Problem{File: place.File, Line: place.Line, Col: place.Col, Path: path.String(),
			Message: "the source says that this cannot be used, and does not say why"}
	}
	return broken
}

func (s *Switch) String() string {
	return fmt.Sprintf("%s in %s:%d", s.Name, s.Place.File, s.Place.Line)
}

func (s *Switch) on() bool { return s != nil && s.On }

// rules reads the nodes below w, and all that is below them, into to.
func (b *builder) rules(specs []*RuleSpec, w *way, to *siblings) {
	to.expect(len(specs))
	at := new(way) // of one rule after the other: nothing keeps it
	for _, s := range specs {
		if s == nil {
			b.at(Place{}, w.String(), isError, "a rule is missing")
			continue
		}
		*at = w.to(s)
		if b.reuse(at, to) {
			continue
		}
		before := b.mark()
		if !b.next(s.Place, at) {
			return
		}
		if at.depth > MaxDepth {
			b.at(s.Place, w.String(), isError, "rules are nested deeper than %d", MaxDepth)
			return
		}
		fits := b.fits(s, at, to)
		n := &node{rule: b.rule(at), except: (&spot{b, s.Place, s.Fields, at}).except(s.Except)}
		b.references(&s.Body, at.domain, at)
		var below siblings
		b.rules(s.Rules, at, &below)
		if fits {
			n.next = b.level(&below, at)
			to.add(s, n)
			b.keep(at, n, before)
		}
	}
}

// next counts a rule. It returns false if there are too many of them.
func (b *builder) next(place Place, path fmt.Stringer) bool {
	if b.count++; b.count == MaxRules+1 {
		b.at(place, path.String(), isError, "more than %d rules", MaxRules)
	}
	return b.count <= MaxRules
}

// fits checks the node at w, and reports whether it can be told apart from its
// siblings.
func (b *builder) fits(s *RuleSpec, w *way, among *siblings) bool {
	if b.isBroken(s.Broken, s.Place, w) {
		return false
	}
	at := &spot{b, s.Place, s.Fields, w}
	if s.Key == "" {
		at.errorf("key", "the rule's key is empty")
		return false
	}
	if !at.text("key", "key", s.Key, maxKey) || !at.text("value", "value", s.Value, maxValue) {
		return false
	}
	first := among.ids[w.id]
	switch {
	case !at.addressed(s):
		return false
	case first == nil:
		among.ids[w.id] = s
		return true
	case s.Key == first.Key:
		b.at(s.Place, w.String(), isError, "duplicate rule %q, first in %s:%d", w.id, first.Place.File, first.Place.Line)
	default:
		b.at(s.Place, w.String(), isError,
			"key %q with value %q is spelt %q like key %q with value %q in %s:%d; statistics could not tell them apart",
			s.Key, s.Value, w.id, first.Key, first.Value, first.Place.File, first.Place.Line)
	}
	return false
}

// rule makes the rule at w, with what it has from the rules above it; nil if
// nothing applies to what ends there.
func (b *builder) rule(w *way) *Rule {
	s := w.spec
	at := &spot{b, s.Place, s.Fields, w}
	at.doubtful(s)
	if s.ShareThreshold && !strings.Contains(s.Key+s.Value, "*") && len(s.Networks) == 0 {
		at.errorf("share_threshold", "share_threshold needs a * in the rule's value (or key), or a network: there is "+
			"nothing to share")
	}
	if s.CountByValue && s.MaxKeys > 0 {
		at.errorf("max_keys", "counter: value and max_keys contradict each other")
	}
	if s.CountByValue && s.ShareThreshold {
		at.errorf("limits", "counter: value and share_threshold contradict each other")
	}
	terms := at.terms(&s.Body)
	if s.CountByValue && terms.Reserve != nil {
		at.errorf("limits", "reserve and counter: value contradict each other: other programs that use the counter know no "+
			"reservations")
	}
	if len(s.Limits) == 0 && s.Concurrency == nil && len(s.Rules) > 0 {
		at.policy(w)
		if s.Choose != "" || s.Prefer != 0 {
			at.errorf("choose", "choose and prefer need a rate_limit, limits or concurrency in the same rule; rules below do "+
				"not inherit them")
		}
		return nil
	}
	at.choose(s, &terms)
	r := b.newRule(&s.Body, terms, w.domain)
	r.Policy, r.Choose, r.Prefer = at.policy(w), s.Choose, s.Prefer
	if s.Choose != "" {
		var keys []byte
		for _, key := range along(w, func(u *way) string { return u.spec.Key }) {
			keys = limit.AppendPart(keys, key)
		}
		r.Keys = string(keys)
	}
	r.Path, r.raw, r.Networks = w.dotted, s.CountByValue, networksText(s.Networks)
	r.begins, r.anyKey = w.domain.begin(w)
	if s.MaxKeys > 0 {
		r.others = along(w, func(u *way) Entry { return u.spec.other() })
	}
	if w.metric || s.DetailedMetric || strings.Count(w.dotted, ".") != w.depth-1 {
		r.ids = along(w, func(u *way) string { return u.id })
	}
	if w.shared {
		r.shared = along(w, func(u *way) string { return u.spec.shared() })
	}
	if w.metric {
		r.Metric.ValueAt = along(w, func(u *way) bool { return u.spec.ValueToMetric })
	}
	return r
}

// begin returns [Rule.begins] and anyKey of a rule. Most have those of the rule before.
func (d *domainBuilder) begin(w *way) (begins string, anyKey bool) {
	for w.depth > 1 {
		w = w.parent
	}
	if d.begins == "" || d.beginsFor != w.spec.Key {
		begins := limit.AppendPart(nil, d.name)
		if d.anyKey = strings.Contains(w.spec.Key, "*"); !d.anyKey {
			begins = limit.AppendPart(begins, w.spec.Key)
		}
		d.begins, d.beginsFor = string(begins), w.spec.Key
	}
	return d.begins, d.anyKey
}

// along returns what each rule on the way to w has, the one at w included.
func along[T any](w *way, what func(*way) T) []T {
	list := make([]T, w.depth)
	for ; w.parent != nil; w = w.parent {
		list[w.depth-1] = what(w)
	}
	return list
}

// maxPrefer bounds prefer.
const maxPrefer = 1_000_000

// choose checks what a rule says of others that it is chosen from.
func (s *spot) choose(spec *RuleSpec, terms *Terms) {
	switch {
	case spec.Choose == "" && spec.Prefer != 0:
		s.errorf("prefer", "prefer needs choose in the same rule: it orders those that choose the same")
	case spec.Choose == "" || !s.visible("choose", spec.Choose):
	case !s.between("prefer", spec.Prefer, 0, maxPrefer):
	case spec.CountByValue:
		s.errorf("choose", "choose and counter: value contradict each other: the counters of a choice have names of "+
			"their own")
	case len(terms.Replaces) > 0:
		s.errorf("choose", "choose and replaces contradict each other: which limits apply must be known before one is chosen")
	}
}

// policy compiles what makes the keys of policies for the rule at w, or nil if the rule names no policies.
func (s *spot) policy(w *way) *policies.Template {
	spec := w.spec
	if spec.Policy == "" {
		return nil
	}
	if len(spec.Limits) != 1 || spec.Limits[0].Unlimited || spec.Concurrency != nil {
		s.errorf("policy", "policy needs exactly one limit in the same rule, and no concurrency: it takes the limit's place")
		return nil
	}
	made, err := policies.ParseTemplate(spec.Policy, along(w, func(u *way) string { return u.spec.Key }))
	if err != nil {
		s.errorf("policy", "%v", err)
	}
	return made
}

// shared is what counters have instead of the value; "" is the value itself.
func (s *RuleSpec) shared() string {
	switch {
	case !s.ShareThreshold:
		return ""
	case s.text() == "":
		return "*"
	}
	return s.text()
}

// Others is the value that stands for all values of a rule beyond its max_keys.
const Others = "(others)"

// other returns the entry that stands for all that s matches. It matches s itself.
func (s *RuleSpec) other() Entry {
	return Entry{s.Key, cmp.Or(s.text(), Others)}
}

// newRule adds a rule to the set.
func (b *builder) newRule(body *Body, terms Terms, d *domainBuilder) *Rule {
	r := &Rule{ID: noID, Domain: d.name, Terms: terms, place: body.Place}
	r.Metric.Detailed, r.Except = body.DetailedMetric, networksText(body.Except)
	b.set.rules, b.set.added = append(b.set.rules, r), append(b.set.added, r)
	return r
}

// level compiles the nodes below w.
func (b *builder) level(among *siblings, w *way) *level {
	if len(among.specs) == 0 {
		return nil
	}
	lv := &level{}
	var wild []*RuleSpec
	for i, s := range among.specs {
		b.byAddress(lv, s, among.nodes[i], w)
	}
	for i, s := range among.specs {
		n := among.nodes[i]
		switch {
		case strings.Contains(s.Key, "*") || strings.Contains(s.Value, "*"):
			wild, lv.wildNodes = append(wild, s), append(lv.wildNodes, n)
		case len(s.Networks) > 0:
		case s.Value == "":
			if lv.bare == nil {
				lv.bare = make(map[string]*node, len(among.specs)-i)
				lv.first, lv.firstNode = s.Key, n
			}
			lv.bare[s.Key] = n
		default:
			if lv.exact == nil {
				lv.exact = make(map[Entry]*node, len(among.specs)-i)
			}
			lv.literal(s, n)
		}
	}
	if len(wild) > 0 {
		entries := make([]Entry, len(wild))
		for i, s := range wild {
			entries[i] = Entry{s.Key, s.Value}
		}
		lv.wild = newWildcards(entries, func(i, inner int) {
			b.below(w, wild[i], isError, "more than %d wildcards of one level have the same beginning and end "+
				"and differ only between their *; matching them would be slow", inner)
		})
		lv.literals(wild)
		b.shadowed(among.specs, w, lv, wild)
	}
	b.hidden(among, w, lv)
	return lv
}

// literal makes a rule match its key and value literally.
func (lv *level) literal(s *RuleSpec, n *node) {
	if lv.exact == nil {
		lv.exact = map[Entry]*node{}
	}
	lv.exact[Entry{s.Key, s.text()}] = n
}

// literals has wildcards match their own text before any other wildcard does: Envoy Gateway
// writes host names such as *.example.com into both the rule and the request.
//
// A shared counter has the pattern for the value, and a wildcard of keys has any key: there the
// text of another rule would count under it, so earlier wildcards come first as for all values.
func (lv *level) literals(wild []*RuleSpec) {
	for _, s := range wild {
		if s.ShareThreshold && strings.Contains(s.Key, "*") {
			return
		}
	}
	for i, s := range wild {
		if s.Value != "" {
			lv.literal(s, lv.wildNodes[i])
		}
	}
}

// below reports a problem of a node right below w.
func (b *builder) below(w *way, s *RuleSpec, warning bool, format string, args ...any) {
	b.at(s.Place, TreePath(w.String(), s.Key, s.text()), warning, format, args...)
}

// shadowed warns of rules that apply to nothing, or to their own text alone, because a wildcard
// wins.
//
// A wildcard matches everything another one matches exactly if it matches the
// other's text: only a * can match a *.
func (b *builder) shadowed(specs []*RuleSpec, w *way, lv *level, wild []*RuleSpec) {
	warn := func(s *RuleSpec, by int32, why string) {
		o := wild[by]
		what := "never applies"
		if _, ok := lv.exact[Entry{s.Key, s.Value}]; ok {
			what = "applies only to its own text, * included"
		}
		b.below(w, s, isWarning, "the rule %s: %s %q in %s:%d matches all it would", what, why, o.Label(), o.Place.File,
			o.Place.Line)
	}
	every := func(s *RuleSpec) *Entry {
		if s.Value == "" {
			return &Entry{s.Key, "*"}
		}
		return &Entry{s.Key, s.Value}
	}
	for i, s := range wild {
		if by := lv.wild.lowest(every(s), new(int)); by < int32(i) {
			warn(s, by, "the earlier")
		}
	}
	for _, s := range specs {
		if s.Value == "" && !strings.Contains(s.Key, "*") {
			if by := lv.wild.lowest(every(s), new(int)); by != noNode {
				warn(s, by, "wildcards come before it, and")
			}
		}
	}
}

// references notes the names of a rule's limits, and whom they replace.
func (b *builder) references(body *Body, d *domainBuilder, path fmt.Stringer) {
	for i := range body.Limits {
		l := &body.Limits[i]
		if l.Name != "" {
			b.refs = append(b.refs, reference{domain: d.name, from: l.Name})
		}
		for _, r := range l.Replaces {
			if r.Name == "" || r.Name == l.Name {
				continue // has been reported
			}
			p := cmp.Or(r.Place, l.Place, body.Place)
			b.refs = append(b.refs,
				reference{d.name, l.Name, r.Name, Problem{File: p.File, Line: p.Line, Col: p.Col, Path: path.String()}})
		}
	}
}

package descriptors

import (
	"regexp"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// ownWords are the keys whose values are words that the operator chooses in Envoy. Envoy sends them as they are, so a
// value that looks like a pattern matches its own text.
var ownWords = map[string]bool{"generic_key": true, "header_match": true, "query_match": true}

// doubts are values that people write as what other systems compare in another way. Here they are text.
var doubts = []struct {
	looks func(key, value string) bool
	why   string
}{
	{isNetwork, "the value is a network, and values are compared as text, so no address matches it; write network: in " +
		"place of value, such as network: 10.0.0.0/8, or text with a * at its end, such as 10.*"},
	{isRegex, "the value is a regular expression, and values are compared as text, so it matches only itself; write * " +
		"for any text, as in /watch/*, or a rule under resources with path: ~EXPRESSION"},
	{isTemplate, "the value has a part in braces, and values are compared as text, so it matches only itself; write * " +
		"for the part, or a rule under resources, such as path: /users/{id}"},
}

// doubtChars are the characters of which each such value has one.
const doubtChars = `/^$[(\+{`

// isNetwork: a masked address is one that Envoy sends as a network.
func isNetwork(key, value string) bool {
	address, length, ok := strings.Cut(value, "/")
	return ok && length != "" && strings.Trim(length, "0123456789") == "" && !strings.HasPrefix(key, "masked_") &&
		(strings.Count(address, ".") == 3 && strings.Trim(address, "0123456789.") == "" ||
			strings.Count(address, ":") > 1 && strings.Trim(address, "0123456789abcdefABCDEF.:") == "")
}

// regexParts are what regular expressions have, and other text hardly ever: an anchor at the beginning, a class of
// characters or a group that is repeated, a group of alternatives, an escaped class or dot, and .+. A .* is a wildcard.
var regexParts = regexp.MustCompile(
	`^\^.|[^\\]\$$|\[[^\]]+\][+*?{]|\)[+?{]|\([^()]*\|[^()]*\)|\(\?[:iP]|\\[dDwWsSb.]|\.\+`)

func isRegex(_, value string) bool {
	return strings.ContainsAny(value, `^$[(\+`) && regexParts.MatchString(value)
}

// isTemplate finds {name}, and not {"name": 1}.
func isTemplate(_, value string) bool {
	_, from, found := strings.Cut(value, "{")
	name, _, closed := strings.Cut(from, "}")
	return found && closed && name != "" && !strings.ContainsAny(name, " \",:{")
}

// hasWithQuery reports whether Envoy sends a path with its query under a key, as it sends :path. The case of a key is
// the operator's.
func hasWithQuery(key string) bool { return strings.EqualFold(strings.TrimPrefix(key, ":"), "path") }

// doubtful warns of a rule that matches other requests than its author means.
func (s *spot) doubtful(r *RuleSpec) {
	if s.b.Full() {
		return
	}
	if r.Value == "" && hasWithQuery(r.Key) && !r.exempts() {
		s.warnf("key", "Envoy sends the header :path with its query, and without a value each text counts apart: ?n=1 and "+
			"?n=2 each get the whole limit; write a rule under resources, which leaves the query out, or value: /login* with "+
			"share_threshold: true; if Envoy sends the path without its query, call the key url_path")
	}
	if !strings.ContainsAny(r.Value, doubtChars) || ownWords[r.Key] {
		return
	}
	for i := range doubts {
		if doubts[i].looks(r.Key, r.Value) {
			s.warnf("value", "%s", doubts[i].why)
			return
		}
	}
}

// maxHidden bounds how many rules below others are looked at for hidden: rules that many siblings repeat in other
// orders would take quadratic time.
const maxHidden = 4 * MaxRules

// hidden warns of rules with a value that lack what is below their sibling without one: for their value it does not
// apply. Those that limit nothing are there to have nothing apply.
func (b *builder) hidden(among *siblings, w *way, lv *level) {
	if len(lv.bare) == 0 || len(lv.exact)+len(lv.wildNodes) == 0 {
		return
	}
	below := map[string]*RuleSpec{}
	for _, s := range among.specs {
		if s.Value == "" && len(s.Networks) == 0 && len(s.Rules) > 0 {
			below[s.Key] = s
		}
	}
	for i, s := range among.specs {
		open := below[s.Key]
		if s.Value == "" || open == nil || s.exempts() || b.Full() {
			continue
		}
		if lost := b.lacks(among.nodes[i].next, open.Rules); lost != nil {
			b.below(w, s, isWarning, "the rule hides what %s:%d has below the same key without a value: a descriptor with this "+
				"value goes no further than this rule, so %q below that (%s:%d) does not limit it; repeat that rule below this one",
				open.Place.File, open.Place.Line, spell.Short(lost.Label()), lost.Place.File, lost.Place.Line)
		}
	}
}

// exempts reports whether all that s does is to let what it matches pass.
func (s *RuleSpec) exempts() bool {
	if len(s.Rules) > 0 || s.Concurrency != nil {
		return false
	}
	return len(s.Limits) == 0 || s.Limits[0].Unlimited
}

// lacks returns the first of some rules that a level has no rule for.
func (b *builder) lacks(lv *level, rules []*RuleSpec) *RuleSpec {
	var steps int
	for _, r := range rules {
		if b.looked++; b.looked > maxHidden {
			return nil
		}
		if lv == nil || lv.find(&Entry{r.Key, r.Value}, &steps) == nil {
			return r
		}
	}
	return nil
}

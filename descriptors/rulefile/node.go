package rulefile

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// A keyLevel is one kind of mapping in a file, with the keys it may have.
type keyLevel struct {
	what string // as problems call it
	keys []string
}

var (
	hints     = map[string]string{"the file's top level": "; a file of rules starts with `domain: NAME`"}
	levelFile = &keyLevel{"the file's top level", []string{
		"domain", "descriptors", "resources", "matrix_parameters", "paths", "hashLength", "plugin", "wsdlFile",
	}}
	levelRule = &keyLevel{"a rule", []string{
		"key", "value", "network", "except", "rate_limit", "limits", "policy", "descriptors",
		"shadow_mode", "quota_mode", "share_threshold", "detailed_metric", "value_to_metric", "metadata",
		"on_backend_error", "on_overload", "charge", "overflow", "max_debt", "max_keys", "reserve", "response",
		"concurrency", "lease_ttl", "reject_hold", "release", "choose", "prefer", "request_headers",
	}}
	levelRateLimit = &keyLevel{"rate_limit", []string{
		"unit", "requests_per_unit", "unit_multiplier", "calendar", "time_zone", "unlimited", "name", "replaces",
		"local_share", "warn_at",
	}}
	levelLimit = &keyLevel{"an entry of limits", []string{
		"name", "algorithm", "limit", "window", "calendar", "time_zone", "rate", "burst", "shadow", "counter", "replaces",
		"local_share", "reserve", "warn_at",
	}}
	levelReserve = &keyLevel{"reserve", []string{
		"amount", "default", "min", "max", "ttl", "on_lost", "on_5xx", "on_429", "match", "ask",
		"report",
	}}
	levelExcept   = &keyLevel{"except", []string{"network"}}
	levelReplaces = &keyLevel{"an entry of replaces", []string{"name"}}
	levelResponse = &keyLevel{"response", []string{"content", "headers"}}

	levelResource = &keyLevel{"a resource", []string{
		"method", "path", "operation", "match",
		"requestHeaders", "queryParams", "pathParams", "formParams", "requestBody", "allOf", "anyOf", "soapAction", "binding",
		"concurrency", "name", "by", "except", "max_keys", "lease_ttl", "reject_hold", "release", "rate_limit",
		"limits",
		"shadow_mode", "quota_mode", "metadata", "on_backend_error", "on_overload", "charge", "overflow",
		"max_debt", "reserve", "response", "request_headers",
	}}
	levelMatch = &keyLevel{"match", []string{
		"headers", "query", "pathParams", "formParams", "requestBody", "allOf", "anyOf", "soapAction", "binding",
	}}
	levelCriterion    = &keyLevel{"a criterion", []string{"value", "operator"}}
	levelExpression   = &keyLevel{"an entry of allOf or anyOf", []string{"expression", "value", "operator"}}
	levelTier         = &keyLevel{"an entry of concurrency", []string{"name", "threshold", "response"}}
	levelTierResponse = &keyLevel{"a tier's response", []string{"statusCode", "headers", "content", "delay"}}
	levelDelay        = &keyLevel{"delay", []string{"exact"}}

	keyLevels = []*keyLevel{
		levelFile, levelRule, levelRateLimit, levelLimit, levelReserve, levelExcept, levelReplaces, levelResponse,
		levelResource,
		levelMatch,
		levelCriterion, levelExpression, levelTier, levelTierResponse, levelDelay,
	}
)

// fields are the keys and values of one mapping. There are few, so looking
// through them beats a map.
type fields []pair

func (f fields) get(name string) *yaml.Node {
	for i := range f {
		if f[i].name == name {
			return f[i].value
		}
	}
	return nil
}

// fields returns the entries of mapping n, and reports keys that do not belong
// on this level. False means that n is not a mapping.
func (l *loader) fields(n *yaml.Node, level *keyLevel, t *twig) (fields, bool) {
	f, ok := l.mapping(n, t, level.what)
	if !ok {
		return nil, false
	}
	for i := range f {
		if slices.Contains(level.keys, f[i].name) {
			continue
		}
		text := ""
		if !l.Full() { // else nobody sees it, and it takes time to make
			text = misplaced(f[i].name, level)
		}
		l.errorf(f[i].key, t, "%s", text)
	}
	if l.style.generated {
		f = slices.DeleteFunc(f, func(p pair) bool { return isNull(p.value) })
	}
	return f, true
}

// A pair is one entry of a mapping with the place of its key.
type pair struct {
	name   string
	key    *yaml.Node
	value  *yaml.Node // aliases resolved
	merged bool       // came in through <<
}

// mapping returns the entries of mapping n with aliases and merge keys
// resolved, and reports keys that are given twice.
func (l *loader) mapping(n *yaml.Node, t *twig, what string) ([]pair, bool) {
	n = l.follow(n)
	if n.Kind != yaml.MappingNode {
		l.errorf(n, t, "%s must be a mapping of keys to values, not %s%s", what, describe(n), hints[what])
		return nil, false
	}
	out := pairs{list: make([]pair, 0, len(n.Content)/2)}
	l.pairs(n, t, 0, &out)
	return out.list, true
}

// pairs are the entries of one mapping, each name once.
type pairs struct {
	list []pair
	at   map[string]int // nil while there are few, as looking through them then beats a map
}

// find returns the place of a name in the list, or -1.
func (ps *pairs) find(name string) int {
	if ps.at == nil {
		return slices.IndexFunc(ps.list, func(p pair) bool { return p.name == name })
	}
	if i, ok := ps.at[name]; ok {
		return i
	}
	return -1
}

func (ps *pairs) add(p pair) {
	ps.list = append(ps.list, p)
	switch {
	case ps.at != nil:
		ps.at[p.name] = len(ps.list) - 1
	case len(ps.list) > 32:
		ps.at = make(map[string]int, cap(ps.list))
		for i := range ps.list {
			ps.at[ps.list[i].name] = i
		}
	}
}

// pairs adds the entries of n. depth says how many "<<" bring them in.
func (l *loader) pairs(n *yaml.Node, t *twig, depth int, out *pairs) {
	merged := depth > 0
	for i := 0; i+1 < len(n.Content) && l.spend(n, t); i += 2 {
		k, v := n.Content[i], l.follow(n.Content[i+1])
		if k.ShortTag() == "!!merge" {
			l.merge(k, v, t, depth, out)
			continue
		}
		if k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str" {
			l.errorf(k, t, "a key must be a word, not %s", describe(l.follow(k)))
			continue
		}
		at := out.find(k.Value)
		switch {
		case at < 0:
			out.add(pair{k.Value, k, v, merged})
		case !merged && out.list[at].merged:
			out.list[at] = pair{k.Value, k, v, false} // written here wins over merged in
		case !merged:
			l.errorf(k, t, "%q is given twice, first in line %d", k.Value, out.list[at].key.Line)
		}
	}
}

// merge adds the entries that "<<" brings in.
func (l *loader) merge(k, v *yaml.Node, t *twig, depth int, out *pairs) {
	from := []*yaml.Node{v}
	if v.Kind == yaml.SequenceNode {
		from = v.Content
	}
	for _, n := range from {
		if n = l.follow(n); !l.spend(n, t) {
			return
		}
		if n.Kind != yaml.MappingNode || depth > maxAliases {
			l.errorf(k, t, "<< must be followed by the alias of a mapping")
			return
		}
		l.pairs(n, t, depth+1, out)
	}
}

// list calls each for the elements of sequence n; what is its key.
func (l *loader) list(n *yaml.Node, t *twig, what string, each func(*yaml.Node)) {
	n = l.follow(n)
	if n.Kind != yaml.SequenceNode {
		l.errorf(n, t, "%s must be a list, not %s", what, describe(n))
		return
	}
	for _, e := range n.Content {
		if !l.spend(e, t) {
			return
		}
		each(l.follow(e))
	}
}

// spend counts one node against what the file may have, so that aliases of
// aliases cannot blow it up.
func (l *loader) spend(n *yaml.Node, t *twig) bool {
	if l.stop {
		return false
	}
	if l.budget--; l.budget < 0 {
		l.stop = true
		l.errorf(n, t, "the file's aliases expand to too much")
	}
	return !l.stop
}

// follow returns what n stands for, if it is an alias.
func (l *loader) follow(n *yaml.Node) *yaml.Node {
	for i := 0; n != nil && n.Kind == yaml.AliasNode && n.Alias != nil && i < maxAliases; i++ {
		n = n.Alias
	}
	return n
}

// text returns a scalar as written: 404 and true are text as well. It is empty if n is nil.
func (l *loader) text(n *yaml.Node, t *twig, what string) (string, bool) {
	if n = l.follow(n); isNull(n) {
		return "", true
	}
	if n.Kind != yaml.ScalarNode {
		l.errorf(n, t, "%s must be text, not %s", what, describe(n))
		return "", false
	}
	switch tag := n.ShortTag(); tag {
	case "!!str", "!!int", "!!bool", "!!timestamp":
	case "!!float":
		l.errorf(n, t, "%s is a number with a fraction or too large a number; if it is meant as text, quote it: %q",
			what, n.Value)
		return "", false
	default:
		l.errorf(n, t, "%s must be text, not %s", what, tag)
		return "", false
	}
	return n.Value, true
}

// word returns the one of words that n says, as an index; false if n is nil.
func (l *loader) word(n *yaml.Node, t *twig, what string, words ...string) (int, bool) {
	s, ok := l.text(n, t, what)
	if n == nil || !ok {
		return 0, false
	}
	if i := slices.Index(words, s); i >= 0 {
		return i, true
	}
	l.errorf(n, t, "%s %q is unknown; it must be %s%s", what, spell.Short(s), spell.OneOf(words),
		spell.DidYouMean(s, words))
	return 0, false
}

// boolean accepts what YAML 1.1 calls true and false, as the reference does.
func (l *loader) boolean(n *yaml.Node, t *twig, what string) bool {
	if isNull(n) {
		return false
	}
	if n.Kind == yaml.ScalarNode && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 {
		switch strings.ToLower(n.Value) {
		case "true", "yes", "on", "y":
			return true
		case "false", "no", "off", "n":
			return false
		}
	}
	l.errorf(n, t, "%s must be true or false, not %s", what, describe(n))
	return false
}

// integer returns a whole number from least to most; 0 and false if n is nil.
func (l *loader) integer(n *yaml.Node, t *twig, what string, least, most int64) (int64, bool) {
	if n == nil {
		return 0, false
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
		l.errorf(n, t, "%s must be a whole number, not %s", what, describe(n))
		return 0, false
	}
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil || strings.HasPrefix(n.Value, "0") {
		err = n.Decode(&v) // octal, hexadecimal, 1_000
	}
	switch {
	case err != nil, v < least, v > most:
		l.errorf(n, t, "%s %s is outside %d to %d", what, spell.Short(n.Value), least, most)
		return 0, false
	case v > 7 && n.Value[0] == '0' && strings.Trim(n.Value, "01234567") == "":
		l.warnf(n, t, "%s %s is octal and means %d; write %d, or leave the 0 out", what, n.Value, v, v)
	}
	return v, true
}

// number returns a whole number. Build checks its bounds.
func (l *loader) number(n *yaml.Node, t *twig, what string) (int64, bool) {
	return l.integer(n, t, what, math.MinInt64, math.MaxInt64)
}

// positive is number for a field that must not be 0, which means something else
// to Build. It returns 0 if there is a problem.
func (l *loader) positive(n *yaml.Node, t *twig, what string) int64 {
	v, ok := l.number(n, t, what)
	if ok && v == 0 {
		l.errorf(n, t, "%s must not be 0; leave it out", what)
	}
	return v
}

// tree converts metadata to plain values: nil, bool, int64, float64, string,
// []any and map[string]any.
//
// It reads one level and one value more than Build accepts, so that Build
// reports them.
func (l *loader) tree(n *yaml.Node, t *twig, depth int, left *int) any {
	n = l.follow(n)
	if *left--; *left < 0 || depth > descriptors.MaxMetadataDepth+1 || !l.spend(n, t) {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		pairs, _ := l.mapping(n, t, "metadata")
		m := make(map[string]any, len(pairs))
		for _, p := range pairs {
			m[p.name] = l.tree(p.value, t, depth+1, left)
		}
		return m
	case yaml.SequenceNode:
		s := make([]any, len(n.Content))
		for i, e := range n.Content {
			s[i] = l.tree(e, t, depth+1, left)
		}
		return s
	}
	return l.plain(n, t)
}

// plain converts a scalar of metadata.
func (l *loader) plain(n *yaml.Node, t *twig) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return l.boolean(n, t, "metadata")
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return i
		}
	case "!!float":
	default:
		s, _ := l.text(n, t, "metadata")
		return s
	}
	var f float64
	if err := n.Decode(&f); err != nil {
		l.errorf(n, t, "metadata %s is not a number; quote it if it is text", spell.Short(n.Value))
	}
	return f
}

// peek returns the text under a key without checking anything, so that
// problems can name the rule they are in.
func (l *loader) peek(n *yaml.Node, key string) string {
	for i := 0; i+1 < len(n.Content) && i < 2*len(levelRule.keys); i += 2 {
		if v := l.follow(n.Content[i+1]); n.Content[i].Value == key && v.Kind == yaml.ScalarNode &&
			len(v.Value) <= maxPeeked && !isNull(v) {
			return v.Value
		}
	}
	return ""
}

// maxPeeked bounds what problems are called by, in bytes.
const maxPeeked = 1024

// isNull reports whether a node says nothing, or is not there.
func isNull(n *yaml.Node) bool {
	if n != nil && n.Kind == yaml.DocumentNode {
		return len(n.Content) == 0 || isNull(n.Content[0])
	}
	return n == nil || n.Kind == 0 || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// describe says what a node is, for problems.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	case n.ShortTag() == "!!str":
		return fmt.Sprintf("the text %q", spell.Short(n.Value))
	}
	return spell.Short(n.Value)
}

// misplaced explains a key that does not belong where it is.
func misplaced(name string, here *keyLevel) string {
	for _, level := range keyLevels {
		if slices.Contains(level.keys, name) {
			return fmt.Sprintf("%q does not belong in %s; it belongs in %s%s", name, here.what, level.what,
				spell.DidYouMean(name, here.keys))
		}
	}
	if s := spell.Nearest(name, here.keys); s != "" {
		return fmt.Sprintf("unknown key %q in %s; did you mean %q?", spell.Short(name), here.what, s)
	}
	for _, level := range keyLevels {
		if s := spell.Nearest(name, level.keys); s != "" {
			return fmt.Sprintf("unknown key %q in %s; did you mean %q, which belongs in %s?", spell.Short(name), here.what,
				s, level.what)
		}
	}
	return fmt.Sprintf("unknown key %q in %s; it may have %s", spell.Short(name), here.what, strings.Join(here.keys, ", "))
}

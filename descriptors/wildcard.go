package descriptors

import (
	"math"
	"slices"
	"strings"
)

// noNode is larger than the number of every wildcard.
const noNode = int32(math.MaxInt32)

// maxInner bounds the wildcards that are tried one by one: those of one level
// that start and end alike and differ only between two or more of their stars.
const maxInner = 500

// wildcards are the rules of one level with a * in key or value, numbered in
// file order. A * stands for any number of characters of the part it is in:
// one in the key never matches into the value.
//
// The lowest number that matches is found without trying them one by one, so
// that neither many rules nor values made up by a client cost time: values are
// looked up in tries of what patterns start with, end with and contain.
type wildcards struct {
	values map[string]*patterns // for keys without *
	keys   *patterns            // for keys with *: numbers of groups
	groups []keyGroup
}

// A keyGroup has the rules of one pattern in the key.
type keyGroup struct {
	any    int32 // no value, so any
	exact  map[string]int32
	values *patterns
}

// newWildcards builds the index of wild. It calls tooMany with the number in wild of a pattern that is one too many to
// be tried one by one, and with how many may be.
func newWildcards(wild []Entry, tooMany func(i, inner int)) *wildcards {
	w := &wildcards{values: map[string]*patterns{}}
	values := map[string][]pattern{}
	var keys []pattern
	groups := map[string]int32{}
	var grouped [][]pattern // patterns in the values of each group
	for i, e := range wild {
		number := int32(i)
		if !strings.Contains(e.Key, "*") {
			values[e.Key] = append(values[e.Key], newPattern(e.Value, number, i))
			continue
		}
		p := newPattern(e.Key, int32(len(w.groups)), i)
		g, ok := groups[p.text]
		if !ok {
			g = p.number
			groups[p.text] = g
			keys = append(keys, p)
			w.groups = append(w.groups, keyGroup{any: noNode, exact: map[string]int32{}})
			grouped = append(grouped, nil)
		}
		switch {
		case e.Value == "":
			w.groups[g].any = min(w.groups[g].any, number)
		case strings.Contains(e.Value, "*"):
			grouped[g] = append(grouped[g], newPattern(e.Value, number, i))
		default:
			if _, ok := w.groups[g].exact[e.Value]; !ok {
				w.groups[g].exact[e.Value] = number
			}
		}
	}
	for k, ps := range values {
		w.values[k] = newPatterns(ps, mayRepeat, tooMany)
	}
	for g, ps := range grouped {
		if len(ps) > 0 {
			w.groups[g].values = newPatterns(ps, mayRepeat, tooMany)
		}
	}
	if len(keys) > 0 {
		w.keys = newPatterns(keys, once, tooMany)
	}
	return w
}

// lowest returns the number of the first wildcard that matches e, or noNode.
func (w *wildcards) lowest(e *Entry, steps *int) int32 {
	best := noNode
	if p := w.values[e.Key]; p != nil {
		p.each(e.Value, steps, func(number int32) { best = min(best, number) })
	}
	if w.keys != nil {
		w.keys.each(e.Key, steps, func(number int32) {
			best = min(best, w.groups[number].lowest(e.Value, steps))
		})
	}
	return best
}

func (g *keyGroup) lowest(value string, steps *int) int32 {
	best := g.any
	if i, ok := g.exact[value]; ok {
		best = min(best, i)
	}
	if g.values != nil {
		g.values.each(value, steps, func(number int32) { best = min(best, number) })
	}
	return best
}

// A pattern is text with stars, cut at them.
type pattern struct {
	text           string // without stars in a row
	number         int32
	prefix, suffix string
	inner          []string // what must come in between, in this order
	from           int      // the wildcard it is of
}

func newPattern(text string, number int32, from int) pattern {
	pieces := strings.Split(text, "*")
	last := len(pieces) - 1
	inner := slices.DeleteFunc(slices.Clone(pieces[1:last]), func(s string) bool { return s == "" })
	p := pattern{number: number, prefix: pieces[0], suffix: pieces[last], inner: inner, from: from}
	p.text = p.prefix + "*" + strings.Join(inner, "*")
	if len(inner) > 0 {
		p.text += "*"
	}
	p.text += p.suffix
	return p
}

// patterns finds those of many patterns that match a text.
type patterns struct {
	byPrefix *trie[*trie[*ending]] // what they start with, then, backwards, what they end with
}

// An ending has the patterns with one prefix and suffix, by what must be
// between the two.
type ending struct {
	nothing int32        // noNode means none
	one     *trie[int32] // a single piece
	many    []pattern    // several pieces
}

// How often each calls its function for a pattern that matches.
const (
	once      = true
	mayRepeat = false
)

// newPatterns builds the index. once says how often each calls its function.
func newPatterns(ps []pattern, once bool, tooMany func(i, inner int)) *patterns {
	type ends struct{ prefix, suffix string }
	groups := map[ends][]pattern{}
	for _, p := range ps {
		e := ends{p.prefix, p.suffix}
		groups[e] = append(groups[e], p)
	}
	suffixes := map[string][]item[*ending]{}
	for e, g := range groups {
		suffixes[e.prefix] = append(suffixes[e.prefix], item[*ending]{reversed(e.suffix), newEnding(g, once, tooMany)})
	}
	var prefixes []item[*trie[*ending]]
	for p, s := range suffixes {
		prefixes = append(prefixes, item[*trie[*ending]]{p, newTrie(s)})
	}
	return &patterns{newTrie(prefixes)}
}

// newEnding sorts patterns that start and end alike. Of patterns that are the
// same, the lowest number counts.
func newEnding(ps []pattern, once bool, tooMany func(i, inner int)) *ending {
	e := &ending{nothing: noNode}
	var one []item[int32]
	seen := map[string]bool{}
	for _, p := range ps {
		switch {
		case seen[p.text]:
		case len(p.inner) == 0:
			e.nothing = p.number
		case len(p.inner) == 1 && !once:
			one = append(one, item[int32]{p.inner[0], p.number})
		case len(e.many) == maxInner:
			tooMany(p.from, maxInner)
			return e
		default:
			e.many = append(e.many, p)
		}
		seen[p.text] = true
	}
	if one != nil {
		e.one = newTrie(one)
	}
	return e
}

// each calls found with the numbers of the patterns that match text.
func (p *patterns) each(text string, steps *int, found func(int32)) {
	p.byPrefix.walk(text, steps, func(start int, suffixes *trie[*ending]) {
		rest := text[start:]
		suffixes.walkBack(rest, steps, func(length int, e *ending) {
			e.each(rest[:len(rest)-length], steps, found)
		})
	})
}

func (e *ending) each(between string, steps *int, found func(int32)) {
	if e.nothing != noNode {
		found(e.nothing)
	}
	if e.one != nil {
		for i := range len(between) {
			e.one.walk(between[i:], steps, func(_ int, number int32) { found(number) })
		}
	}
	for i := range e.many {
		*steps++
		if containsInOrder(between, e.many[i].inner) {
			found(e.many[i].number)
		}
	}
}

func containsInOrder(text string, pieces []string) bool {
	for _, p := range pieces {
		i := strings.Index(text, p)
		if i < 0 {
			return false
		}
		text = text[i+len(p):]
	}
	return true
}

func reversed(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

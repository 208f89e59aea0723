package descriptors

import (
	"slices"
	"sort"
	"strings"
)

// A trie finds all of its words that a text starts with, in time that depends
// on the text and the words found, not on how many words there are. It is a
// radix tree: edges carry as many characters as all words below share.
type trie[T any] struct {
	label string
	first []byte // of each child's label, ascending
	kids  []trie[T]
	has   bool // a word ends here
	value T
}

// An item is a word of a trie.
type item[T any] struct {
	word  string
	value T
}

// newTrie builds a trie of words, which must differ. It sorts items, not by slices.SortFunc: a program would have all
// of that once more for each T.
func newTrie[T any](items []item[T]) *trie[T] {
	sort.Slice(items, func(i, j int) bool { return items[i].word < items[j].word })
	t := makeTrie(items, 0)
	return &t
}

// makeTrie builds the node for items, which are sorted and share their first
// from characters.
func makeTrie[T any](items []item[T], from int) trie[T] {
	first, last := items[0].word, items[len(items)-1].word
	to := from
	for to < len(first) && to < len(last) && first[to] == last[to] {
		to++
	}
	t := trie[T]{label: first[from:to]}
	if len(first) == to {
		t.has, t.value = true, items[0].value
		items = items[1:]
	}
	for len(items) > 0 {
		c := items[0].word[to]
		n := 1
		for n < len(items) && items[n].word[to] == c {
			n++
		}
		t.first = append(t.first, c)
		t.kids = append(t.kids, makeTrie(items[:n], to))
		items = items[n:]
	}
	return t
}

// walk calls found with the length and value of every word text starts with.
func (t *trie[T]) walk(text string, steps *int, found func(int, T)) {
	at := 0
	for {
		*steps++
		if !strings.HasPrefix(text[at:], t.label) {
			return
		}
		at += len(t.label)
		if t.has {
			found(at, t.value)
		}
		if at == len(text) {
			return
		}
		i, ok := slices.BinarySearch(t.first, text[at])
		if !ok {
			return
		}
		t = &t.kids[i]
	}
}

// walkBack is walk for text read from its end.
func (t *trie[T]) walkBack(text string, steps *int, found func(int, T)) {
	at := 0
	for {
		*steps++
		for i := range len(t.label) {
			if at == len(text) || text[len(text)-1-at] != t.label[i] {
				return
			}
			at++
		}
		if t.has {
			found(at, t.value)
		}
		if at == len(text) {
			return
		}
		i, ok := slices.BinarySearch(t.first, text[len(text)-1-at])
		if !ok {
			return
		}
		t = &t.kids[i]
	}
}

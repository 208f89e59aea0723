package order

import (
	"cmp"
	"slices"
	"testing"
)

func TestBy(t *testing.T) {
	type pair struct{ key, place int }
	byKey := func(a, b *pair) int { return cmp.Compare(a.key, b.key) }
	for n := range 100 {
		list := make([]pair, n)
		for i := range list {
			list[i] = pair{(i * 7919) % 10, i}
		}
		want := slices.Clone(list)
		slices.SortStableFunc(want, func(a, b pair) int { return byKey(&a, &b) })
		if By(list, byKey); !slices.Equal(list, want) {
			t.Fatalf("%d elements: %v, want %v", n, list, want)
		}
	}
}

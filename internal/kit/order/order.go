package order

import "slices"

// By sorts list by compare, and keeps the order of what is equal. It allocates twice the list.
func By[T any](list []T, compare func(a, b *T) int) {
	before := slices.Clone(list)
	sorted := make([]*T, len(before))
	for i := range before {
		sorted[i] = &before[i]
	}
	slices.SortStableFunc(sorted, compare)
	for i, p := range sorted {
		list[i] = *p
	}
}

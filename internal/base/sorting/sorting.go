// Package sorting sorts by one sort for every type. slices.SortFunc is compiled again for
// each type that it sorts, 5 to 15 KB each: so it is for what sorts very many values, as
// addrset and geo do, and everybody else calls this package.
package sorting

import (
	"slices"
	"sort"
)

// By sorts a list by compare, as slices.SortFunc does.
func By[E any](list []E, compare func(a, b E) int) {
	sort.Slice(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
}

// Unique sorts a list and keeps one of those that are equal, in its place.
func Unique[E comparable](list []E, compare func(a, b E) int) []E {
	By(list, compare)
	return slices.Compact(list)
}

// StableBy keeps what is equal in the order that it has.
func StableBy[E any](list []E, compare func(a, b E) int) {
	sort.SliceStable(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
}

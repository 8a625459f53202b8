package optimize

// verdictMaps merges rules that differ in one field and the verdict into one
// rule that takes the verdict from a map. What an earlier rule decides is cut
// out of the elements of a later one, so that elements never overlap.
func verdictMaps(w *work) {
	mergeRules(w, func(how merged) bool { return len(how.fields) == 1 && how.several })
}

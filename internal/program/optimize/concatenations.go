package optimize

// concatenations merges rules that differ in several fields into one rule that
// asks for them together: a hash where all of them are single values; ranges
// get a set of their own beside it.
func concatenations(w *work) {
	mergeRules(w, func(how merged) bool { return len(how.fields) > 1 })
}

package optimize

// rulesToSets merges rules that do the same and differ in one field into one
// rule that asks a set: 650 bans become one lookup. Where each has a counter,
// the elements of the set count. Rules in between stay in between, unless no
// packet matches both or both do the same.
func rulesToSets(w *work) {
	mergeRules(w, func(how merged) bool { return len(how.fields) == 1 && !how.several })
}

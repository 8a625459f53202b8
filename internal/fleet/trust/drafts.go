package trust

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// draftEndings are those of files that a draft may have: policies and lists, which nothing runs.
var draftEndings = []string{".yaml", ".yml", ".txt", ".list", ".csv", ".netset", ".ipset"}

// CheckDraftPath says why a draft may not have a file of a path in the repository of a fleet:
// people write drafts whom its keys do not trust, and operators put them into their folders.
func CheckDraftPath(name string) error {
	hidden := func(element string) bool { return strings.HasPrefix(element, ".") }
	switch {
	case !filepath.IsLocal(name) || path.Clean(name) != name || len(name) > 255 || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == '\\' }):
		return fmt.Errorf("%.300q is not the path of a file in the repository of a fleet, such as parts/10-base.yaml", name)
	case slices.ContainsFunc(strings.Split(name, "/"), hidden), strings.HasPrefix(name, "trust/"), name == "inventory.yaml", !slices.Contains(draftEndings, path.Ext(name)):
		return fmt.Errorf("%q is not a policy file: a draft has fleet.yaml, parts and the lists of sets, which end in %s", name, strings.Join(draftEndings, ", "))
	}
	return nil
}

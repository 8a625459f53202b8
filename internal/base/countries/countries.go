// Package countries has the English names of countries and regions, by the codes of ISO
// 3166-1. They are those of Unicode's CLDR as golang.org/x/text has them, whose package
// display brings the names of all languages: two megabytes of a program. AN has its own,
// since it was withdrawn and country data still name it. Callers: geo, and policy for a hint.
package countries

import (
	_ "embed"
	"strings"
	"sync"
)

//go:embed names.txt
var names string

// table is read when a name is first asked for.
var table = sync.OnceValue(func() map[string]string {
	out := make(map[string]string, 300)
	for line := range strings.Lines(names) {
		code, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		out[code] = name
	}
	return out
})

// Name is the English name of a code of two capital letters; "" where it has none.
func Name(code string) string { return table()[code] }

package countries

import (
	"strings"
	"testing"

	"sluice/internal/base/testgolden"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"
)

// TestNames: every code has the name that the library has, and AN, withdrawn in 2010, that which
// it had: country data still name it.
func TestNames(t *testing.T) {
	var text strings.Builder
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			code, want := string([]rune{a, b}), ""
			if region, err := language.ParseRegion(code); err == nil {
				want = display.English.Regions().Name(region)
			}
			if code == "AN" {
				want = "Netherlands Antilles"
			}
			if want != "" {
				text.WriteString(code + " " + want + "\n")
			}
			if got := Name(code); got != want && !testgolden.Update() {
				t.Errorf("%s: %q, want %q (go test -update writes them)", code, got, want)
			}
		}
	}
	testgolden.File(t, "names.txt", []byte(text.String()))
}

package countries

import (
	"flag"
	"os"
	"strings"
	"testing"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"
)

var update = flag.Bool("update", false, "write names.txt")

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
			if got := Name(code); got != want && !*update {
				t.Errorf("%s: %q, want %q (go test -update writes them)", code, got, want)
			}
		}
	}
	if *update {
		if err := os.WriteFile("names.txt", []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

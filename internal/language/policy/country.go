package policy

import (
	"strings"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"
)

// countryNamed returns the code of a country by its English name, or "". It is
// for the hint of an error, so it may be slow.
func countryNamed(name string) string {
	names := display.English.Regions()
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			region, err := language.ParseRegion(string([]rune{a, b}))
			if err == nil && region.IsCountry() && strings.EqualFold(names.Name(region), name) {
				return region.String()
			}
		}
	}
	return ""
}

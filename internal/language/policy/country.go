package policy

import (
	"strings"

	"golang.org/x/text/language"

	"sluice/internal/base/countries"
)

// countryNamed returns the code of a country by its English name, or "". It is
// for the hint of an error, so it may be slow.
func countryNamed(name string) string {
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			code := string([]rune{a, b})
			region, err := language.ParseRegion(code)
			if err == nil && region.IsCountry() && strings.EqualFold(countries.Name(code), name) {
				return region.String()
			}
		}
	}
	return ""
}

package geo

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
	"golang.org/x/text/language"

	"sluice/internal/base/countries"
)

// Country is a country as it is shown.
type Country struct {
	Code      string `json:"code"`      // ISO 3166-1, two letters
	Name      string `json:"name"`      // English; empty where there is none
	Continent string `json:"continent"` // two letters; empty where there is none
}

// CountryOf returns what is known of a code of two capital letters.
func CountryOf(code string) Country {
	return Country{Code: code, Name: countries.Name(code), Continent: continentOf(code)}
}

// continents are the codes that users write, with the code of UN M49 that holds
// their countries; Antarctica has none.
var continents = map[string]string{
	"AF": "002", "AN": "", "AS": "142", "EU": "150", "NA": "003", "OC": "009", "SA": "005",
}

var continentNames = map[string]string{
	"AF": "Africa", "AN": "Antarctica", "AS": "Asia", "EU": "Europe",
	"NA": "North America", "OC": "Oceania", "SA": "South America",
}

// ContinentName is the name of a code of a continent, "" of any other.
func ContinentName(code string) string { return continentNames[code] }

// exceptions are where the continents of users and of country data differ from
// UN M49; the last two are what registries write for a whole region.
var exceptions = map[string]string{
	"CY": "EU",
	"AQ": "AN", "BV": "AN", "GS": "AN", "HM": "AN", "TF": "AN",
	"EU": "EU", "AP": "AS",
}

// continentOf returns the continent of a country, or "".
func continentOf(code string) string {
	if c, ok := exceptions[code]; ok {
		return c
	}
	r, err := language.ParseRegion(code)
	if err != nil {
		return ""
	}
	for c, m49 := range continents {
		if m49 != "" && language.MustParseRegion(m49).Contains(r) {
			return c
		}
	}
	return ""
}

// UnknownError is a country or continent that there is not.
type UnknownError struct {
	Kind    string // "country" or "continent"
	Code    string // as it was written
	Suggest string // what may have been meant: "GB (United Kingdom)"; may be empty
}

// Error names the code and, on a line of its own, what may have been meant.
func (e *UnknownError) Error() string {
	text := fmt.Sprintf("unknown %s %q", e.Kind, e.Code)
	if e.Suggest != "" {
		text += "\nhint: did you mean " + e.Suggest + "?"
	}
	return text
}

// KnownCountry checks a country code, in any case, and returns it in capitals.
// The error is an [*UnknownError].
func KnownCountry(code string) (string, error) {
	up := strings.ToUpper(code)
	if isCode(up) {
		if r, err := language.ParseRegion(up); err == nil && r.IsCountry() && r.Canonicalize() == r && r.ISO3() != "ZZZ" {
			return up, nil
		}
	}
	return "", &UnknownError{Kind: "country", Code: code, Suggest: suggestCountry(code)}
}

// KnownContinent checks a continent code, in any case, and returns it in
// capitals. The error is an [*UnknownError].
func KnownContinent(code string) (string, error) {
	up := strings.ToUpper(code)
	if _, ok := continents[up]; ok {
		return up, nil
	}
	return "", &UnknownError{Kind: "continent", Code: code, Suggest: suggestContinent(code)}
}

func isCode(s string) bool {
	return len(s) == 2 && s[0] >= 'A' && s[0] <= 'Z' && s[1] >= 'A' && s[1] <= 'Z'
}

// suggestCountry finds the country that was meant: by an outdated or
// three-letter code, by its name, or by a name with a slip in it.
func suggestCountry(s string) string {
	shown := func(code string) string { return fmt.Sprintf("%s (%s)", code, CountryOf(code).Name) }
	if r, err := language.ParseRegion(s); err == nil {
		if c, err := canonical(r); err == nil {
			return shown(c)
		}
	}
	byName := make(map[string]string)
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			code := string([]rune{a, b})
			if r, err := language.ParseRegion(code); err == nil {
				if c, err := canonical(r); err == nil && c == code {
					byName[countries.Name(code)] = code
				}
			}
		}
	}
	if best := closest(s, slices.Sorted(maps.Keys(byName))); best != "" {
		return shown(byName[best])
	}
	return ""
}

func canonical(r language.Region) (string, error) {
	r = r.Canonicalize()
	if !r.IsCountry() || r.ISO3() == "ZZZ" {
		return "", fmt.Errorf("%s is not a country", r)
	}
	return r.String(), nil
}

func suggestContinent(s string) string {
	codes := make(map[string]string)
	for code, name := range continentNames {
		codes[name] = code
	}
	if best := closest(s, slices.Sorted(maps.Keys(codes))); best != "" {
		return fmt.Sprintf("%s (%s)", codes[best], best)
	}
	if code, err := KnownCountry(s); err == nil {
		return fmt.Sprintf("countries: [%s]", code)
	}
	return "one of " + strings.Join(slices.Sorted(maps.Keys(continents)), ", ")
}

// closest returns the name most like s, or "" when none is like it. Codes of
// two letters are too short to tell a slip from another code.
func closest(s string, names []string) string {
	if len(s) < 3 {
		return ""
	}
	best, score := "", 0.7
	for _, n := range names {
		if m := levenshtein.Match(strings.ToLower(s), strings.ToLower(n), nil); m > score {
			best, score = n, m
		}
	}
	return best
}

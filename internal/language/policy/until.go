package policy

import (
	"strings"
	"time"

	"sluice/internal/language/source"
)

// momentForms are the layouts of a moment; what is written has the first of them.
var momentForms = []string{time.RFC3339, "2006-01-02T15:04Z07:00"}

// until reads the moment at which a rule ends.
func (r *rule) until() bool {
	t, ok := r.word("a time", "write a date and a time of day, as in until 2027-01-31T18:00:00Z")
	if !ok {
		return false
	}
	at, p := parseMoment(t.text)
	if p != nil {
		return r.problemAt(t, p)
	}
	r.rule.Until = at
	return true
}

func parseMoment(text string) (time.Time, *problem) {
	for _, form := range momentForms {
		at, err := time.Parse(form, strings.ToUpper(text))
		switch {
		case err != nil:
		case at.Year() < 1970 || at.Year() > maxYear:
			return time.Time{}, problemf("", "the year of %s is not from 1970 to %d", source.Quote(text), maxYear)
		case at.Nanosecond() != 0:
			return time.Time{}, problemf("remove the fraction of the second", "%s is not a whole second", source.Quote(text))
		default:
			return at.UTC(), nil
		}
	}
	hint := "write a date and a time of day with Z for UTC, as in 2027-01-31T18:00:00Z"
	if _, err := time.Parse("2006-01-02T15:04:05", text); err == nil {
		hint = "add the time zone:  " + text + "Z is UTC, " + text + "+01:00 is one hour ahead of UTC"
	}
	return time.Time{}, problemf(hint, "%s is not a time", source.Quote(text))
}

// maxYear is the last whose seconds since 1970 fit whole into 32 bits.
const maxYear = 2105

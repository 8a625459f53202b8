package peers

import (
	"time"

	"sluice/internal/language/policy"
)

// rateOf is a limit in a unit that nft and iptables both have; false where it is a
// whole number in none of them.
func rateOf(l *policy.Limit) (count uint64, unit string, whole bool) {
	units := []struct {
		name string
		long time.Duration
	}{{"second", time.Second}, {"minute", time.Minute}, {"hour", time.Hour}, {"day", 24 * time.Hour}}
	for _, u := range units {
		n := l.Count * uint64(u.long)
		if n%uint64(l.Per) == 0 {
			return n / uint64(l.Per), u.name, true
		}
	}
	return max(1, l.Count*uint64(24*time.Hour)/uint64(l.Per)), "day", false
}

// oddRates are the rules whose limit no whole number says.
func oddRates(m Meaning) (out []Refusal) {
	eachRule(m, func(r Rule) {
		if r.Limit == nil {
			return
		}
		if _, _, whole := rateOf(r.Limit); !whole {
			out = append(out, Refusal{r.Text, "a rate that is not a whole number in a second, minute, hour or day"})
		}
	})
	return out
}

package policy

import (
	"strings"
	"time"

	"sluice/internal/language/source"
)

// maxRate bounds counts and bursts; the kernel keeps a burst in 32 bits.
const maxRate = 1_000_000_000

// maxRateTime is the longest unit that the kernel's limit has.
const maxRateTime = 7 * 24 * time.Hour

func (r *rule) limit() bool {
	l := &Limit{Pos: r.previous().pos}
	t, ok := r.word("a rate", "write COUNT/UNIT, as in 10/minute")
	if !ok {
		return false
	}
	count, unit, slash := strings.Cut(t.text, "/")
	if !slash || count == "" || unit == "" {
		return r.failAt(t, "write COUNT/UNIT, as in 10/minute or 6/30s", "%s is not a rate", source.Quote(t.text))
	}
	var p *problem
	if l.Count, p = parseNumber(count, "the count of a limit", maxRate); p != nil {
		return r.problemAt(t, p)
	}
	if l.Per, p = parseUnit(unit); p != nil {
		return r.problemAt(t, p)
	}
	rate := t.text
	for {
		t := r.peek()
		switch {
		case r.is("per") && !l.PerSource:
			r.take()
			if l.PerSource = r.perSource(); !l.PerSource {
				return false
			}
		case r.is("burst") && l.Burst == 0:
			r.take()
			n, ok := r.word("a number", "write burst N")
			if !ok {
				return false
			}
			if l.Burst, p = parseNumber(n.text, "burst", maxRate); p != nil {
				return r.problemAt(n, p)
			}
		case r.is("then") && l.ThenBan == 0:
			if !r.thenBan(l) {
				return false
			}
		case r.is("per", "burst", "then"):
			return r.failAt(t, "", "duplicate %s", source.Quote(t.text))
		case r.is("widen"):
			return r.failAt(t, "write then ban TIME widen", "only a ban can widen")
		default:
			if l.ThenBan != 0 && !l.PerSource {
				r.fail(l.Pos, "write limit "+rate+" per source then ban …", "then ban needs a limit per source")
			}
			r.rule.Limit = l
			return true
		}
	}
}

func (r *rule) perSource() bool {
	t := r.peek()
	if !r.accept("source") {
		hint := "write per source"
		if r.is("second", "minute", "hour", "day") {
			hint = "write the time after a slash: limit 10/" + t.text
		}
		return r.failAt(t, hint, "expected source after per, found %s", t.describe())
	}
	if why, wayOut := noSense("per source", r.hook); why != "" {
		r.failAt(t, wayOut, "%s cannot be used in %s: %s", source.Quote("per source"), r.hook, why)
	}
	return true
}

func (r *rule) thenBan(l *Limit) bool {
	r.take()
	if t := r.peek(); !r.accept("ban") {
		return r.failAt(t, "write then ban TIME", "expected ban after then, found %s", t.describe())
	}
	t, ok := r.word("a duration", "write then ban 10m")
	if !ok {
		return false
	}
	var p *problem
	if l.ThenBan, p = parseDuration(t.text); p != nil {
		return r.problemAt(t, p)
	}
	l.Widen = r.accept("widen")
	return true
}

// parseUnit reads the time of a rate.
func parseUnit(s string) (time.Duration, *problem) {
	if s == "week" {
		return maxRateTime, nil
	}
	for _, u := range units[1:] {
		if s == u.words[0] || s == string(u.letter) {
			return u.length, nil
		}
	}
	d, p := parseDuration(s)
	switch {
	case p != nil && p.message == source.Quote(s)+" is not a duration":
		return 0, problemf("write second, minute, hour, day, or a duration such as 30s", "%s is not a unit of time%s", source.Quote(s), source.DidYouMean(s, []string{"second", "minute", "hour", "day"}))
	case p != nil:
		return 0, p
	case d > maxRateTime:
		return 0, problemf("at most 7d", "the period of the limit, %s, is too long", source.Quote(s))
	}
	return d, nil
}

func (r *rule) max() bool {
	m := &MaxConnections{Pos: r.previous().pos}
	if r.rule.Action != Allow {
		r.failAt(r.previous(), "write it as an allow", "max cannot be used with %s: it limits what a rule allows", r.rule.Action)
	}
	t, ok := r.word("a number", "write max N connections")
	if !ok {
		return false
	}
	n, p := parseNumber(t.text, "the number of connections", 1<<32-1)
	if p != nil {
		return r.problemAt(t, p)
	}
	m.Count = uint32(n)
	if !r.accept("connections") && !r.accept("connection") {
		at, line := r.peek(), "write max "+t.text+" connections"
		if r.accept("per") {
			line += " per source"
		}
		return r.failAt(at, line, "expected connections, found %s", at.describe())
	}
	if r.accept("per") {
		if m.PerSource = r.perSource(); !m.PerSource {
			return false
		}
	}
	r.rule.Max = m
	return true
}

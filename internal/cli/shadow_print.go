package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine/shadow"
)

// liveText is one line of what was counted up to now.
func liveText(r *shadow.Report, life time.Duration) string {
	text := fmt.Sprintf("%s of %s: %s seen, ", spanText(r.Until.Sub(r.Since)), spanText(life), packetsText(r.Total.Seen))
	if r.Total.Refused() == 0 {
		return text + "none would be dropped"
	}
	text += english.Grouped(r.Total.Refused()) + " would be dropped"
	var most []string
	if len(r.Sources) > 0 {
		most = append(most, strings.TrimSpace(r.Sources[0].Address+" "+r.Sources[0].Country))
	}
	if len(r.Services) > 0 {
		most = append(most, serviceText(r.Services[0]))
	}
	if len(most) > 0 {
		text += ", most: " + strings.Join(most, ", ")
	}
	return text
}

// spanText is a time in whole seconds, such as 10m, 1h5m or 12s.
func spanText(d time.Duration) string {
	return english.Span(max(d, time.Second))
}

func packetsText(n uint64) string {
	if n == 1 {
		return "1 packet"
	}
	return english.Grouped(n) + " packets"
}

func serviceText(s shadow.ServiceReport) string {
	if s.Name == "" || s.Name == s.Service {
		return s.Service
	}
	return s.Service + " (" + s.Name + ")"
}

// printShadow prints the report: a sentence first, tables behind it.
func printShadow(w io.Writer, r *shadow.Report, top int, all bool) {
	fmt.Fprintln(w, command.Paint(w, "1", shadowSentence(r)))
	if r.Total.Unjudged > 0 {
		fmt.Fprintf(w, "%s could not be judged.\n", packetsText(r.Total.Unjudged))
	}
	if r.Total.Stopped > 0 {
		fmt.Fprintf(w, "The running firewall stopped %s meanwhile.\n", packetsText(r.Total.Stopped))
	}
	printShadowLines(w, r, top, all)
	if len(r.Sources) > 0 {
		fmt.Fprintf(w, "\n%12s  %s\n", "packets", "from, or to where it is output")
		firstOf(w, r.Sources, top, "other address", func(s shadow.SourceReport) {
			fmt.Fprintf(w, "%12s  %-7s  %-39s  %s\n", english.Grouped(s.Packets), s.Hook, s.Address, countryText(s.Country, s.Name))
		})
	}
	if len(r.Services) > 0 {
		fmt.Fprintf(w, "\n%12s  %s\n", "packets", "service")
		firstOf(w, r.Services, top, "other", func(s shadow.ServiceReport) {
			fmt.Fprintf(w, "%12s  %-7s  %s\n", english.Grouped(s.Packets), s.Hook, serviceText(s))
		})
	}
	if len(r.Countries) > 0 {
		fmt.Fprintf(w, "\n%12s  %9s  %s\n", "packets", "addresses", "country")
		firstOf(w, r.Countries, top, "other", func(c shadow.CountryReport) {
			fmt.Fprintf(w, "%12s  %9s  %s\n", english.Grouped(c.Packets), english.Grouped(c.Sources), countryText(c.Country, c.Name))
		})
	}
	for _, h := range r.Hooks {
		if h.SourcesBeyond > 0 {
			fmt.Fprintf(w, "note: %s of %s are in no list of addresses: the table was full\n", packetsText(h.SourcesBeyond), h.Hook)
		}
		if h.ServicesBeyond > 0 {
			fmt.Fprintf(w, "note: %s of %s are in no list of services: fragments, or the table was full\n", packetsText(h.ServicesBeyond), h.Hook)
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note: "+n)
	}
}

// firstOf prints the first rows of a table, and how many there are beside.
func firstOf[T any](w io.Writer, rows []T, top int, others string, row func(T)) {
	for _, r := range rows[:min(top, len(rows))] {
		row(r)
	}
	if more := len(rows) - top; more > 0 {
		fmt.Fprintf(w, "%12s  and %s\n", "…", english.Plural(more, others))
	}
}

// shadowSentence is the answer.
func shadowSentence(r *shadow.Report) string {
	begin := fmt.Sprintf("In %s, ", spanText(r.Until.Sub(r.Since)))
	t := r.Total
	switch {
	case t.Seen == 0:
		return begin + "no packet came."
	case t.Refused() == 0 && t.Unjudged == 0:
		return begin + r.Policy + " would have let pass all of " + packetsText(t.Seen) + "."
	case t.Refused() == 0:
		return begin + r.Policy + " would have dropped none of " + packetsText(t.Seen) + "."
	}
	var what []string
	if t.Dropped > 0 {
		what = append(what, "dropped "+english.Grouped(t.Dropped))
	}
	if t.Rejected > 0 {
		what = append(what, "rejected "+english.Grouped(t.Rejected))
	}
	share := 100 * float64(t.Refused()) / float64(max(t.Seen, t.Refused()))
	return begin + fmt.Sprintf("%s would have %s of %s (%.3g %%).", r.Policy, strings.Join(what, " and "), packetsText(t.Seen), share)
}

func printShadowLines(w io.Writer, r *shadow.Report, top int, all bool) {
	shown, left := 0, 0
	for _, l := range r.Lines {
		if l.Verdict == shadow.Allow && !all {
			continue
		}
		if shown == top && !all {
			left++
			continue
		}
		if shown == 0 {
			fmt.Fprintf(w, "\n%12s  %s\n", "packets", "line of the policy")
		}
		shown++
		text := l.Text
		if l.Line > 0 {
			text = fmt.Sprintf("%s:%d: %s", l.File, l.Line, l.Text)
		}
		fmt.Fprintf(w, "%12s  %-7s  %s  %s\n", english.Grouped(l.Packets), l.Hook, command.Paint(w, verdictStyle(l.Verdict), fmt.Sprintf("%-10s", l.Verdict)), text)
	}
	if left > 0 {
		fmt.Fprintf(w, "%12s  and %s\n", "…", english.Plural(left, "other line"))
	}
}

func verdictStyle(v shadow.Verdict) string {
	switch v {
	case shadow.Allow:
		return "32"
	case shadow.Unjudged:
		return "33"
	case shadow.Drop, shadow.Reject:
	}
	return "31"
}

func countryText(code, name string) string {
	switch {
	case code == "":
		return "no country"
	case name == "":
		return code
	}
	return code + " " + name
}

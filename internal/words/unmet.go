package words

import (
	"fmt"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/engine"
	"sluice/internal/prove/expect"
)

// unmet is why a policy is not loaded of which expectations fail.
func unmet(err *engine.UnmetError) string {
	return failing(err.Failing) + "nothing changed: the policy breaks its expectations\nhint: fix the rules or the expectation; --no-expect applies the policy anyway"
}

// unguarded is why a policy is not loaded that the host's guard does not let in.
func unguarded(err *engine.GuardError) string {
	return failing(err.Failing) + "nothing changed: " + err.Error() + ", which hold for every policy of this host\nhint: fix the rules, or those lines; no flag overrides them"
}

func failing(list []expect.Result) string {
	var b strings.Builder
	for _, r := range list {
		fmt.Fprintf(&b, "%s: this does not hold: %s\n", r.Expectation.Pos, r.Expectation.Text)
		fmt.Fprintln(&b, Failures(r.Failures, "    "))
	}
	return b.String()
}

// shownClasses is how many classes of packets are printed of one failure.
const shownClasses = 5

// shownFailures is how many lines that decide otherwise are printed.
const shownFailures = 8

// Failures says of the packets that meet something else than is expected what they meet.
func Failures(list []expect.Failure, indent string) string {
	var parts []string
	for i, f := range list {
		if i == shownFailures {
			parts = append(parts, fmt.Sprintf("%sand by %s more", indent, english.Plural(len(list)-i, "line")))
			break
		}
		parts = append(parts, failureText(f, indent))
	}
	return strings.Join(parts, "\n")
}

// failureText says of packets what they meet, by which line, and which they are.
func failureText(f expect.Failure, indent string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s by %s\n", indent, f.Verdict.Done(), f.By())
	for i, t := range f.Traffic {
		if i == shownClasses {
			fmt.Fprintf(&b, "%s  and %s of packets more\n", indent, english.Plural(len(f.Traffic)-i, "class"))
			break
		}
		fmt.Fprintf(&b, "%s  %s %s\n", indent, t.Service(), t.Place())
	}
	fmt.Fprintf(&b, "%s  for example %s", indent, expect.PacketText(f.Witness))
	return b.String()
}

package drift

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/sorting"
	"sluice/internal/base/tell"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/engine/verify"
)

// findingsOf is what a proof found. What the host itself became is not among it, since that
// is followed, and neither is what changes no packet.
func findingsOf(v *engine.Verified) (out []apply.Finding) {
	add := func(kind apply.FindingKind, line, format string, args ...any) {
		if len(out) < mostFindings {
			out = append(out, apply.Finding{Kind: kind, Text: tell.Printable(fmt.Sprintf(format, args...)), Line: line})
		}
	}
	if v.Nothing {
		out = append(out, gone(v.Generation))
	} else {
		differences := slices.Clone(v.Differences)
		sorting.StableBy(differences, func(a, b verify.Difference) int { return cmp.Compare(weight(a), weight(b)) })
		for _, d := range differences {
			add(apply.FoundPacket, d.Expected.By, "%s: %s: meant %s, the kernel %s; all of %s", d.Way, d.Packet, outcome(d.Expected), outcome(d.Kernel), d.About)
		}
		for _, d := range slices.Concat(v.Bans, v.Longer) {
			add(apply.FoundBan, "", "%s", apply.DescribeDifference(d))
		}
	}
	for _, d := range v.Exceptions {
		add(apply.FoundException, "", "%s", d)
	}
	for _, e := range v.Strange {
		add(apply.FoundElement, "", "set %s holds %s; its rules make: %s", e.Set, e.Kernel, e.Expected)
	}
	for _, u := range v.Unread {
		add(apply.FoundUnread, "", "chain %s has a rule that is not understood: %s: %s", u.Chain, u.Text, u.Why)
	}
	for _, c := range v.Unproved {
		if !c.Matters() {
			continue
		}
		by := "nftables"
		if c.Legacy {
			by = "legacy iptables"
		}
		add(apply.FoundChain, "", "chain %s of table %s %s (%s, at %s, priority %d) is not ours and %s", c.Name, c.Family, c.Table, by, c.Hook, c.Priority, c.Text())
	}
	for _, b := range v.Attached {
		if b.Matters() {
			add(apply.FoundBeside, "", "%s", b.Text)
		}
	}
	if !v.Proved && !slices.ContainsFunc(out, func(f apply.Finding) bool { return f.Kind.Restorable() }) && len(v.Host.Moved)+len(v.Host.Fixed) == 0 {
		add(apply.FoundUnproved, "", "not proved, since nobody can decide: %s", strings.Join(v.Opaque, "; "))
	}
	return out
}

// Differs says how what runs differs from what was meant, "" where it is proved not to.
func Differs(v *engine.Verified) string {
	var out []string
	for _, f := range findingsOf(v) {
		if f.Kind.Restorable() {
			out = append(out, f.Text)
		}
	}
	if len(out) == 0 && !v.Proved {
		return "it is not proved"
	}
	return strings.Join(out, "\n")
}

func unproved(err error) apply.Finding {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return apply.Finding{Kind: apply.FoundUnproved, Text: "what runs cannot be proved: " + text}
}

// weight puts what is let in first, and what is kept out next.
func weight(d verify.Difference) int {
	switch {
	case d.Expected.Verdict == d.Kernel.Verdict:
		return 2
	case d.Expected.Verdict == "accept":
		return 1
	}
	return 0
}

func gone(generation int) apply.Finding {
	return apply.Finding{Kind: apply.FoundGone, Text: fmt.Sprintf("the rules of generation %d are gone: every packet passes", generation)}
}

func outcome(o verify.Outcome) string {
	text := strings.Join(slices.Concat([]string{o.Verdict}, o.Change, o.Effects), "; ")
	return strings.TrimPrefix(text, "; ") + " (" + cmp.Or(o.By, "nothing") + ")"
}

func sysctls(g *apply.Glimpse) (out []apply.Finding) {
	for _, d := range g.Sysctls {
		out = append(out, apply.Finding{Kind: apply.FoundSysctl, Text: fmt.Sprintf("sysctl %s is %s and should be %s", d.Name, d.Have, d.Want)})
	}
	return out
}

// standing are the findings of before, with those that are looked at again each time.
func (w *Watcher) standing(g *apply.Glimpse) []apply.Finding {
	out := slices.DeleteFunc(slices.Clone(w.state.Findings), func(f apply.Finding) bool {
		return f.Kind == apply.FoundSysctl || f.Kind == apply.FoundException || f.Kind == apply.FoundClosed
	})
	for _, d := range g.Exceptions {
		out = append(out, apply.Finding{Kind: apply.FoundException, Text: tell.Printable(d.String())})
	}
	return append(out, sysctls(g)...)
}

package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
	"sluice/internal/system/kernel/sampling"
)

var rulesBusy = Check{
	ID:    "rules-busy",
	What:  "rules use a large part of the processors' time",
	Least: check.Warning,
	Why: `Each packet is evaluated by the rules of its hooks. If that takes a tenth of a processor, and a
quarter of the time of all packet work, make the rules cheaper first. Each processor is sampled
999 times a second (perf_event_open, the processor's clock), and the kernel function found
there shows what it does. The samples cover all network namespaces together, so this is
reported only if this one has rules of that kind and enough packets. Functions do not show
which table a rule is in.`,
	Fix: `Use sets instead of many similar rules, put the rule for known connections first, and drop
floods before connection tracking. A policy of Sluice does all of that.`,
	Undo: "Load the previous rules.",
	look: func(s *Seen, say func(Finding)) {
		if s.Window.Seconds() < judgedSeconds {
			return
		}
		var all float64
		for _, t := range s.Taken {
			all += t.Share
		}
		var packets uint64
		for _, d := range s.Devices {
			packets += d.Packets
		}
		for _, t := range s.Taken {
			if t.rules == "" || t.Samples < fewSamples || t.Share < rulesMuch || t.Share*rulesPart < all || t.Share*s.Window.Seconds() > longestAsking*float64(packets) {
				continue
			}
			where := s.asking(t)
			if len(where) == 0 {
				continue
			}
			say(Finding{
				Text: fmt.Sprintf("rules of %s take %.0f %% of a processor%s", t.What, 100*t.Share, prefixed(", at hook ", t.Hook)),
				Evidence: append([]Evidence{
					found("perf_event_open, cpu-clock", "%s there, of %.0f on each processor", english.Plural(t.Samples, "sample"), s.Window.Seconds()/sampling.Period.Seconds()),
					found("perf_event_open, cpu-clock", "packets took %.0f %% of a processor in all", 100*all),
				}, where...),
				Cost: fmt.Sprintf("%.2f processors", t.Share),
				Fix:  []string{"begin with the other findings on these rules"},
			})
		}
	},
}

// asking are the base chains that may have taken the time.
func (s *Seen) asking(t Taken) (out []Evidence) {
	for _, r := range s.Rules {
		if (r.Tool == "iptables-legacy") != t.legacy || r.Family != t.rules && t.rules != "nat" {
			continue
		}
		for _, h := range r.Program.Hooks {
			if (t.Hook == "" || string(h.Kind) == t.Hook) && len(out) < mostTop {
				out = append(out, found(toolOf(r), "chain %s at hook %s; %s in all its chains", h.Chain, h.Kind, english.Plural(len(r.Rules), "rule")))
			}
		}
	}
	return out
}

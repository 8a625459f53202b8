package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
	"sluice/internal/system/kernel/sampling"
)

var rulesBusy = Check{
	ID:    "rules-busy",
	What:  "rules take a large part of the processors' time",
	Least: check.Warning,
	Why: `Each packet is asked by the rules of its hooks. Where that takes a tenth of a processor,
and a quarter of all that packets take, it is what to make cheaper before anything else. The
processors are looked at 999 times a second each (perf_event_open, the clock of the processor),
and where they are in the kernel is told by its functions: that is of all network namespaces
together, and said where this one has rules of that kind and packets enough. Functions do not tell tables apart.`,
	Fix: `Sets in place of runs of rules, the rule for known connections first, what is dropped
in great numbers before connection tracking; in a policy of Sluice all of that is done.`,
	Undo: "Load the rules as they were.",
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
					found("perf_event_open, cpu-clock", "%s of %.0f a processor were there", english.Plural(t.Samples, "sample"), s.Window.Seconds()/sampling.Period.Seconds()),
					found("perf_event_open, cpu-clock", "packets took %.0f %% of a processor in all", 100*all),
				}, where...),
				Cost: fmt.Sprintf("%.2f processors", t.Share),
				Fix:  []string{"begin with what is found of these rules beside this"},
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

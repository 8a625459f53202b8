package doctor

import (
	"fmt"
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/check"
	"sluice/internal/prove/reach"
)

var judgedAgain = Check{
	ID:    "judged-again",
	What:  "what one base chain lets in, another one of the same hook judges again",
	Least: check.Warning,
	Why: `An accept ends the way through its own base chain alone. The packet goes on to all other
base chains of that hook, of whatever table, priority and tool: each of them may drop it, and
each costs. Asked is, for each port of TCP at which a program waits, a new connection from the
internet: said where a rule for that port lets it in, and another base chain drops it by its
policy or by a rule for all packets. A remark where that costs a packet of a known connection
20 rules and more.`,
	Fix:  "One base chain for each hook: the rule for the port where the others are, and one firewall.",
	Undo: "Take that rule away.",
	look: func(s *Seen, say func(Finding)) {
		told := map[string]bool{}
		for _, l := range s.Listening {
			if l.At.Addr().IsLoopback() || len(told) >= mostServices {
				continue
			}
			for _, family := range []int{4, 6} {
				p, ok := s.fromInternet(family)
				if !ok || l.At.Addr().Is4() && family == 6 {
					continue
				}
				of := service{packet.TCP, l.At.Port()}
				of.begin(&p)
				if !told[of.String()] {
					told[of.String()] = s.overruled(of, p, say)
				}
			}
		}
		s.judgedOften(say)
	},
}

// overruled says that a rule for the port lets a packet in and another chain drops it.
func (s *Seen) overruled(of service, p packet.Packet, say func(Finding)) bool {
	by, got := s.dropped(p)
	if by == nil || got.Hook != program.Input || got.Rule != nil && slices.ContainsFunc(got.Rule.Match, narrow) {
		return false
	}
	for _, r := range s.Rules {
		if !meets(r, p.Family()) {
			continue
		}
		for _, h := range r.Program.Hooks {
			if h.Kind != program.Input || h.Phase == program.NAT || r == by && h.Chain == got.Chain {
				continue
			}
			alone := only(r, func(other program.Hook) bool { return other.Chain == h.Chain })
			if end := reach.Evaluate(alone, p, packet.In); !end.Certain || end.Verdict != program.Accept {
				continue
			}
			lets := acting(alone, p, packet.In, func(e program.Effect) bool { return e.Decides == program.Accept })
			if lets == nil || !namesPorts(lets) {
				continue
			}
			say(Finding{
				Text: fmt.Sprintf("%s is let in by a rule of %s, and dropped by %s", of, toolOf(r), byText(by, got)),
				Evidence: []Evidence{
					found(toolOf(r), "%s from %s to %s in %s: let in by %s", of, p.Source, p.Destination, p.In, byText(r, reach.Result{Rule: lets})),
					found(toolOf(by), "the same packet: dropped by %s", byText(by, got)),
				},
				Fix: []string{fmt.Sprintf("where it is dropped: nft: tcp dport %d accept   (iptables: -p tcp --dport %d -j ACCEPT); or one of the two alone", of.port, of.port)},
			})
			return true
		}
	}
	return false
}

// narrow says that a condition is about some of those who ask, and not about what they ask.
func narrow(c program.Condition) bool {
	return !slices.Contains([]program.Field{program.Protocol, program.Family, program.Port, program.InInterface, program.State, program.TCPFlags, program.DestinationType}, c.Field)
}

// namesPorts says that a rule is about ports.
func namesPorts(rule *program.Rule) bool {
	return slices.ContainsFunc(rule.Match, func(c program.Condition) bool {
		return !c.Not && (c.Field == program.Port || slices.Contains(c.SetKey, program.Port))
	}) || slices.ContainsFunc(rule.Actions, func(a program.Action) bool {
		return slices.Contains(program.EffectOf(a).Reads, program.Port)
	})
}

// judgedOften says what it costs that several base chains of hook input judge a packet of
// a known connection.
func (s *Seen) judgedOften(say func(Finding)) {
	for _, family := range []int{4, 6} {
		p := aPacket(family)
		p.State = packet.Established
		var where []Evidence
		var most, cost float64
		rules, largest := 0, 0
		for _, r := range s.Rules {
			if !meets(r, family) {
				continue
			}
			now, asked := program.Hook{}, map[string]int{}
			m := silentMeter()
			m.Base = func(h program.Hook) { now = h }
			m.Rule = func(*program.Rule) { asked[now.Chain]++ }
			reach.Measure(r.Program, p, packet.In, m)
			for _, h := range r.Program.Hooks {
				n := asked[h.Chain]
				if h.Kind != program.Input || n == 0 || !filters(r.Program, h) {
					continue
				}
				where = append(where, found(toolOf(r), "chain %s: %s", h.Chain, english.Plural(n, "rule")))
				rules, largest = rules+n, max(largest, n)
				cost, most = cost+ruleCost(r, n), max(most, ruleCost(r, n))
			}
		}
		if rules-largest < lateRules {
			continue
		}
		say(Finding{
			Severity: check.Remark,
			Text:     fmt.Sprintf("a packet of a known connection is judged by %s of hook input", english.Plural(len(where), "base chain")),
			Evidence: where[:min(len(where), mostTop)],
			Cost:     fmt.Sprintf("some %.0f ns for each packet beside the longest of them", cost-most),
			Fix:      []string{"one base chain for the hook, or in each of them first: ct state established,related accept"},
		})
		return
	}
}

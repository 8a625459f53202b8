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
	What:  "a packet that one base chain accepts is evaluated again by another one of the same hook",
	Least: check.Warning,
	Why: `An accept ends the evaluation in its own base chain only. The packet goes on to all other base
chains of that hook, of whatever table, priority and tool: each may drop it, and each costs
time. For each TCP port that a program listens on, the doctor evaluates a new connection from
the internet, and reports it if a rule for that port accepts it and another base chain drops it
by its policy or by a rule for all packets. A remark if the other chains cost a packet of a
known connection 20 rules or more.`,
	Fix: `Use one base chain for each hook: put the rule for the port where the others are, and run one
firewall.`,
	Undo: "Delete that rule.",
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
				Text: fmt.Sprintf("%s is accepted by a rule of %s and dropped by %s", of, toolOf(r), byText(by, got)),
				Evidence: []Evidence{
					found(toolOf(r), "%s from %s to %s in %s: accepted by %s", of, p.Source, p.Destination, p.In, byText(r, reach.Result{Rule: lets})),
					found(toolOf(by), "the same packet: dropped by %s", byText(by, got)),
				},
				Fix: []string{fmt.Sprintf("where it is dropped, accept it: nft: tcp dport %d accept   (iptables: -p tcp --dport %d -j ACCEPT); or keep only one of the two", of.port, of.port)},
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
			Text:     fmt.Sprintf("a packet of a known connection is evaluated by %s of hook input", english.Plural(len(where), "base chain")),
			Evidence: where[:min(len(where), mostTop)],
			Cost:     fmt.Sprintf("about %.0f ns for each packet, in all but the longest of them", cost-most),
			Fix:      []string{"one base chain for the hook, or first in each of them: ct state established,related accept"},
		})
		return
	}
}

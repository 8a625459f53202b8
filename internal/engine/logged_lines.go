package engine

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
)

// linesTime is how old may be what is known of the lines. The kernel gathers packets for as
// long.
const linesTime = 100 * time.Millisecond

// lines are those of the generation that runs, and of the one that ran before it, whose
// packets may come yet.
type lines struct {
	host        *Host
	now, before *ran
	looked      time.Time
}

// ran is a generation, and what its policy says.
type ran struct {
	*apply.Lines
	says *says // nil: its text cannot be read
}

func (l *lines) of(out *Logged) {
	if time.Since(l.looked) > linesTime {
		l.looked = time.Now()
		n, _, err := l.host.RunningNow()
		if l.now == nil || err == nil && n != l.now.Generation {
			// What cannot be read leaves packets without a line.
			if now, err := l.host.Lines(); err == nil {
				l.now, l.before = &ran{now, l.host.says(now.Generation)}, l.now
			}
		}
	}
	for _, of := range []*ran{l.now, l.before} {
		if of == nil {
			continue
		}
		if o, known := of.ByID[out.ID]; known {
			out.Generation, out.File, out.Line, out.Rule = of.Generation, o.File, o.Line, o.Text
			if of.says != nil {
				out.Called = of.says.service(out)
				out.Sets = of.says.sets(out, policy.Pos{File: o.File, Line: o.Line, Column: o.Column})
			}
			return
		}
	}
}

// says is what a policy says of what its lines log.
type says struct {
	services map[string]string // by Logged.Service, for ICMP up to its type
	rules    map[policy.Pos]*policy.Rule
	named    map[string]bool // the names that are sets
	// held gives the sets that a line has among several; nil where they are not known.
	held func() map[string]addrset.Set
}

func (h *Host) says(generation int) *says {
	s, err := h.Running(nil)
	if err != nil || s.Runs.Number != generation {
		return nil
	}
	var out *says
	out = saysOf(s.Policy, func() map[string]addrset.Set { return h.heldBy(s, out.choices()) })
	return out
}

func saysOf(p *policy.Policy, held func() map[string]addrset.Set) *says {
	out := &says{services: map[string]string{}, rules: map[policy.Pos]*policy.Rule{}, named: map[string]bool{}, held: sync.OnceValue(held)}
	for _, s := range slices.Concat(p.Services, policy.Builtin()) {
		for _, m := range s.Matches {
			for _, key := range keysOf(m) {
				if out.services[key] == "" {
					out.services[key] = s.Name
				}
			}
		}
	}
	for _, s := range p.Sets {
		out.named[s.Name] = true
	}
	for _, s := range []*policy.Section{p.Input, p.Output, p.Forward} {
		if s == nil {
			continue
		}
		for _, r := range s.Rules {
			out.rules[r.Pos] = r
		}
	}
	return out
}

// keysOf are the ports and types that a service names alone: a range that has a port is no
// name of it.
func keysOf(m policy.ServiceMatch) (out []string) {
	for _, p := range m.Ports {
		if p.From == p.To {
			out = append(out, packet.ProtocolName(m.Protocol)+"/"+strconv.Itoa(int(p.From)))
		}
	}
	if m.ICMP != nil {
		for protocol, kind := range map[uint8]int{packet.ICMP: m.ICMP.V4, packet.ICMPv6: m.ICMP.V6} {
			out = append(out, packet.ProtocolName(protocol)+" "+strconv.Itoa(kind))
		}
	}
	return out
}

func (s *says) service(l *Logged) string {
	key, _, _ := strings.Cut(l.Service(), "/")
	if l.ICMP == "" {
		key = l.Service()
	}
	return s.services[key]
}

// sets are those of a line that held an address of a packet.
func (s *says) sets(l *Logged, at policy.Pos) (out []string) {
	r := s.rules[at]
	if r == nil {
		return nil
	}
	for _, side := range []struct {
		who *policy.Who
		is  netip.Addr
	}{{r.From, l.Source}, {r.To, l.Destination}} {
		for _, name := range s.among(side.who) {
			// The line matched, so that a set alone held it.
			if (len(side.who.Items) == 1 || s.held()[name].Contains(side.is)) && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// among are the sets among whom a rule names.
func (s *says) among(who *policy.Who) (out []string) {
	if who == nil || who.Not {
		return nil
	}
	for _, item := range who.Items {
		if s.named[item.Name] {
			out = append(out, item.Name)
		}
	}
	return out
}

// choices are the sets that lines name beside others.
func (s *says) choices() (out []string) {
	for _, r := range s.rules {
		for _, who := range []*policy.Who{r.From, r.To} {
			if who != nil && len(who.Items) > 1 {
				out = append(out, s.among(who)...)
			}
		}
	}
	return out
}

// heldBy is what sets hold of what runs, nil where that is not known any more.
func (h *Host) heldBy(s *Subject, names []string) map[string]addrset.Set {
	quiet := *h
	quiet.Warn = nil
	r, err := quiet.runningResolved(context.Background(), s)
	if err != nil {
		return nil
	}
	if changed, lists, known := s.Runs.ChangedInputs(r.Inputs); len(changed) > 0 || lists || !known && len(r.Inputs) > 0 {
		return nil
	}
	return heldOf(r, names)
}

func heldOf(r *resolve.Resolved, names []string) map[string]addrset.Set {
	out := map[string]addrset.Set{}
	for _, name := range names {
		if set := r.Sets[name]; set != nil {
			out[name] = set.Addresses
		}
	}
	return out
}

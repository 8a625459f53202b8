package apply

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/socket"
)

// EndedFlows are the flows that the bans of a new policy end.
type EndedFlows struct {
	Count int        `json:"count"`
	First []LiveFlow `json:"first"` // some of them
}

// firstEnded bounds how many flows a plan names.
const firstEnded = 5

// add counts one flow, and names it where few are named so far.
func (e *EndedFlows) add(protocol uint8, from, to netip.AddrPort, by string) {
	if e.Count++; len(e.First) < firstEnded {
		e.First = append(e.First, LiveFlow{Protocol: protocolName(protocol), From: from.String(), To: to.String(), Cut: true, By: by})
	}
}

func protocolName(protocol uint8) string {
	names := map[uint8]string{packet.TCP: "tcp", packet.UDP: "udp", packet.ICMP: "icmp", packet.ICMPv6: "icmpv6"}
	return cmp.Or(names[protocol], fmt.Sprint(protocol))
}

// endedFlows lists what the bans of a program end: tracked flows, which are deleted
// behind the switch, and the host's own TCP connections that nobody tracks yet,
// whose next packet begins a flow.
func endedFlows(p *program.Program) (*EndedFlows, error) {
	bans := bansOf(p, program.StageBanFlows)
	if len(bans) == 0 {
		return nil, nil
	}
	local, err := localAddresses()
	if err != nil {
		return nil, err
	}
	over := addrset.Of(p.OverBans...)
	by := func(ends ...netip.Addr) string {
		for _, b := range bans {
			for _, a := range ends {
				if b.addresses.Contains(a) && !local[a] && !over.Contains(a) {
					return b.by
				}
			}
		}
		return ""
	}
	out := &EndedFlows{}
	flows, err := conntrack.List()
	if err != nil {
		return nil, err
	}
	type pair [2]netip.AddrPort
	tracked := map[pair]bool{}
	for _, e := range flows {
		from, to := netip.AddrPortFrom(e.Original.Source, e.Original.SourcePort), netip.AddrPortFrom(e.Original.Destination, e.Original.DestinationPort)
		tracked[pair{from, to}], tracked[pair{to, from}] = true, true
		if e.State.Ended() {
			continue
		}
		if ban := by(e.Original.Source, e.Original.Destination, e.Reply.Source, e.Reply.Destination); ban != "" {
			out.add(e.Protocol, from, to, ban)
		}
	}
	sockets, err := socket.TCP()
	if err != nil {
		return nil, err
	}
	for _, k := range sockets {
		here, there := netip.AddrPortFrom(k.Local.Addr().Unmap(), k.Local.Port()), netip.AddrPortFrom(k.Remote.Addr().Unmap(), k.Remote.Port())
		if k.State != socket.Established || tracked[pair{here, there}] {
			continue
		}
		if ban := by(there.Addr()); ban != "" {
			out.add(packet.TCP, there, here, ban)
		}
	}
	if out.Count == 0 {
		return nil, nil
	}
	return out, nil
}

// banOf is one ban of a policy.
type banOf struct {
	addresses addrset.Set
	by        string // the line of the policy
}

// bansOf are the bans of a program in some stages, in its order, each set once.
func bansOf(p *program.Program, stages ...program.Stage) []banOf {
	var out []banOf
	done := map[string]bool{}
	for _, chain := range p.Chains {
		for _, r := range chain.Rules {
			if !slices.Contains(stages, r.Stage) {
				continue
			}
			for _, m := range r.Match {
				set := p.Set(m.Set)
				if set == nil || m.Not || done[m.Set] {
					continue
				}
				done[m.Set] = true
				out = append(out, banOf{addressesOf(set), banText(r)})
			}
		}
	}
	return out
}

// bannedIn is all that a program bans in some stages.
func bannedIn(p *program.Program, stages ...program.Stage) addrset.Set {
	var out addrset.Set
	for _, b := range bansOf(p, stages...) {
		out = out.Union(b.addresses)
	}
	return out
}

func banText(r program.Rule) string {
	text := cmp.Or(r.Origin.Text, r.Comment)
	if r.Origin.File != "" && r.Origin.Line > 0 {
		text = fmt.Sprintf("%s:%d: %s", r.Origin.File, r.Origin.Line, text)
	}
	return strings.TrimSuffix(text, ": ")
}

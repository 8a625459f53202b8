package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/importer"
	"sluice/internal/importer/loaded"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/link"
	"sluice/internal/system/kernel/nft"
)

// Server is whom the host asks, and by what.
type Server struct {
	What     string // "name server"
	Address  netip.Addr
	Protocol uint8
	Port     uint16
	From     uint16 // port of the host; 0: any
	Why      string // where that is written
}

// seeRules reads the rules of all tools, and whom the host asks.
func (s *Seen) seeRules(ctx context.Context, namespace string) {
	var errs []error
	s.Rules, errs = loaded.Read(ctx, host.OwnTables...)
	for _, err := range errs {
		s.unread("rules", err)
	}
	tables, err := nft.Tables()
	if err != nil {
		s.unread("rules", err)
	}
	s.Own = slices.ContainsFunc(tables, func(t nft.Named) bool { return slices.Contains(host.OwnTables, t.Name) })
	if s.Flowtables, err = nft.Flowtables(); err != nil {
		s.unread("flowtables", err)
	}
	if slices.ContainsFunc(s.Rules, func(r *importer.Ruleset) bool { return len(translations(r)) > 0 }) {
		s.seeContainers()
		if s.Silent, err = link.Silent(); err != nil {
			s.unread("neighbours", err)
		}
	}
	resolvers, err := host.Resolvers(namespace)
	if err != nil {
		s.unread("name servers", err)
	}
	for _, a := range resolvers {
		s.Servers = append(s.Servers, Server{"name server", a, packet.UDP, 53, 0, "/etc/resolv.conf"})
	}
	facts := host.Facts{Namespace: namespace}
	facts.ReadServers(ctx, 0)
	for _, c := range facts.Servers {
		protocol, known := packet.PortProtocol(c.Protocol)
		for _, a := range c.Addresses {
			if known {
				s.Servers = append(s.Servers, Server{string(c.Role) + " " + c.Name, a, protocol, c.Port, c.FromPort, c.File})
			}
		}
	}
}

// meets says whether packets of a family (4 or 6) are asked by a ruleset.
func meets(r *importer.Ruleset, family int) bool {
	switch r.Family {
	case "ip":
		return family == 4
	case "ip6":
		return family == 6
	case "inet":
		return true
	}
	return false
}

// arrives is a packet that comes to the host from an address, as its route has it.
func (s *Seen) arrives(from netip.Addr) (p packet.Packet, ok bool) {
	found, err := link.Ask(link.Lookup{Destination: from, User: -1})
	if err != nil || !found.Source.IsValid() {
		return p, false
	}
	i := slices.IndexFunc(s.Devices, func(d Device) bool { return d.Index == found.Chosen })
	if i < 0 {
		return p, false
	}
	return packet.Packet{
		In: s.Devices[i].Name, Source: from, Destination: found.Source,
		DestinationLocal: packet.Yes, SourceLocal: packet.No, Owner: -1,
	}, true
}

// dropped is the ruleset that surely drops a packet to the host, and how; nil: none does.
func (s *Seen) dropped(p packet.Packet) (*importer.Ruleset, reach.Result) {
	return s.droppedOn(p, packet.In)
}

// droppedOn is dropped on another way.
func (s *Seen) droppedOn(p packet.Packet, way packet.Way) (*importer.Ruleset, reach.Result) {
	for _, r := range s.Rules {
		if !meets(r, p.Family()) {
			continue
		}
		if got := reach.Evaluate(r.Program, p, way); got.Certain && got.Verdict != program.Accept {
			return r, got
		}
	}
	return nil, reach.Result{}
}

// passes says that every ruleset surely lets a packet pass.
func (s *Seen) passes(p packet.Packet, way packet.Way) bool {
	for _, r := range s.Rules {
		if !meets(r, p.Family()) {
			continue
		}
		if got := reach.Evaluate(r.Program, p, way); !got.Certain || got.Verdict != program.Accept {
			return false
		}
	}
	return true
}

// toolOf names a ruleset.
func toolOf(r *importer.Ruleset) string {
	if r.Table != "" {
		return r.Tool + " table " + r.Family + " " + r.Table
	}
	if r.Family == "ip6" {
		return strings.Replace(r.Tool, "iptables", "ip6tables", 1)
	}
	return r.Tool
}

// byText is what decided: a rule as its tool has it, or the default of a chain.
func byText(r *importer.Ruleset, got reach.Result) string {
	if got.Rule != nil {
		if rule := r.Rules[got.Rule.ID]; rule != nil {
			return fmt.Sprintf("%s, chain %s, rule %d: %s", toolOf(r), rule.Chain, rule.Number, clip(rule.Text))
		}
	}
	return fmt.Sprintf("%s, the policy of chain %s", toolOf(r), got.Chain)
}

const longestText = 160 // runes of a rule

func clip(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, text)
	if r := []rune(text); len(r) > longestText {
		return string(r[:longestText]) + "…"
	}
	return text
}

// measure reports the rules that a packet is asked by, and of what they do to it.
func measure(p *program.Program, pkt packet.Packet, way packet.Way, rule func(*program.Rule), done func(program.Action)) {
	m := silentMeter()
	m.Rule, m.Done = rule, done
	reach.Measure(p, pkt, way, m)
}

// silentMeter hears nothing.
func silentMeter() *reach.Meter {
	return &reach.Meter{
		Base: func(program.Hook) {},
		Rule: func(*program.Rule) {},
		Order: func(r *program.Rule) []int {
			order := make([]int, len(r.Match))
			for i := range order {
				order[i] = i
			}
			return order
		},
		Asked: func(*program.Condition) {},
		Done:  func(program.Action) {},
	}
}

// aPacket is one of TCP from the internet, of a family, to a port that nobody listens at.
func aPacket(family int) packet.Packet {
	p := packet.Packet{
		In: "eth0", Source: netip.AddrFrom4([4]byte{1, 1, 1, 1}), Destination: netip.AddrFrom4([4]byte{192, 0, 2, 1}),
		Protocol: packet.TCP, SourcePort: 443, Port: someEphemeral, Flags: packet.ACK, DestinationLocal: packet.Yes, SourceLocal: packet.No, Owner: -1,
	}
	if family == 6 {
		p.Source, p.Destination = netip.AddrFrom16([16]byte{0x26, 0x06, 0x47, 0, 0x47, 0, 15: 0x11}), netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1})
	}
	return p
}

// fromInternet is a packet from there to the host; not ok where no route leads there.
func (s *Seen) fromInternet(family int) (p packet.Packet, ok bool) {
	return s.arrives(aPacket(family).Source)
}

// rewriter names the rule that gives a packet another destination.
func rewriter(r *importer.Ruleset, p packet.Packet) string {
	return byText(r, reach.Result{Rule: acting(r.Program, p, packet.In, rewritesDestination)})
}

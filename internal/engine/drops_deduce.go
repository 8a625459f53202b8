package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/backend/trace"
	"sluice/internal/base/packet"
	"sluice/internal/importer"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// DropRule is a rule by which a packet was dropped.
type DropRule struct {
	Tool   string `json:"tool"` // sluice, nft, iptables-nft, iptables-legacy, ip6tables-legacy, …
	Family string `json:"family"`
	Table  string `json:"table"`
	Chain  string `json:"chain"`
	Handle uint64 `json:"handle,omitempty"` // of nf_tables; 0: the policy of the chain
	Number int    `json:"number,omitempty"` // in its chain, of iptables; 0: the policy of the chain
	Rule   string `json:"rule"`             // as the tool prints it; of Sluice the line of the policy
	// Deduced says that the kernel did not tell: the rules were read, and the packet was asked
	// of them. Unsure says that it depends on something that is not known, such as what connection
	// tracking says of the packet, whether it was this rule.
	Deduced bool `json:"deduced,omitempty"`
	Unsure  bool `json:"unsure,omitempty"`
}

// Place names a rule: "chain input of table ip filter, handle 12".
func (r *DropRule) Place() string {
	switch {
	case strings.HasSuffix(r.Tool, "-legacy") && r.Number > 0:
		return fmt.Sprintf("chain %s of table %s, rule %d", r.Chain, r.Table, r.Number)
	case strings.HasSuffix(r.Tool, "-legacy"):
		return fmt.Sprintf("chain %s of table %s", r.Chain, r.Table)
	}
	return trace.Step{Family: r.Family, Table: r.Table, Chain: r.Chain, Handle: r.Handle}.Place()
}

// xtablesPlace is a rule of iptables over nf_tables, number 0 the policy of a chain.
type xtablesPlace struct {
	family, table, chain string
	number               int
}

// printedRules are the rules of iptables over nf_tables as it prints them.
func printedRules(rulesets []*importer.Ruleset) map[xtablesPlace]*DropRule {
	out := map[xtablesPlace]*DropRule{}
	for _, r := range rulesets {
		if r.Tool != "iptables-nft" {
			continue
		}
		for _, b := range r.Bases {
			out[xtablesPlace{r.Family, b.Table, b.Chain, 0}] = &DropRule{Tool: toolName(r), Rule: policyText(b.Chain)}
		}
		for _, rule := range r.Rules {
			out[xtablesPlace{r.Family, rule.Table, rule.Chain, rule.Number}] = &DropRule{Tool: toolName(r), Number: rule.Number, Rule: rule.Text}
		}
	}
	return out
}

// told is the rule that the kernel has told of. What iptables has made over nf_tables is
// printed as iptables does.
func told(s *trace.Step, printed map[xtablesPlace]*DropRule) DropRule {
	out := DropRule{Tool: "nft", Rule: s.Rule}
	if by := printed[xtablesPlace{s.Family, s.Table, s.Chain, s.Number}]; by != nil && (s.Number > 0) == (s.Handle > 0) {
		out = *by
	}
	if !s.Foreign {
		out.Tool, out.Rule = "sluice", cmp.Or(s.Line, s.Comment, s.Rule)
	}
	out.Family, out.Table, out.Chain, out.Handle = s.Family, s.Table, s.Chain, s.Handle
	return out
}

func toolName(r *importer.Ruleset) string {
	if r.Family == "ip6" {
		return strings.Replace(r.Tool, "iptables", "ip6tables", 1)
	}
	return r.Tool
}

func policyText(chain string) string { return "-P " + chain + " DROP" }

// states are what connection tracking may have said of a packet, the likeliest first: what
// an entry lets pass is not dropped.
var states = []packet.State{packet.New, packet.Invalid, packet.Established, packet.Untracked, packet.Related}

// deduced is the rule of legacy iptables that drops a packet at the hook where it was
// dropped, by rules that were read; nil: none does, or it is not of one packet.
func deduced(d *Dropped, rulesets []*importer.Ruleset) *DropRule {
	p, way, ok := d.packet()
	if !ok {
		return nil
	}
	var out *DropRule
	for _, r := range rulesets {
		if r.Tool != "iptables-legacy" || (r.Family == "ip") != (p.Family() == 4) {
			continue
		}
		at := *r.Program
		at.Hooks = slices.DeleteFunc(slices.Clone(at.Hooks), func(h program.Hook) bool { return string(h.Kind) != d.Hook })
		for _, p.State = range states {
			got := reach.Evaluate(&at, p, way)
			if got.Verdict != program.Drop && got.Verdict != program.Reject {
				continue
			}
			found := byLegacy(r, &got)
			switch {
			case found == nil:
			case out == nil:
				out = found
			case out.Table != found.Table || out.Chain != found.Chain || out.Number != found.Number:
				out.Unsure = true
			}
		}
	}
	return out
}

// byLegacy is what decided.
func byLegacy(r *importer.Ruleset, got *reach.Result) *DropRule {
	out := &DropRule{Tool: toolName(r), Family: r.Family, Deduced: true, Unsure: !got.Certain}
	if got.Rule == nil {
		i := slices.IndexFunc(r.Program.Hooks, func(h program.Hook) bool { return h.Chain == got.Chain })
		if i < 0 {
			return nil
		}
		out.Table, out.Chain, out.Rule = r.Bases[i].Table, r.Bases[i].Chain, policyText(r.Bases[i].Chain)
		return out
	}
	rule := r.Rules[got.Rule.ID]
	if rule == nil {
		return nil
	}
	out.Table, out.Chain, out.Number, out.Rule = rule.Table, rule.Chain, rule.Number, rule.Text
	return out
}

// packet is what is known of a packet at its hook, and its way.
func (d *Dropped) packet() (p packet.Packet, way packet.Way, ok bool) {
	p = packet.Packet{
		Source: d.Source, Destination: d.Destination, SourcePort: d.SourcePort, Port: d.Port, Length: d.Bytes, Owner: -1,
		In: d.In, Out: d.Out, DestinationLocal: packet.No, SourceLocal: packet.No,
	}
	for _, name := range []*string{&p.In, &p.Out} {
		if strings.HasPrefix(*name, "#") {
			*name = "" // it is gone
		}
	}
	switch program.HookKind(d.Hook) {
	case program.Input:
		way, p.DestinationLocal = packet.In, packet.Yes
	case program.Forward:
		way = packet.Through
	case program.Output:
		way, p.SourceLocal, p.DestinationLocal = packet.Out, packet.Yes, packet.Unknown
	case program.Prerouting:
		way, p.DestinationLocal = packet.In, packet.Unknown
	case program.Postrouting:
		way, p.SourceLocal = packet.Through, packet.Unknown
		if d.In == "" {
			way = packet.Out
		}
	default:
		return p, way, false
	}
	number, known := packet.ProtocolNumber(d.Protocol)
	if !known {
		n, err := strconv.ParseUint(strings.TrimPrefix(d.Protocol, "proto/"), 10, 8)
		if err != nil {
			return p, way, false
		}
		number = uint8(n)
	}
	p.Protocol = number
	p.Flags, _ = packet.ParseFlags(d.Flags)
	kind, code, _ := strings.Cut(d.ICMP, "/")
	p.ICMPType, p.ICMPCode = octet(kind), octet(code)
	return p, way, d.Source.IsValid() && d.Destination.IsValid()
}

func octet(text string) uint8 {
	n, _ := strconv.ParseUint(text, 10, 8) // of no ICMP it is empty
	return uint8(n)
}

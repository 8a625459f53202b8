package verify

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// Witness is a packet as JSON has it.
type Witness struct {
	Protocol    uint8        `json:"protocol,omitempty"`
	Source      netip.Addr   `json:"source,omitzero"`
	Destination netip.Addr   `json:"destination,omitzero"`
	SourcePort  uint16       `json:"source-port,omitempty"`
	Port        uint16       `json:"port,omitempty"`
	Flags       uint8        `json:"tcp-flags,omitempty"`
	ICMPType    uint8        `json:"icmp-type,omitempty"`
	ICMPCode    uint8        `json:"icmp-code,omitempty"`
	In          string       `json:"in,omitempty"`
	Out         string       `json:"out,omitempty"`
	State       packet.State `json:"state,omitempty"`
	Mark        uint32       `json:"mark,omitempty"`
}

func witnessOf(p packet.Packet) Witness {
	return Witness{
		Protocol: p.Protocol, Source: p.Source, Destination: p.Destination, SourcePort: p.SourcePort, Port: p.Port,
		Flags: p.Flags, ICMPType: p.ICMPType, ICMPCode: p.ICMPCode, In: p.In, Out: p.Out, State: p.State, Mark: p.Mark,
	}
}

// packetText is a packet as a reader would say it.
func packetText(way reach.Way, p packet.Packet) string {
	var b strings.Builder
	b.WriteString(cmp.Or(packet.TransportName(p.Protocol), fmt.Sprintf("protocol %d", p.Protocol)))
	switch {
	case p.HasPorts():
		fmt.Fprintf(&b, " from %s to %s", netip.AddrPortFrom(p.Source, p.SourcePort), netip.AddrPortFrom(p.Destination, p.Port))
	case p.Protocol == packet.ICMP || p.Protocol == packet.ICMPv6:
		fmt.Fprintf(&b, " type %d from %s to %s", p.ICMPType, p.Source, p.Destination)
	default:
		fmt.Fprintf(&b, " from %s to %s", p.Source, p.Destination)
	}
	b.WriteString(p.Own.Given())
	if p.In != "" && way != reach.Out {
		b.WriteString(" in " + p.In + p.InRoute.Given())
	}
	if p.Out != "" && way != reach.In {
		b.WriteString(" out " + p.Out + p.OutRoute.Given())
	}
	if p.State != "" {
		b.WriteString(", " + string(p.State))
	}
	return b.String()
}

// classText is a class of packets on one line; fields that may be anything are left
// out.
func classText(c reach.Class) string {
	var parts []string
	for _, f := range c.Fields {
		if text := fieldText(f); text != "" {
			parts = append(parts, text)
		}
	}
	return fieldsText(parts)
}

func fieldsText(fields []string) string {
	if len(fields) == 0 {
		return "every packet"
	}
	return strings.Join(fields, ", ")
}

func fieldText(f reach.FieldValues) string {
	field := string(f.Field)
	switch {
	case isAddress(f.Field):
		return field + " " + addressesText(f.Addresses)
	case len(f.Numbers) > 0:
		if f.Field == program.TCPFlags && len(f.Numbers) > few {
			return ""
		}
		return field + " " + numbersText(f)
	case strings.Contains(field, ":"):
		kind, what, _ := strings.Cut(field, ":")
		is := strings.Join(f.Names, "")
		switch kind {
		case "gate":
			return choose(is == "yes", "a limit lets it through", "a limit is reached") + " (" + what + ")"
		case "followed":
			f, _, _ := strings.Cut(what, " ")
			return f + choose(is == "yes", " is the default route's", " is not the default route's")
		case "own":
			return "destination" + choose(is == "yes", " is", " is not") + " one of this host's addresses in " + what
		case "table":
			return choose(is == "yes", "in ", "not in ") + what
		}
		return what + ": " + is
	}
	names := f.Names
	text := field + " " + strings.Join(names, " or ")
	if f.Other {
		text = field + " any other than " + strings.Join(f.Without, ", ")
		if len(f.Without) == 0 {
			return ""
		}
	}
	return text
}

func choose(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func isAddress(f program.Field) bool {
	switch f {
	case program.Source, program.Destination, program.OriginalSource, program.OriginalDestination:
		return true
	}
	return false
}

// few is how many ranges are written out.
const few = 3

func addressesText(s addrset.Set) string {
	n := s.Len4() + s.Len6()
	var texts []string
	for r := range s.Each() {
		if len(texts) == few {
			return fmt.Sprintf("%s and %s", strings.Join(texts, ", "), english.Plural(n-few, "more range"))
		}
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ", ")
}

func numbersText(f reach.FieldValues) string {
	var texts []string
	for i, n := range f.Numbers {
		if i == few {
			texts = append(texts, english.Plural(len(f.Numbers)-few, "more range"))
			break
		}
		name := ""
		if f.Field == program.Protocol && n.From == n.To {
			name = packet.TransportName(uint8(n.From)) //nolint:gosec // a protocol has 8 bits
		}
		texts = append(texts, cmp.Or(name, n.String()))
	}
	return strings.Join(texts, ", ")
}

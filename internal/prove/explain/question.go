package explain

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// Question is a packet as somebody describes it; "" is what they do not say.
type Question struct {
	Protocol            string // a name, or a number
	Source, Destination string // addresses
	SourcePort, Port    string // numbers, or names of services
	In, Out             string // interfaces
	ICMPType            string // a name, or a number
	Flags               string // of TCP: names, "syn,ack", or letters, "SA"
	User                string // of this host that sends it: a name, or a number
	Hook                string // input, forward or output
	State               string // what connection tracking says of it
	Mark                string // a number
}

// Field is a part of a question.
type Field string

// The fields of a question.
const (
	Protocol    Field = "protocol"
	Source      Field = "source"
	Destination Field = "destination"
	SourcePort  Field = "source port"
	Port        Field = "port"
	In          Field = "in"
	Out         Field = "out"
	ICMPType    Field = "icmp type"
	Flags       Field = "flags"
	User        Field = "user"
	Hook        Field = "hook"
	State       Field = "state"
	Mark        Field = "mark"
	Facts       Field = "facts" // no part of a question, but what describes the host
)

// Words are what those who ask call things.
type Words struct {
	Fields map[Field]string         // such as "--src"; what is not there has its own name
	Unban  func(what string) string // what they do to lift a ban by command or by a limit
}

// Name is what a field is called.
func (w Words) Name(f Field) string {
	if name, known := w.Fields[f]; known {
		return name
	}
	return string(f)
}

// QuestionError says that a question asks about no packet.
type QuestionError struct {
	Message string
	Hint    string // "" where there is none
}

func (e *QuestionError) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "\nhint: " + e.Hint
}

func wrong(hint, format string, args ...any) error {
	return &QuestionError{fmt.Sprintf(format, args...), hint}
}

// Subject is what is asked: a policy on a host.
type Subject struct {
	Resolved *resolve.Resolved
	Route    host.Router // where the host leads packets
	Bans     []Ban       // that hold on the host now, besides those of the policy
	Words    Words
}

// Followed is a packet, and what the policy makes of it.
type Followed struct {
	Subject
	Packet packet.Packet // as it was asked, with what was not said
	Way    packet.Way
	Path   reference.Path
	// Ban is the one of Subject.Bans that drops the packet; nil where none does.
	Ban *Ban

	ways    []wayTaken // all that routing may choose; Packet and Path are the first
	unsure  []string   // why there are several
	assumed []string   // what was filled in, for a reader
}

// Follow follows the packet of a question through the policy. The error is a
// *QuestionError where the question is about no packet that there can be.
func Follow(s Subject, q Question) (*Followed, error) {
	a := asked{q, s}
	e := &Followed{Subject: s}
	var err error
	if e.Packet, e.Way, err = a.read(); err != nil {
		return nil, err
	}
	e.follow(q)
	if e.Undecided() {
		e.unsure = e.doubts()
	}
	e.findBan()
	e.assumed = a.assumed(e.Packet, e.Way, e.names(wayTaken.in), e.names(wayTaken.out))
	return e, nil
}

// asked is a question that is read.
type asked struct {
	Question
	Subject
}

// read makes the packet, with what was not said filled in from the facts.
func (a asked) read() (packet.Packet, packet.Way, error) {
	f := &a.Resolved.Facts
	p := packet.Packet{In: a.In, Out: a.Out, Owner: -1, HopLimit: 64}
	if err := a.interfaces(); err != nil {
		return p, "", err
	}
	if err := a.addresses(&p); err != nil {
		return p, "", err
	}
	way, err := a.way(&p)
	if err != nil {
		return p, "", err
	}
	if err := a.ends(&p, way); err != nil {
		return p, "", err
	}
	p.In = f.SeenAs(p.In)
	for _, read := range []func(*packet.Packet) error{a.wire, a.tcpFlags, a.icmp, a.tracked, a.marked, a.ports} {
		if err := read(&p); err != nil {
			return p, "", err
		}
	}
	if p.Owner, err = a.owner(way); err != nil {
		return p, "", err
	}
	if f.Known {
		p.SourceLocal, p.DestinationLocal = packet.Is(reference.Own(*f, p.Source)), packet.Is(reference.Own(*f, p.Destination))
	}
	return p, way, nil
}

// interfaces refuses the name of a zone where one of an interface is wanted.
func (a asked) interfaces() error {
	for _, said := range []struct {
		field Field
		value string
	}{{In, a.In}, {Out, a.Out}} {
		zone, name := a.Resolved.Zones[said.value], a.Words.Name(said.field)
		named := func(i host.Interface) bool { return i.Name == said.value }
		if zone == nil || slices.Contains(zone.Patterns(), said.value) || slices.ContainsFunc(a.Resolved.Facts.Interfaces, named) {
			continue
		}
		if len(zone.Interfaces) == 0 {
			return wrong(fmt.Sprintf("give an interface, or omit %s", name), "%s %s: %s is a zone without interfaces", name, said.value, said.value)
		}
		return wrong("give one of its interfaces: "+strings.Join(zone.Patterns(), ", "), "%s %s: %s is a zone", name, said.value, said.value)
	}
	return nil
}

// assumed says what of the packet was filled in. The interfaces are those that it may
// come in and leave by.
func (a asked) assumed(p packet.Packet, way packet.Way, ins, outs []string) (out []string) {
	add := func(f Field, said string, known bool, value any) {
		if said == "" && known {
			out = append(out, fmt.Sprintf("%s %v", a.Words.Name(f), value))
		}
	}
	add(Source, a.Source, true, p.Source)
	add(SourcePort, a.SourcePort, p.HasPorts(), p.SourcePort)
	add(Destination, a.Destination, true, p.Destination)
	add(In, a.In, len(ins) == 1, strings.Join(ins, ""))
	add(Out, a.Out, way == packet.Out && len(outs) == 1, strings.Join(outs, ""))
	add(Flags, a.Flags, p.Protocol == packet.TCP, packet.FlagsText(p.Flags))
	add(ICMPType, a.ICMPType, isICMP(p), "echo-request")
	add(User, a.User, way == packet.Out, "root")
	return out
}

func isICMP(p packet.Packet) bool { return p.Protocol == packet.ICMP || p.Protocol == packet.ICMPv6 }

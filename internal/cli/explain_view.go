package cli

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/reference"
)

// explainView is what explain prints with --json, and what the text is made of.
type explainView struct {
	Verdict  policy.Action `json:"verdict"` // allow, drop or reject; unknown where it depends on the way
	Sentence string        `json:"sentence"`
	Hook     policy.Hook   `json:"hook"`
	Stage    string        `json:"stage"`
	Why      string        `json:"why"`
	// Line is the line of the policy that decides; null where none is written.
	Line *lineView `json:"line"`
	// Banned says of a packet that the policy allows by which ban by command this
	// host drops it now; the verdict, stage and reason are those of the ban then.
	Banned  string      `json:"banned,omitempty"`
	Limited string      `json:"limited,omitempty"` // what has to be left of a limit
	Packet  packetView  `json:"packet"`
	Becomes *packetView `json:"becomes"` // null: it leaves as it came, or not at all
	// Ways are those of a packet whose verdict depends on its way, and Unsure is
	// why that is not known.
	Ways   []wayView `json:"ways,omitempty"`
	Unsure []string  `json:"unsure,omitempty"`

	Steps   []stepView  `json:"steps"`
	Sets    []setView   `json:"sets"` // each that was asked, once
	Assumed []string    `json:"assumed"`
	Notes   []string    `json:"notes"`
	Program programView `json:"program"`
	// Cost is what the rules cost the packet; null where that is not known.
	Cost *packetCostView `json:"cost"`
	Live *liveView       `json:"live,omitempty"` // with --live
}

type lineView struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Text   string `json:"text"`
}

type packetView struct {
	Protocol        string     `json:"protocol"`
	Source          netip.Addr `json:"source"`
	Destination     netip.Addr `json:"destination"`
	SourcePort      uint16     `json:"source-port,omitempty"`
	DestinationPort uint16     `json:"destination-port,omitempty"`
	ICMPType        *uint8     `json:"icmp-type,omitempty"`
	Flags           string     `json:"tcp-flags,omitempty"`
	In              string     `json:"in,omitempty"`
	Out             string     `json:"out,omitempty"`
	State           string     `json:"state,omitempty"`
	User            *int64     `json:"user,omitempty"`
}

type stepView struct {
	Hook    string    `json:"hook"`
	Stage   string    `json:"stage"`
	Line    *lineView `json:"line"`
	Reason  string    `json:"reason"`
	Decides bool      `json:"decides"`
}

type setView struct {
	Set     string      `json:"set"`
	Address netip.Addr  `json:"address"`
	In      bool        `json:"in"`
	Element string      `json:"element,omitempty"` // the range of the set that holds it
	Entries []entryView `json:"entries"`           // what put the address there, or took it out
	// Country is where the address is from, of a set that is made of countries.
	Country string `json:"country,omitempty"`
	Name    string `json:"country-name,omitempty"`
	Data    string `json:"data,omitempty"`
}

type entryView struct {
	Sets    []string  `json:"sets"` // from the set that was asked to that of the entry
	Out     bool      `json:"out"`  // it takes the address out
	Line    *lineView `json:"line"`
	Range   string    `json:"range"`
	URL     string    `json:"url,omitempty"`
	Country string    `json:"country,omitempty"`
	Name    string    `json:"country-name,omitempty"`
	Data    string    `json:"data,omitempty"`
}

func (e *explained) view() (explainView, error) {
	path := e.path
	v := explainView{
		Verdict: path.Verdict, Hook: path.Hook, Stage: path.Stage, Why: path.Why, Line: lineOf(path.Pos, path.Text),
		Packet: viewOf(e.packet, path.Packet.State), Assumed: e.assumed, Steps: []stepView{}, Sets: []setView{},
	}
	if v.Assumed == nil {
		v.Assumed = []string{}
	}
	if e.undecided() {
		return e.viewUndecided(v)
	}
	steps := path.Steps
	if path.Verdict == policy.Allow {
		if v.Banned = e.bannedByCommand(); v.Banned != "" {
			v.Verdict, v.Stage, v.Line, v.Why = policy.Drop, "ban", nil, v.Banned
			steps = e.untilBan(v.Banned)
		}
	}
	if r := path.Rule; r != nil && v.Banned == "" {
		v.Limited = limitText(r)
	}
	if !sameTuple(e.packet, path.Packet) && v.Verdict == policy.Allow && e.otherRewriting() == "" {
		becomes := viewOf(path.Packet, path.Packet.State)
		v.Becomes = &becomes
	}
	v.Sentence = e.sentence(v)
	v.Notes = e.notes()
	for _, s := range steps {
		v.Steps = append(v.Steps, stepView{s.Hook, s.Stage, lineOf(s.Pos, s.Text), s.Reason, s.Decides})
		if err := e.sets(&v, s.Asked); err != nil {
			return v, err
		}
	}
	var err error
	v.Live = e.live
	v.Program, err = e.askProgram()
	if v.Banned == "" {
		v.Cost = e.cost
	}
	return v, err
}

func lineOf(pos policy.Pos, text string) *lineView {
	if pos.Line == 0 {
		return nil
	}
	return &lineView{pos.File, pos.Line, pos.Column, text}
}

func viewOf(p packet.Packet, state packet.State) packetView {
	v := packetView{
		Protocol: protocolName(p.Protocol), Source: p.Source, Destination: p.Destination, In: p.In, Out: p.Out, State: string(state),
	}
	if p.HasPorts() {
		v.SourcePort, v.DestinationPort = p.SourcePort, p.Port
	}
	if p.Protocol == packet.TCP {
		v.Flags = flagsText(p.Flags)
	}
	if p.Protocol == packet.ICMP || p.Protocol == packet.ICMPv6 {
		v.ICMPType = &p.ICMPType
	}
	if p.Owner >= 0 {
		v.User = &p.Owner
	}
	return v
}

func protocolName(n uint8) string {
	for name, number := range protocolNumbers {
		if number == n {
			return name
		}
	}
	return fmt.Sprintf("proto/%d", n)
}

func flagsText(f uint8) string {
	var names []string
	for _, l := range tcpFlagLetters {
		if f&l.flag != 0 {
			names = append(names, l.name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ",")
}

func sameTuple(a, b packet.Packet) bool {
	return a.Source == b.Source && a.Destination == b.Destination && a.SourcePort == b.SourcePort && a.Port == b.Port
}

// sets adds what was asked of named sets, with what put the address there.
func (e *explained) sets(v *explainView, asked []reference.Membership) error {
	for _, m := range asked {
		if m.Set == "" || slices.ContainsFunc(v.Sets, func(s setView) bool { return s.Set == m.Set && s.Address == m.Address }) {
			continue
		}
		s := setView{Set: m.Set, Address: m.Address, In: m.In, Entries: []entryView{}}
		if m.In {
			s.Element = m.Element.String()
		}
		entries, err := e.resolved.Origin(m.Set, m.Address)
		if err != nil {
			return err
		}
		for _, o := range entries {
			s.Entries = append(s.Entries, entryOf(o))
		}
		country, data, known, err := e.resolved.Country(m.Set, m.Address)
		if err != nil {
			return err
		}
		if known {
			s.Country, s.Name, s.Data = country.Code, country.Name, data
		}
		v.Sets = append(v.Sets, s)
	}
	return nil
}

func entryOf(o resolve.Entry) entryView {
	v := entryView{Sets: o.Sets, Out: o.Out, Line: lineOf(o.Pos, o.Element.String()), Range: o.Element.String(), URL: o.URL, Country: o.Country, Data: o.Data}
	if o.Country != "" {
		v.Name = geo.CountryOf(o.Country).Name
		v.Line.Text = o.Country
	}
	return v
}

// limitText is what has to be left of a rule's limit for its verdict to hold.
func limitText(r *policy.Rule) string {
	switch {
	case r.Limit != nil && r.Max != nil:
		return "as long as its rate and its connections are not used up"
	case r.Limit != nil && r.Limit.ThenBan > 0:
		return "as long as its rate is not used up; a source over it is banned"
	case r.Limit != nil:
		return "as long as its rate is not used up; over it, the rules behind it decide"
	case r.Max != nil:
		return "as long as its connections are not used up; over them, the rules behind it decide"
	}
	return ""
}

// placeText is a place as the table shows it: a file's own name and the line.
func placeText(l *lineView) string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf("%s:%d", filepath.Base(l.File), l.Line)
}

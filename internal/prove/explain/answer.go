package explain

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/base/packet"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/prove/reference"
)

// Unknown stands for the verdict where it depends on what nobody knows.
const Unknown policy.Action = "unknown"

// Answer is what a policy does with a packet, and why.
type Answer struct {
	Policy   string        `json:"policy"`  // its file
	Verdict  policy.Action `json:"verdict"` // allow, drop or reject; [Unknown] where it depends on the way
	Sentence string        `json:"sentence"`
	Hook     policy.Hook   `json:"hook"`
	Stage    string        `json:"stage"`
	Why      string        `json:"why"`
	// Line is the line of the policy that decides; nil where none is written.
	Line *Line `json:"line"`
	// Excerpt is what the sentence ends with; nil where it speaks of no line.
	Excerpt *Excerpt `json:"excerpt,omitempty"`
	// Banned is the ban by which this host drops the packet now, whatever the policy says; the
	// verdict, stage and reason are those of the ban then.
	Banned  string  `json:"banned,omitempty"`
	Limited string  `json:"limited,omitempty"` // what has to be left of a limit
	Packet  Packet  `json:"packet"`
	Becomes *Packet `json:"becomes"` // nil: it leaves as it came, or not at all
	// Ways are those of a packet whose verdict depends on its way, and Unsure is
	// why that is not known.
	Ways   []WayView `json:"ways,omitempty"`
	Unsure []string  `json:"unsure,omitempty"`

	Steps   []Step    `json:"steps"`
	Sets    []Set     `json:"sets"` // each that was asked, once
	Assumed []string  `json:"assumed"`
	Notes   []string  `json:"notes"`
	Program Agreement `json:"program"`
}

// Line is a line of a policy.
type Line struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Text   string `json:"text"`
}

// Excerpt is a line of a policy for a reader.
type Excerpt struct {
	Place  string `json:"place"` // file, line and column
	Line   string `json:"line"`
	Marker string `json:"marker,omitempty"` // what belongs beneath it
}

// Packet is a packet by its parts.
type Packet struct {
	Ends            string     `json:"ends"` // from where to where, for a reader
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

// Step is one thing that a packet passes.
type Step struct {
	Hook    string `json:"hook"`
	Stage   string `json:"stage"`
	Line    *Line  `json:"line"`
	Reason  string `json:"reason"`
	Decides bool   `json:"decides"`
}

// Set is what a named set was asked.
type Set struct {
	Set     string     `json:"set"`
	Address netip.Addr `json:"address"`
	In      bool       `json:"in"`
	Element string     `json:"element,omitempty"` // the range of the set that holds it
	Entries []Entry    `json:"entries"`           // what put the address there, or took it out
	// Country is where the address is from, of a set that is made of countries.
	Country string `json:"country,omitempty"`
	Name    string `json:"country-name,omitempty"`
	Data    string `json:"data,omitempty"`
	// Others says that another program fills the set: of the policy that runs, In is as now.
	Others bool `json:"filled-by-other,omitempty"`
}

// Entry is a line that put an address into a set, or took it out.
type Entry struct {
	Sets    []string `json:"sets"` // from the set that was asked to that of the entry
	Out     bool     `json:"out"`  // it takes the address out
	Line    *Line    `json:"line"`
	Range   string   `json:"range"`
	URL     string   `json:"url,omitempty"`
	Country string   `json:"country,omitempty"`
	Name    string   `json:"country-name,omitempty"`
	Data    string   `json:"data,omitempty"`
	// Added says that a command put it into the set, until a time, if there is one.
	Added bool      `json:"added,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// Answer makes the answer of what was followed. The program is what the policy was
// compiled to, as it is loaded.
func (e *Followed) Answer(compiled *program.Program) (*Answer, error) {
	path := e.Path
	a := &Answer{
		Policy: e.Resolved.Policy.File, Verdict: path.Verdict, Hook: path.Hook, Stage: path.Stage, Why: path.Why, Line: lineOf(path.Pos, path.Text),
		Excerpt: e.excerpt(), Packet: PacketOf(e.Packet, path.Packet.State), Assumed: e.assumed, Steps: []Step{}, Sets: []Set{},
		Program: e.compare(compiled),
	}
	if a.Assumed == nil {
		a.Assumed = []string{}
	}
	if e.Undecided() {
		a.Verdict, a.Hook, a.Stage, a.Line, a.Excerpt = Unknown, "", "", nil, nil
		a.Why = "it depends on the route of the packet"
		a.Ways, a.Unsure = e.viewWays(), e.unsure
		a.Sentence, a.Notes = e.sentence(a), e.notes()
		return a, nil
	}
	steps := path.Steps
	if e.Banned() {
		a.Banned = e.Ban.String()
		a.Verdict, a.Stage, a.Line, a.Why = policy.Drop, "ban", nil, a.Banned
		steps = e.untilBan()
	}
	if r := path.Rule; r != nil && a.Banned == "" {
		a.Limited = limitText(r)
	}
	if e.Packet.Tuple() != path.Packet.Tuple() && a.Verdict == policy.Allow && e.otherRewriting() == "" {
		becomes := PacketOf(path.Packet, path.Packet.State)
		a.Becomes = &becomes
	}
	a.Sentence, a.Notes = e.sentence(a), e.notes()
	for _, s := range steps {
		a.Steps = append(a.Steps, Step{s.Hook, s.Stage, lineOf(s.Pos, s.Text), s.Reason, s.Decides})
		if err := a.ask(e.Resolved, s.Asked); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// excerpt is the line that decides, or nil where none is written.
func (e *Followed) excerpt() *Excerpt {
	pos := e.Path.Pos
	if pos.Line == 0 {
		return nil
	}
	line, marker := e.Resolved.Policy.Errorf(pos, "", "").Excerpt()
	return &Excerpt{pos.String(), cmp.Or(line, e.Path.Text), marker}
}

func lineOf(pos policy.Pos, text string) *Line {
	if pos.Line == 0 {
		return nil
	}
	return &Line{pos.File, pos.Line, pos.Column, text}
}

// PacketOf is a packet by its parts, with what connection tracking says of it.
func PacketOf(p packet.Packet, state packet.State) Packet {
	v := Packet{
		Ends: Ends(p), Protocol: packet.ProtocolName(p.Protocol), Source: p.Source, Destination: p.Destination, In: p.In, Out: p.Out, State: string(state),
	}
	if p.HasPorts() {
		v.SourcePort, v.DestinationPort = p.SourcePort, p.Port
	}
	if p.Protocol == packet.TCP {
		v.Flags = packet.FlagsText(p.Flags)
	}
	if isICMP(p) {
		v.ICMPType = &p.ICMPType
	}
	if p.Owner >= 0 {
		v.User = &p.Owner
	}
	return v
}

// ask adds what was asked of named sets, with what put the address there.
func (a *Answer) ask(r *resolve.Resolved, asked []reference.Membership) error {
	for _, m := range asked {
		if m.Set == "" || slices.ContainsFunc(a.Sets, func(s Set) bool { return s.Set == m.Set && s.Address == m.Address }) {
			continue
		}
		s := Set{Set: m.Set, Address: m.Address, In: m.In, Entries: []Entry{}}
		if set := r.Sets[m.Set]; set != nil {
			s.Others = set.Others
		}
		if m.In {
			s.Element = m.Element.String()
		}
		entries, err := r.Origin(m.Set, m.Address)
		if err != nil {
			return err
		}
		for _, o := range entries {
			s.Entries = append(s.Entries, entryOf(o))
		}
		country, data, known, err := r.Country(m.Set, m.Address)
		if err != nil {
			return err
		}
		if known {
			s.Country, s.Name, s.Data = country.Code, country.Name, data
		}
		a.Sets = append(a.Sets, s)
	}
	return nil
}

func entryOf(o resolve.Entry) Entry {
	v := Entry{Sets: o.Sets, Out: o.Out, Line: lineOf(o.Pos, o.Element.String()), Range: o.Element.String(), URL: o.URL, Country: o.Country, Data: o.Data, Added: o.Added, Until: o.Until}
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
		return "within its rate and connection limits"
	case r.Limit != nil && r.Limit.ThenBan > 0:
		return "within its rate limit; a source that exceeds it is banned"
	case r.Limit != nil:
		return "within its rate limit; beyond it, the next rules decide"
	case r.Max != nil:
		return "within its connection limit; beyond it, the next rules decide"
	}
	return ""
}

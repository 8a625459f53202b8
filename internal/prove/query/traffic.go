package query

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/prove/reach"
)

// Traffic is packets of one class in words. What is left out may be anything.
type Traffic struct {
	Hook     string     `json:"hook"`     // input, forward, output
	Services []string   `json:"services"` // each as a rule says it
	Family   string     `json:"family,omitempty"`
	From     *Addresses `json:"from,omitempty"`
	To       *Addresses `json:"to,omitempty"`
	In       string     `json:"in,omitempty"` // a zone, or what is said of interfaces
	Out      string     `json:"out,omitempty"`
	When     []string   `json:"when,omitempty"` // what else holds of all of them
	Example  Example    `json:"example"`

	region reach.Region // of these words: what they are to mean
}

// Addresses is a set of addresses in words.
type Addresses struct {
	Name  string `json:"name"`
	Exact bool   `json:"exact"` // the name says which they are
	Count
	// Ranges is all of them where they are not too many.
	Ranges []string `json:"ranges,omitempty"`

	set addrset.Set
}

// mostRanges is up to how many ranges are listed.
const mostRanges = 100

// Example is one packet of a class, as it arrives.
type Example struct {
	packet.Fields
	State string `json:"state"`

	packet packet.Packet
}

// traffic gives the words of a class.
func (w *wording) traffic(c class) Traffic {
	t := Traffic{
		Hook: string(c.way), Services: c.words, In: c.in, Out: c.out, When: c.more, Example: exampleOf(c.witness), region: c.region,
		From: w.addresses(c.from, c.way, true), To: w.addresses(c.to, c.way, false),
	}
	if c.from == nil && c.to == nil {
		t.Family = family(c.families)
	}
	zoned := func(a *Addresses, device string) *Addresses {
		if a != nil && device != "" && a.Name == "the networks of "+device {
			a.Name = device
		}
		return a
	}
	if was := t.From; was != nil && zoned(was, t.In).Name == t.In {
		t.In = ""
	}
	if was := t.To; was != nil && zoned(was, t.Out).Name == t.Out {
		t.Out = ""
	}
	return t
}

// addresses names one side; nil where it may be anything.
func (w *wording) addresses(s *addrset.Set, way reach.Way, source bool) *Addresses {
	if s == nil {
		return nil
	}
	free := impossible(w.policies[0], way, source)
	if own := w.ownForwarded(way, source); !s.Overlaps(own) {
		free = free.Union(own)
	}
	n := w.names.Without(free).Of(*s)
	out := &Addresses{Name: n.Text, Exact: n.Exact, Count: n.Count, set: *s}
	if s.Len4()+s.Len6() <= mostRanges {
		for r := range s.Each() {
			out.Ranges = append(out.Ranges, r.String())
		}
	}
	return out
}

// String is the name and how many there are.
func (a *Addresses) String() string {
	if a == nil {
		return "anywhere"
	}
	return Name{Text: a.Name, Exact: a.Exact, Count: a.Count}.String()
}

func exampleOf(p packet.Packet) Example {
	return Example{p.Fields(), string(p.State), p}
}

// mostWords is up to how many services one sentence names.
const mostWords = 12

// Service is the services in one text.
func (t *Traffic) Service() string {
	text := english.Few(shortened(t.Services), mostWords)
	if t.Family != "" {
		text += " " + t.Family
	}
	return text
}

// shortened says of ICMP only once what it is: what all of it and some of it leave
// out together is that part of it.
func shortened(words []string) []string {
	const others, some = everyProtocol + " but icmp", "icmp but "
	if len(words) == 2 && words[0] == others && strings.HasPrefix(words[1], some) {
		return []string{others + " " + strings.TrimPrefix(words[1], some)}
	}
	out := slices.Clone(words)
	for i := 1; i < len(words); i++ {
		if rest, is := strings.CutPrefix(words[i], "icmp "); is && strings.HasPrefix(words[i-1], "icmp ") {
			out[i] = rest
		}
	}
	return out
}

// Many says whether a sentence about the services is in the plural.
func (t *Traffic) Many() bool { return len(shortened(t.Services)) > 1 }

// Place is where the packets come from and go to: "from office (256 IPv4
// addresses) in wan".
func (t *Traffic) Place() string {
	var parts []string
	add := func(word string, a *Addresses, always bool) {
		if a != nil || always {
			parts = append(parts, word+" "+a.String())
		}
	}
	add("from", t.From, t.Hook != string(reach.Out) || t.From != nil)
	add("to", t.To, t.Hook == string(reach.Out))
	if t.In != "" {
		parts = append(parts, "in "+strings.Replace("by "+t.In, "by not ", "by all but ", 1))
	}
	if t.Out != "" {
		parts = append(parts, "out "+strings.Replace("by "+t.Out, "by not ", "by all but ", 1))
	}
	text := strings.Join(parts, " ")
	for _, more := range t.When {
		text += ", " + more
	}
	return text
}

// String is the example for a reader: where from and where to.
func (e Example) String() string {
	from, to := e.Source.String(), e.Destination.String()
	if p := (packet.Packet{Protocol: e.Protocol}); p.HasPorts() {
		to = netip.AddrPortFrom(e.Destination, e.Port).String()
	}
	return from + " to " + to
}

// Decider is what decided: a line of a policy, or a built-in rule.
type Decider struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Text   string `json:"text"` // the line as it is written, or the built-in rule
}

// String is the place of a line, or the built-in rule.
func (d Decider) String() string {
	if d.Line == 0 {
		return d.Text
	}
	return fmt.Sprintf("%s:%d", d.File, d.Line)
}

// Phrase says by whom, as the end of a sentence.
func (d Decider) Phrase() string {
	if d.Line == 0 && strings.HasPrefix(d.Text, notPoliced) {
		return "since " + d.Text
	}
	return "by " + d.String()
}

const notPoliced = "the policy has no section "

// deciderOf says who decided.
func deciderOf(o *reach.Outcome, policed bool, hook string) Decider {
	switch origin := o.Origin; {
	case origin.Line != 0:
		return Decider{origin.File, origin.Line, origin.Column, origin.Text}
	case origin.Text != "":
		return Decider{Text: "a built-in rule: " + origin.Text}
	case o.Rule != nil && o.Rule.Comment != "":
		return Decider{Text: "a built-in rule: " + o.Rule.Comment}
	case !policed:
		return Decider{Text: notPoliced + hook}
	}
	return Decider{Text: "the default of " + hook}
}

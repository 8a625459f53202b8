package shadow

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// Report is what a shadow has to say: what would have happened to the packets that it
// saw. All numbers are packets where nothing else is said.
type Report struct {
	Policy    string          `json:"policy"`
	Namespace string          `json:"namespace,omitempty"`
	Since     time.Time       `json:"since"`
	Until     time.Time       `json:"until"`
	Early     bool            `json:"early,omitempty"` // it was ended before its time
	Total     Sums            `json:"total"`
	Hooks     []HookReport    `json:"hooks"`
	Lines     []LineReport    `json:"lines"`     // most packets first; those without any are left out
	Sources   []SourceReport  `json:"sources"`   // of what would be dropped or rejected, most packets first
	Services  []ServiceReport `json:"services"`  // the same
	Countries []CountryReport `json:"countries"` // the same
	Notes     []string        `json:"notes"`
}

// Sums are packets by what the candidate would have done.
type Sums struct {
	Seen     uint64 `json:"seen"`
	Allowed  uint64 `json:"allowed"`
	Dropped  uint64 `json:"dropped"`
	Rejected uint64 `json:"rejected"`
	Unjudged uint64 `json:"not-judged"`
	// Stopped is how many of them the running firewall did not let pass.
	Stopped uint64 `json:"stopped-by-the-running-firewall"`
}

// Refused is what the candidate would not have let pass.
func (s Sums) Refused() uint64 { return s.Dropped + s.Rejected }

// HookReport is one hook: input is what came to the host, forward what went through
// it, output what left it.
type HookReport struct {
	Hook program.HookKind `json:"hook"`
	Sums
	// SourcesBeyond and ServicesBeyond are packets that would have been dropped and
	// are not in the lists: the kernel's bounded tables were full, or the packet has
	// no port where its protocol has.
	SourcesBeyond  uint64 `json:"sources-beyond,omitempty"`
	ServicesBeyond uint64 `json:"services-beyond,omitempty"`
}

// LineReport is one line of the candidate at one hook.
type LineReport struct {
	Hook    program.HookKind `json:"hook"`
	Verdict Verdict          `json:"verdict"`
	File    string           `json:"file,omitempty"`
	Line    int              `json:"line,omitempty"`
	Text    string           `json:"text"`
	Packets uint64           `json:"packets"`
	Bytes   uint64           `json:"bytes"`
}

// SourceReport is one far address: of output the destination, else the source.
type SourceReport struct {
	Hook    program.HookKind `json:"hook"`
	Address string           `json:"address"` // of IPv6 the network of 64 bits
	Country string           `json:"country,omitempty"`
	Name    string           `json:"country-name,omitempty"`
	Packets uint64           `json:"packets"`
	Bytes   uint64           `json:"bytes"`
}

// ServiceReport is one service by the port that packets went to, or one protocol.
type ServiceReport struct {
	Hook    program.HookKind `json:"hook"`
	Service string           `json:"service"` // as a policy writes it: tcp/443, icmp, proto/47
	Name    string           `json:"name,omitempty"`
	Packets uint64           `json:"packets"`
	Bytes   uint64           `json:"bytes"`
}

// CountryReport is the far addresses of one country at all hooks.
type CountryReport struct {
	Country string `json:"country"` // "" is of none: private addresses, and what is assigned to nobody
	Name    string `json:"country-name,omitempty"`
	Sources int    `json:"sources"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Names says what numbers are called. Country may be nil.
type Names struct {
	Country func(netip.Addr) (code, name string)
	// Service gives a protocol and port as a policy writes them, and the name of a
	// service of the language, "" where it has none. A negative port is none.
	Service func(protocol, port int) (service, name string)
}

// Report says what counts mean.
func (l *Legend) Report(c *Counts, names Names) *Report {
	r := &Report{
		Hooks: []HookReport{}, Lines: []LineReport{}, Sources: []SourceReport{}, Services: []ServiceReport{}, Countries: []CountryReport{},
		Notes: append([]string{}, l.Notes...),
	}
	for _, hook := range l.Hooks {
		h := HookReport{Hook: hook}
		h.Seen = c.Counters[seen(hook)].Packets
		h.Stopped = less(h.Seen, c.Counters[passed(hook)].Packets)
		for _, line := range l.Lines {
			if line.Hook == hook {
				h.add(line.Verdict, c.Counters[line.Counter].Packets)
			}
		}
		h.SourcesBeyond = less(h.Refused(), packets(c.Sources[hook]))
		h.ServicesBeyond = less(h.Refused(), packets(c.Services[hook])+packets(c.Protocols[hook]))
		r.Hooks = append(r.Hooks, h)
		r.Total.join(h.Sums)
		r.sources(hook, c.Sources[hook], names)
		r.services(hook, c.Services[hook], names)
		r.services(hook, c.Protocols[hook], names)
	}
	for _, line := range l.Lines {
		if n := c.Counters[line.Counter]; n.Packets > 0 {
			r.Lines = append(r.Lines, LineReport{
				Hook: line.Hook, Verdict: line.Verdict, File: line.Origin.File, Line: line.Origin.Line, Text: line.Text,
				Packets: n.Packets, Bytes: n.Bytes,
			})
		}
	}
	sorting.StableBy(r.Lines, func(a, b LineReport) int { return cmp.Compare(b.Packets, a.Packets) })
	sorting.StableBy(r.Sources, func(a, b SourceReport) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Address, b.Address))
	})
	sorting.StableBy(r.Services, func(a, b ServiceReport) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Service, b.Service))
	})
	r.countries(names)
	for _, full := range l.Full {
		if n := c.Counters[full.Counter].Packets; n > 0 {
			r.Notes = append(r.Notes, place(full.Origin)+"the table of the limit's sources was full: the others shared one limit")
		}
	}
	return r
}

func place(o program.Origin) string {
	if o.Line == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d: ", o.File, o.Line)
}

// less is a-b, and nothing where counters that were read one after the other have
// overtaken each other.
func less(a, b uint64) uint64 { return max(a, b) - b }

func packets(entries []backend.Entry) uint64 {
	var n uint64
	for _, e := range entries {
		n += e.Count.Packets
	}
	return n
}

func (s *Sums) add(v Verdict, packets uint64) {
	switch v {
	case Allow:
		s.Allowed += packets
	case Drop:
		s.Dropped += packets
	case Reject:
		s.Rejected += packets
	case Unjudged:
		s.Unjudged += packets
	}
}

func (s *Sums) join(o Sums) {
	s.Seen += o.Seen
	s.Allowed += o.Allowed
	s.Dropped += o.Dropped
	s.Rejected += o.Rejected
	s.Unjudged += o.Unjudged
	s.Stopped += o.Stopped
}

func (r *Report) sources(hook program.HookKind, entries []backend.Entry, names Names) {
	for _, e := range entries {
		s := SourceReport{Hook: hook, Address: e.Address.String(), Packets: e.Count.Packets, Bytes: e.Count.Bytes}
		if e.Address.IsSingleIP() {
			s.Address = e.Address.Addr().String()
		}
		if names.Country != nil {
			s.Country, s.Name = names.Country(e.Address.Addr())
		}
		r.Sources = append(r.Sources, s)
	}
}

func (r *Report) services(hook program.HookKind, entries []backend.Entry, names Names) {
	for _, e := range entries {
		if len(e.Numbers) == 0 {
			continue
		}
		port := -1
		if len(e.Numbers) > 1 {
			port = int(e.Numbers[1]) //nolint:gosec // a port
		}
		s := ServiceReport{Hook: hook, Packets: e.Count.Packets, Bytes: e.Count.Bytes}
		s.Service, s.Name = names.Service(int(e.Numbers[0]), port) //nolint:gosec // one byte
		r.Services = append(r.Services, s)
	}
}

// countries sums the sources up.
func (r *Report) countries(names Names) {
	if names.Country == nil {
		return
	}
	at := map[string]int{}
	for _, s := range r.Sources {
		i, known := at[s.Country]
		if !known {
			i = len(r.Countries)
			at[s.Country] = i
			r.Countries = append(r.Countries, CountryReport{Country: s.Country, Name: s.Name})
		}
		c := &r.Countries[i]
		c.Sources, c.Packets, c.Bytes = c.Sources+1, c.Packets+s.Packets, c.Bytes+s.Bytes
	}
	sorting.StableBy(r.Countries, func(a, b CountryReport) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Country, b.Country))
	})
}

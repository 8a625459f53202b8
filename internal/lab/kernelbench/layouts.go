package kernelbench

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/packetbench"
	"sluice/internal/lab/peers"
	"sluice/internal/language/resolve"
)

const allButEurope = `version: 1
sets:
  blocked: {continents: [AF, AN, AS, NA, OC, SA]}
input:
  default: allow
  rules:
    - drop any from blocked
`

// layouts measures those of a large set.
func (b *bench) layouts() error {
	file, err := b.file("all-but-europe.yaml", allButEurope)
	if err != nil {
		return err
	}
	return b.policy(file, "layouts", "All but Europe, by layout of the set",
		[]packetbench.Kind{packetbench.Blocked, packetbench.Allowed},
		"nftables-set", "hash-per-length", "ipset (iptables-legacy)", "chain-per-/8 (nftables)", "chain-per-/8 (iptables-legacy)")
}

// bans are as many addresses as the second story has.
const bans = 650

// banned are addresses that nobody else here has, none beside another: neighbours
// would be few prefixes, and a list of rules a short one.
func banned() []netip.Addr {
	out := make([]netip.Addr, bans)
	for i := range out {
		at := 7 * (i + 1)
		out[i] = netip.AddrFrom4([4]byte{198, 18, byte(at >> 8), byte(at)})
	}
	return out
}

// banList writes them where policies read them.
func (b *bench) banList() error {
	var text strings.Builder
	for _, a := range banned() {
		fmt.Fprintln(&text, a)
	}
	_, err := b.file("banned.txt", text.String())
	return err
}

// lists measures 650 banned addresses.
func (b *bench) lists() error {
	if err := b.banList(); err != nil {
		return err
	}
	file, err := b.file("bans.yaml", "version: 1\nsets:\n  banned: {file: banned.txt}\nban: [banned]\ninput: {default: allow}\n")
	if err != nil {
		return err
	}
	return b.policy(file, "lists", fmt.Sprintf("%d banned addresses", bans),
		[]packetbench.Kind{packetbench.Banned, packetbench.Allowed},
		"nftables-set", "ipset (iptables-legacy)", "nftables-linear", "iptables-linear (iptables-legacy)")
}

// sources of a traffic: every one is sent to every layout once, to see that it gets
// its verdict, and an emulated machine takes long over it.
const sources = 4096

// options are what every measurement of a policy has.
func (b *bench) options(file, name string) packetbench.Options {
	return packetbench.Options{
		Policy: file, StateDir: b.StateDir, Binary: b.Binary, Seed: b.Seed, Rounds: rounds, Packets: packets,
		Sources: sources,
		Progress: func(what string, done, total int) {
			if total == 0 {
				b.Say("%s: %s", name, what)
			}
		},
	}
}

// policy measures one under Sluice and under peers, and puts the figures into a
// section: a row a layout.
func (b *bench) policy(file, name, title string, kinds []packetbench.Kind, names ...string) error {
	var meaning peers.Meaning
	o := b.options(file, name)
	o.Kinds = kinds
	o.Resolved = func(r *resolve.Resolved) error {
		meaning = peers.FromPolicy(r)
		return nil
	}
	for _, n := range names {
		found, err := peers.Named(n)
		if err != nil {
			return err
		}
		p := found[0]
		o.Subjects = append(o.Subjects, packetbench.Subject{Name: p.Name, Load: func(ctx context.Context, l *measure.Lab) error {
			return p.Load(ctx, l.Namespace, meaning)
		}})
	}
	r, err := packetbench.Run(b, o)
	if err != nil {
		return err
	}
	s := figures.Section{Name: name, Title: title}
	b.bySubject(&s, r, "")
	b.keep(s, r)
	return nil
}

// Figures of a packet against itself.
const (
	sameSuffix = ", against itself (A/A)"
	ratioUnit  = "×"
)

// bySubject puts the figures into a section, a row a subject and a table a case, which
// has a name in front.
func (b *bench) bySubject(s *figures.Section, r *figures.Report, of string) {
	for _, from := range r.Sections {
		for _, text := range cases(from.Text) {
			s.Text = append(s.Text, of+text)
		}
		for _, f := range from.Figures {
			if f.Quantity == packetbench.Same {
				s.Add(figures.Figure{Case: f.Subject, Subject: b.kernel, Quantity: of + f.Case + sameSuffix, Unit: ratioUnit, Samples: f.Samples})
			}
			if f.Quantity == packetbench.Added || f.Quantity == packetbench.Whole && f.Subject == packetbench.Bare {
				s.Add(figures.Figure{Case: f.Subject, Subject: b.kernel, Quantity: of + f.Case, Unit: b.unit, Samples: f.Samples, Note: f.Note})
			}
		}
	}
}

// keep adds a section to the report.
func (b *bench) keep(s figures.Section, from *figures.Report) {
	b.report.Warnings = append(b.report.Warnings, from.Warnings...)
	b.report.Sections = append(b.report.Sections, s)
}

// cases keeps of the text what says which packets are sent.
func cases(text []string) []string {
	return slices.DeleteFunc(slices.Clone(text), func(t string) bool { return !strings.HasPrefix(t, "IPv") })
}

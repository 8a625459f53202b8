package kernelbench

import (
	"context"
	"fmt"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/addrset"
	"sluice/internal/engine"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/packetbench"
	"sluice/internal/lab/product"
	"sluice/internal/lab/stats"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
)

// oneCountry has a set of some thousand ranges a family: large enough to be laid out,
// and small enough to be loaded in every layout by an emulated machine.
const oneCountry = `version: 1
sets:
  blocked: {countries: [JP]}
input:
  default: allow
  rules:
    - drop any from blocked
`

// Of the section that says whether the default costs choose well.
const (
	chosenRow = "the layout that is chosen, against the cheapest"
	added     = "added to a packet, mean of both kinds"
)

// candidates measures every layout among which the backend chooses, and what the
// choice by its default costs pays against the cheapest of them.
func (b *bench) candidates() error {
	file, err := b.file("one-country.yaml", oneCountry)
	if err != nil {
		return err
	}
	s := figures.Section{Name: "candidates", Title: "One country, in each of Sluice's layouts", Text: []string{
		"A packet of a member and one of another source, over the bare stack. Sluice chooses among these by costs that it has built in, or by those that sluice-lab bench calibrate measured.",
	}}
	for _, f := range []addrset.Family{addrset.IPv4, addrset.IPv6} {
		if err := b.candidatesOf(&s, file, f); err != nil {
			return fmt.Errorf("IPv%d: %w", f, err)
		}
	}
	b.report.Sections = append(b.report.Sections, s)
	return nil
}

// layoutBackend is what the backend of the laid out sets is.
type layoutBackend interface {
	backend.Backend
	backend.Chooser
}

func (b *bench) candidatesOf(s *figures.Section, file string, family addrset.Family) error {
	can := nftables.New().Capabilities(b)
	chooser, is := nftables.New().(layoutBackend)
	if !is {
		return fmt.Errorf("the backend chooses nothing")
	}
	var chosen backend.LayoutReport
	o := b.options(file, "candidates")
	o.Families, o.Kinds, o.Binary = []addrset.Family{family}, []packetbench.Kind{packetbench.Blocked, packetbench.Allowed}, ""
	// What is loaded is known only when the policy is resolved, so each name asks then.
	var p *program.Program
	o.Resolved = func(r *resolve.Resolved) (err error) {
		p, err = programOf(r, family, can)
		return err
	}
	load := func(name string) func(context.Context, *measure.Lab) error {
		return func(ctx context.Context, l *measure.Lab) error {
			a, err := chooser.Lower(p, can)
			if err != nil {
				return err
			}
			if chosen, err = layoutOf(a); err != nil {
				return err
			}
			keeping := chooser.Keeping(map[string]string{fmt.Sprintf("set %s, IPv%d", chosen.Set, family): name})
			if a, err = keeping.Lower(p, can); err != nil {
				return err
			}
			if got, err := layoutOf(a); err != nil || got.Chosen != name {
				return fmt.Errorf("asked for %q, got %q: %w", name, got.Chosen, err)
			}
			return product.Take(ctx, l.Namespace, keeping, a)
		}
	}
	for _, name := range nftables.LayoutNames(int(family)) {
		o.Subjects = append(o.Subjects, packetbench.Subject{Name: name, Load: load(name)})
	}
	r, err := packetbench.Run(b, o)
	if err != nil {
		return err
	}
	b.bySubject(s, r, "")
	b.report.Warnings = append(b.report.Warnings, r.Warnings...)
	return b.judge(s, r, family, chosen.Chosen)
}

// programOf is the program of a policy with the addresses of one family.
func programOf(r *resolve.Resolved, family addrset.Family, can backend.Capabilities) (*program.Program, error) {
	p, err := engine.Program(r, can, engine.Options{Backend: nftables.New()})
	if err != nil {
		return nil, err
	}
	for i := range p.Sets {
		if family == addrset.IPv4 {
			p.Sets[i].Addresses = p.Sets[i].Addresses.Only4()
		} else {
			p.Sets[i].Addresses = p.Sets[i].Addresses.Only6()
		}
	}
	return p, nil
}

func layoutOf(a backend.Artifact) (backend.LayoutReport, error) {
	l, is := a.(backend.LaidOut)
	if !is || len(l.Layouts()) != 1 {
		return backend.LayoutReport{}, fmt.Errorf("one large set was to be laid out")
	}
	return l.Layouts()[0], nil
}

// judge puts beside each layout what it adds in the mean, and what the chosen one
// pays against the cheapest.
func (b *bench) judge(s *figures.Section, r *figures.Report, family addrset.Family, chosen string) error {
	sum := map[string][]stats.Series{}
	var names []string
	for _, from := range r.Sections {
		for _, f := range from.Figures {
			if f.Quantity == packetbench.Added && len(f.Samples) > 0 {
				if sum[f.Subject] == nil {
					names = append(names, f.Subject)
				}
				sum[f.Subject] = append(sum[f.Subject], f.Samples)
			}
		}
	}
	quantity := fmt.Sprintf("IPv%d, %s", family, added)
	means := map[string]stats.Series{}
	best := ""
	for _, n := range names {
		means[n] = stats.Mean(sum[n]...)
		s.Add(figures.Figure{Case: n, Subject: b.kernel, Quantity: quantity, Unit: b.unit, Samples: means[n]})
		if best == "" || means[n].Estimate().Median < means[best].Estimate().Median {
			best = n
		}
	}
	if means[chosen] == nil {
		return fmt.Errorf("%q is chosen, and was not measured", chosen)
	}
	s.Add(figures.Figure{
		Case: chosenRow, Subject: b.kernel, Quantity: fmt.Sprintf("IPv%d, choice by the default costs", family), Unit: "×",
		Samples: means[chosen].Per(means[best]),
	})
	text := fmt.Sprintf("kernel %s, IPv%d: chosen is %q, which is the cheapest.", b.kernel, family, chosen)
	if best != chosen {
		text = fmt.Sprintf("kernel %s, IPv%d: chosen is %q, cheapest is %q.", b.kernel, family, chosen, best)
	}
	s.Text = append(s.Text, text)
	return nil
}

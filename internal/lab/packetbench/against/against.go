// Package against puts the ways that people write a policy today beside Sluice's, in
// one run of package packetbench. The command bench packet --against calls it.
package against

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/packetbench"
	"sluice/internal/lab/peers"
	"sluice/internal/language/resolve"
)

// All is the name for every peer that the machine has.
const All = "all"

// Patience is how long a peer may take to load where nothing else is said.
const Patience = time.Minute

// Sides are the peers of one run.
type Sides struct {
	patience time.Duration
	chosen   []peers.Peer
	meaning  peers.Meaning
	took     map[string]time.Duration
	missing  []string
}

// Choose finds the peers of the names, each once. A peer that this machine cannot
// run is named in the report; one that takes longer than patience to load is left
// out there with that reason.
func Choose(names []string, patience time.Duration) (*Sides, error) {
	chosen, missing, err := Peers(names)
	if err != nil {
		return nil, err
	}
	return &Sides{patience: patience, chosen: chosen, missing: missing, took: map[string]time.Duration{}}, nil
}

// Peers are those of the names, each once; missing says of each that this machine
// cannot run why it is left out.
func Peers(names []string) (chosen []peers.Peer, missing []string, err error) {
	seen := map[string]bool{}
	for _, name := range names {
		found := peers.Every()
		if name != All {
			if found, err = peers.Named(name); err != nil {
				return nil, nil, err
			}
		}
		for _, p := range found {
			if seen[p.Name] {
				continue
			}
			seen[p.Name] = true
			if err := p.Missing(); err != nil {
				missing = append(missing, fmt.Sprintf("%s is left out: %s", p.Name, firstLine(err)))
				continue
			}
			chosen = append(chosen, p)
		}
	}
	return chosen, missing, nil
}

// Into adds the peers to what a run measures.
func (s *Sides) Into(o *packetbench.Options) {
	for _, p := range s.chosen {
		o.Subjects = append(o.Subjects, packetbench.Subject{
			Name: p.Name,
			Load: func(ctx context.Context, l *measure.Lab) error { return s.load(ctx, p, l) },
		})
	}
	o.Resolved = func(r *resolve.Resolved) error {
		s.meaning = peers.FromPolicy(r)
		return nil
	}
}

func (s *Sides) load(ctx context.Context, p peers.Peer, l *measure.Lab) error {
	within, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	begin := time.Now()
	err := p.Load(within, l.Namespace, s.meaning)
	if err == nil {
		s.took[p.Name] = time.Since(begin)
	}
	switch {
	case err != nil && ctx.Err() == nil && s.nowhere(p):
		return &packetbench.EndError{Err: errors.New(firstLine(err))}
	case err != nil && ctx.Err() == nil && errors.Is(within.Err(), context.DeadlineExceeded):
		return fmt.Errorf("it takes more than %s to load", s.patience)
	case err != nil:
		return errors.New(firstLine(err))
	}
	return nil
}

// nowhere says of a file of the user's that this was the last program that could have
// loaded it.
func (s *Sides) nowhere(p peers.Peer) bool {
	if !p.File {
		return false
	}
	passed := false
	for _, o := range s.chosen {
		if o.Group != p.Group {
			continue
		}
		if _, loaded := s.took[o.Name]; loaded || passed {
			return false
		}
		passed = passed || o.Name == p.Name
	}
	return true
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	const most = 300 // of a complaint that quotes a whole rule
	if len(line) > most {
		line = line[:most] + "…"
	}
	return line
}

// Quantities of the ratios.
const (
	OfAdded = "cost that the rules add to a packet, against sluice's"
	OfWhole = "cost of the whole packet, against sluice's"
	Loading = "time to load once"
)

// Tell puts the ratios in front of a report of package packetbench, and what is left
// out behind.
func (s *Sides) Tell(r *figures.Report) {
	r.Warnings = append(r.Warnings, s.missing...)
	at := slices.IndexFunc(r.Sections, func(s figures.Section) bool { return s.Name == "packet" })
	if at < 0 {
		return
	}
	measured := &r.Sections[at]
	ratios := figures.Section{Name: "against", Title: "The same meaning as people write it, against sluice", Text: s.words(measured)}
	for _, f := range measured.Figures {
		if f.Quantity == packetbench.Added && f.Subject != packetbench.Sluice {
			ratios.Add(ratio(f, figureOf(measured, f.Case, packetbench.Sluice, packetbench.Added)))
		}
	}
	for _, f := range measured.Figures {
		if f.Quantity == packetbench.Ratio {
			f.Quantity = OfWhole
			ratios.Add(f)
		}
	}
	measured.Figures = slices.DeleteFunc(measured.Figures, func(f figures.Figure) bool { return f.Quantity == packetbench.Ratio })
	for _, p := range s.chosen {
		if took, there := s.took[p.Name]; there && subject(measured, p.Name) {
			ratios.Add(figures.Figure{Case: "load", Subject: p.Name, Quantity: Loading, Unit: "s", Samples: []float64{took.Seconds()}})
		}
	}
	r.Sections = slices.Insert(r.Sections, at, ratios)
}

func subject(s *figures.Section, name string) bool {
	return slices.ContainsFunc(s.Figures, func(f figures.Figure) bool { return f.Subject == name })
}

func figureOf(s *figures.Section, in, subject, quantity string) figures.Figure {
	for _, f := range s.Figures {
		if f.Case == in && f.Subject == subject && f.Quantity == quantity {
			return f
		}
	}
	return figures.Figure{}
}

// ratio is how much more a peer adds. Where one of both adds next to nothing, or takes
// from the packet's cost, there is no such ratio.
func ratio(peer, ours figures.Figure) figures.Figure {
	f := figures.Figure{Case: peer.Case, Subject: peer.Subject, Quantity: OfAdded, Unit: "×", Note: peer.Note}
	if len(peer.Samples) == 0 || len(ours.Samples) == 0 {
		return f
	}
	switch e := ours.Estimate; {
	case e.High <= 0:
		f.Note = "sluice below zero"
		return f
	case e.Low <= 0:
		f.Note = "too little"
		return f
	case peer.Estimate.High <= 0:
		f.Note = "below zero"
		return f
	case peer.Estimate.Low <= 0:
		f.Note = "next to none"
		return f
	}
	f.Samples = peer.Samples.Per(ours.Samples)
	return f
}

// words say what the peers are and what each leaves out.
func (s *Sides) words(measured *figures.Section) []string {
	text := []string{"Each has the meaning of the policy, and gave every packet the verdict that the policy has for it, or it says otherwise. " +
		"Of what is added there is no ratio where sluice adds too little to divide by, or the other next to nothing; " +
		"rules that drop a packet early can cost less than none."}
	for _, p := range s.chosen {
		if !subject(measured, p.Name) {
			continue
		}
		line := p.Name + ": " + p.About
		for i, r := range p.Without(s.meaning) {
			if i == 0 {
				line += "; without"
			}
			line += fmt.Sprintf(" [%s]", r)
		}
		text = append(text, line)
	}
	return text
}

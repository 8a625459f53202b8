package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
	"sluice/internal/system/kernel/sysctl"
)

// Plan is what an apply would do.
type Plan struct {
	Unchanged bool         `json:"unchanged"`
	From      int          `json:"from"`                // generation that runs, 0 is none
	Policy    string       `json:"policy,omitempty"`    // its file, as it was named
	Gone      int          `json:"gone,omitempty"`      // generation that should run, and whose rules somebody removed
	Rules     string       `json:"rules,omitempty"`     // unified diff, a line for each line of the policy
	AllRules  string       `json:"all-rules,omitempty"` // the same, with what holds without being written
	Sets      []SetChange  `json:"sets,omitempty"`
	Choices   []Choice     `json:"choices,omitempty"` // of the backend that are others than those that run
	Sysctls   []Change     `json:"sysctls,omitempty"`
	Steps     []string     `json:"steps,omitempty"` // transactions, in order
	Cost      backend.Cost `json:"cost"`
	Before    backend.Cost `json:"before"`              // of what runs; it stays until the new one is in use, and confirmed where it is on trial
	Added     backend.Cost `json:"added"`               // of what comes beside it until then: sets that are the same are not loaded again
	Available uint64       `json:"available,omitempty"` // bytes of memory that are free
	Times     *Times       `json:"times,omitempty"`     // how long an apply would take
	Ends      *EndedFlows  `json:"ends,omitempty"`      // what the policy's bans end
	Grace     float64      `json:"grace,omitempty"`     // seconds in which connections pass that nobody knows
	Notes     []string     `json:"notes,omitempty"`
	Warnings  []string     `json:"warnings,omitempty"` // what the policy cannot do alone
	Refused   string       `json:"refused,omitempty"`  // why apply would refuse it
}

// Choice is what a backend chooses by cost, and means the same.
type Choice struct {
	For string `json:"for"`
	Old string `json:"old"`
	New string `json:"new"`
}

// SetChange is one set by counts.
type SetChange struct {
	Name           string `json:"name"`
	Before         int    `json:"before"` // elements
	After          int    `json:"after"`
	Added          int    `json:"added"`
	Removed        int    `json:"removed"`
	Internal       bool   `json:"internal,omitempty"`        // no set of the policy, but one that Sluice made
	AddressesPlus  uint64 `json:"addresses-added,omitempty"` // of sets of addresses; IPv4 alone
	AddressesMinus uint64 `json:"addresses-removed,omitempty"`
	NetworksPlus   uint64 `json:"networks-added,omitempty"` // the same of IPv6: /64 that have such addresses
	NetworksMinus  uint64 `json:"networks-removed,omitempty"`
}

// Plan says what Apply would do. It changes nothing, but settles what a killed
// command left.
func (h *Host) Plan(ctx context.Context, in Input) (*Plan, error) {
	s, ctx, err := h.openToRead(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	out := &Plan{From: s.cur.Running, Available: in.Memory}
	for _, n := range in.Artifact.Notes() {
		out.Notes = append(out.Notes, NoteText(n))
	}
	inert, err := s.bansOutOfForce(in.Artifact)
	if err != nil {
		return nil, err
	}
	out.Notes = append(out.Notes, inert...)
	encoded, err := in.Artifact.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode the rules: %w", err)
	}
	if out.Unchanged, err = s.unchanged(ctx, in, wholeID(encoded)); err != nil {
		return nil, err
	}
	old, written := &program.Program{}, &program.Program{}
	name := "nothing"
	began := time.Now()
	have, err := s.Backend.Read(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("read what the kernel holds: %w", err)
	}
	read := time.Since(began)
	if s.cur.Running != 0 && have.Empty() {
		out.From, out.Gone = 0, s.cur.Running
	}
	if g, err := s.generation(s.cur.Running); out.From != 0 && err == nil {
		out.Policy = g.Policy
		if g.Closed {
			out.Warnings = append(out.Warnings, s.words(&ClosedRunsError{g.Number}))
		}
		out.Choices = choiceChanges(g.Choices, in.Artifact)
		name = fmt.Sprintf("generation %d", g.Number)
		if old, err = s.program(g); err == nil {
			written, err = s.expected(g)
		}
		if err != nil {
			out.Notes = append(out.Notes, "what runs cannot be read, so everything counts as new: "+s.words(err))
			old, written = &program.Program{}, &program.Program{}
		}
	}
	s.Backend = s.backendFor(in.Artifact)
	if g, err := s.generation(s.cur.Running); err == nil && g.Backend != in.Artifact.Backend() {
		if have, err = s.Backend.Read(ctx, true); err != nil {
			return nil, fmt.Errorf("read what the kernel holds: %w", err)
		}
	}
	asks := s.asks(in.Artifact)
	out.Cost = asks.Cost()
	if out.Before, out.Added, err = s.Backend.Change(asks, have); err != nil {
		return nil, fmt.Errorf("compare costs: %w", err)
	}
	out.Rules = ruleDiff(name, written, in.Policy, cmp.Or(in.Expected, in.Program), false)
	out.AllRules = ruleDiff(name, written, in.Policy, cmp.Or(in.Expected, in.Program), true)
	out.Sets = setChanges(old, in.Program)
	out.Sysctls = s.sysctlChanges(in)
	if !out.Unchanged {
		if err := s.planSteps(ctx, in, asks, have, out); err != nil {
			return nil, err
		}
		out.Times = expected(out, read)
		if out.Ends, err = endedFlows(in.Program); err != nil {
			out.Notes = append(out.Notes, "the flows that the bans end are unknown: "+s.words(err))
		}
	} else {
		out.Added = out.Added.None()
	}
	quiet := *h
	quiet.Note = func(text string) { out.Warnings = append(out.Warnings, text) }
	s.Host = &quiet
	err = s.admit(in, &Options{})
	var lock *LockOutError
	var memory *MemoryError
	switch {
	case errors.As(err, &lock), errors.As(err, &memory):
		out.Refused = s.words(err)
	case err != nil:
		return nil, err
	}
	return out, nil
}

// tellChoices says in notes what of the backend's choices becomes another one.
func (s *session) tellChoices(want backend.Artifact) {
	g, err := s.generation(s.cur.Running)
	if s.cur.Running == 0 || err != nil {
		return
	}
	for _, c := range choiceChanges(g.Choices, want) {
		s.note("layout of %s: %s, instead of %s", c.For, c.New, c.Old)
	}
}

// choiceChanges says where an artifact has another choice than what runs.
func choiceChanges(old map[string]string, want backend.Artifact) []Choice {
	var out []Choice
	a, is := want.(backend.Chosen)
	if !is {
		return nil
	}
	now := a.Choices()
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if was, has := old[name]; has && was != now[name] {
			out = append(out, Choice{name, was, now[name]})
		}
	}
	return out
}

func (s *session) planSteps(ctx context.Context, in Input, asks backend.Artifact, have backend.State, out *Plan) error {
	// The generation has no number yet, and its program is at hand.
	want := s.passing(asks, have, change{to: &Generation{}, program: in.Program})
	steps, err := s.Backend.Steps(want, have)
	if err != nil {
		return fmt.Errorf("plan the transactions: %w", err)
	}
	steps = s.withTrack(steps)
	if s.adoption != nil {
		out.Grace = s.adoption.Grace
	}
	removals, err := s.removals(ctx, s.Backend)
	if err != nil {
		return err
	}
	for _, step := range append(steps, removals...) {
		text := fmt.Sprintf("%s: %s", step.Purpose, step.Name)
		out.Steps = append(out.Steps, text)
	}
	return nil
}

func (s *session) sysctlChanges(in Input) []Change {
	var changes []Change
	want := map[string]bool{}
	for _, w := range in.Sysctls {
		want[w.Name] = true
		have, _ := sysctl.Read(w.Name)
		if have != w.Value {
			changes = append(changes, Change{w.Name, have, w.Value})
		}
	}
	for name, value := range s.cur.Originals {
		if have, err := sysctl.Read(name); !want[name] && err == nil && have != value {
			changes = append(changes, Change{name, have, value})
		}
	}
	sorting.By(changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	return changes
}

// ruleDiff compares by what the lines of the policies say, not by where they
// stand; what holds without being written is in brackets, and there with all.
func ruleDiff(oldName string, old *program.Program, newName string, new *program.Program, all bool) string {
	a, _ := ruleLines(old, all)
	b, places := ruleLines(new, all)
	text := string(diff.Diff(oldName, []byte(a), newName, []byte(b)))
	if text == "" {
		return ""
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "diff "):
			continue
		case strings.HasPrefix(line, "+") && places[line[1:]] != "":
			line += "    # " + places[line[1:]]
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

// rulesSuffix ends the name of the chain with the rules of a section.
const rulesSuffix = "_rules"

// ruled says whether a base chain has rules of a section: others accept what they
// do not look for, which no policy says.
func ruled(p *program.Program, chain string) bool {
	if p.Chain(chain+rulesSuffix) != nil {
		return true
	}
	c := p.Chain(chain)
	return c != nil && slices.ContainsFunc(c.Rules, func(r program.Rule) bool { return r.Stage == program.StageRules && r.Origin.Line > 0 })
}

// ruleLines writes a program as lines "section: what the policy says", with the
// place of each. Those of a section are in the policy's order, its default last.
func ruleLines(p *program.Program, all bool) (text string, places map[string]string) {
	type said struct {
		section, line string
		file, number  int // of the policy
		kind          int // 1: the default
	}
	var lines []said
	places = map[string]string{}
	seen := map[string]bool{}
	var files, sections []string
	add := func(section, text, file string, number int) {
		line, place := section+": "+text, ""
		if number > 0 {
			place = fmt.Sprintf("%s:%d", file, number)
		}
		// The rules of one line of the policy are one, in whatever chains.
		if seen[place+line] || place != "" && seen[place] {
			return
		}
		seen[place+line], seen[place] = true, place != ""
		if places[line] == "" {
			places[line] = place
		}
		kind := 0
		if strings.HasPrefix(text, "default: ") {
			kind = 1
		}
		lines = append(lines, said{section, line, placeOf(&files, file), number, kind})
		placeOf(&sections, section)
	}
	for _, c := range p.Chains {
		for _, r := range c.Rules {
			switch {
			case r.Origin.Text != "" && r.Origin.Line > 0:
				add(sectionOf(p, c.Name), r.Origin.Text, r.Origin.File, r.Origin.Line)
			case !all:
			case r.Origin.Text != "":
				add(c.Name, "["+r.Origin.Text+"]", "", 0)
			case r.Comment != "":
				add(c.Name, "["+r.Comment+"]", "", 0)
			}
		}
	}
	// A default that a rule of its own carries out has a line by that.
	for _, h := range p.Hooks {
		own := slices.ContainsFunc(lines, func(l said) bool { return l.section == h.Chain && l.kind == 1 })
		if !own && (all || h.Default != program.Accept || ruled(p, h.Chain)) {
			add(h.Chain, "default: "+fmt.Sprint(h.Default), "", 0)
		}
	}
	sorting.StableBy(lines, func(a, b said) int {
		return cmp.Or(placeOf(&sections, a.section)-placeOf(&sections, b.section), a.kind-b.kind, a.file-b.file, a.number-b.number)
	})
	var b strings.Builder
	if p.Uncounted {
		b.WriteString("counters: false\n")
	}
	for _, l := range lines {
		b.WriteString(l.line + "\n")
	}
	return b.String(), places
}

// sectionOf is the base chain that a chain is named after; itself where it is none's.
func sectionOf(p *program.Program, chain string) string {
	out := ""
	for _, h := range p.Hooks {
		if len(h.Chain) > len(out) && strings.HasPrefix(chain+"_", h.Chain+"_") {
			out = h.Chain
		}
	}
	return cmp.Or(out, chain)
}

// placeOf is where a text is in a list, at the end where it was not.
func placeOf(list *[]string, text string) int {
	i := slices.Index(*list, text)
	if i < 0 {
		i, *list = len(*list), append(*list, text)
	}
	return i
}

// setChanges compares sets by what is in them.
func setChanges(old, new *program.Program) []SetChange {
	var changes []SetChange
	for i := range new.Sets {
		set := &new.Sets[i]
		before := old.Set(set.ID)
		if before == nil {
			before = &program.Set{}
		}
		if set.Life == program.Dynamic {
			continue
		}
		if c := setChange(set.ID, before, set); c.Added > 0 || c.Removed > 0 {
			changes = append(changes, c)
		}
	}
	for i := range old.Sets {
		set := &old.Sets[i]
		if new.Set(set.ID) == nil && set.Life != program.Dynamic {
			changes = append(changes, setChange(set.ID, set, &program.Set{}))
		}
	}
	return changes
}

// isInternal says of a set that no line of the policy lists it: what limits spare,
// and what the optimizer made of rules.
func isInternal(name string) bool {
	return strings.HasPrefix(name, "limit.") || name == program.ExemptSet || strings.HasPrefix(name, "rules.")
}

func setChange(name string, before, after *program.Set) SetChange {
	c := SetChange{Name: name, Before: before.Len(), After: after.Len(), Internal: isInternal(name)}
	a, b := addressesOf(before), addressesOf(after)
	plus, minus := b.Difference(a), a.Difference(b)
	c.AddressesPlus, c.AddressesMinus = plus.Count4(), minus.Count4()
	c.NetworksPlus, c.NetworksMinus = networks6(plus), networks6(minus)
	if len(before.Elements) == 0 && len(after.Elements) == 0 {
		c.Added, c.Removed = rangesApart(before.Addresses, after.Addresses)
		return c
	}
	have, want := elementTexts(before), elementTexts(after)
	for text := range want {
		if !have[text] {
			c.Added++
		}
	}
	for text := range have {
		if !want[text] {
			c.Removed++
		}
	}
	return c
}

// rangesApart is how many ranges are in one of two sets alone.
func rangesApart(before, after addrset.Set) (added, removed int) {
	next, stop := iter.Pull(before.Each())
	defer stop()
	old, more := next()
	for r := range after.Each() {
		for more && old.Compare(r) < 0 {
			removed++
			old, more = next()
		}
		if more && old == r {
			old, more = next()
			continue
		}
		added++
	}
	for ; more; _, more = next() {
		removed++
	}
	return added, removed
}

// elementTexts are the elements of a set, as keys.
func elementTexts(s *program.Set) map[string]bool {
	texts := make(map[string]bool, s.Len())
	for r := range s.Addresses.Each() {
		texts[r.String()] = true
	}
	for _, e := range s.Elements {
		texts[e.String()] = true
	}
	return texts
}

func addressesOf(s *program.Set) addrset.Set {
	if len(s.Key) != 1 || len(s.Elements) == 0 {
		return s.Addresses
	}
	var b addrset.Builder
	for _, e := range s.Elements {
		if r := e.Parts[0].Addresses; r.From.IsValid() {
			b.AddRange(addrset.Range{From: r.From, To: r.To})
		}
	}
	return b.Set()
}

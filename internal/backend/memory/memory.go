package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// Name is how the backend is asked for.
const Name = "memory"

// Backend holds one policy at a time.
type Backend struct {
	mu        sync.Mutex
	held      state
	bans      backend.Bans
	mark      string
	confirmed bool
	changes   backend.Fingerprint
}

// New gives one that holds nothing.
func New() *Backend { return &Backend{} }

// transaction is one change of what is held.
type transaction struct {
	b    *Backend
	text string
	do   func(*Backend)
}

// Take makes the change.
func (t transaction) Take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	t.do(t.b)
	t.b.changes.Number++
	t.b.changes.Own++
	return nil
}

// Text says what is changed.
func (t transaction) Text() string { return t.text }

func (b *Backend) step(purpose backend.Purpose, name string, do func(*Backend)) backend.Step {
	return backend.Step{Purpose: purpose, Name: name, Transaction: transaction{b, name, do}}
}

// Name is the backend's name.
func (*Backend) Name() string { return Name }

// Capabilities are none: no kernel is asked.
func (*Backend) Capabilities(context.Context) backend.Capabilities { return nil }

// Questions are none.
func (*Backend) Questions() backend.Questions { return backend.Questions{} }

// carried are the fields that rules may ask for.
var carried = []program.Field{
	program.InInterface, program.OutInterface, program.Family, program.Source, program.Destination, program.Protocol, program.SourcePort, program.Port,
	program.ICMPType, program.ICMPv6Type, program.TCPFlags, program.State, program.SourceType, program.DestinationType, program.HopLimit,
}

// Passes are those that leave each rule as it is written: look-ups save nothing here.
func (*Backend) Passes(backend.Capabilities) backend.Passes {
	return backend.Passes{Without: []string{"rules-to-sets", "verdict-maps", "concatenations", "dispatch"}}
}

// Lower keeps a copy of the program.
func (*Backend) Lower(p *program.Program, _ backend.Capabilities) (backend.Artifact, error) {
	refused := &backend.RefusedError{Backend: Name}
	for _, c := range p.Chains {
		for _, r := range c.Rules {
			if why := refusal(&r); why != "" {
				refused.Refusals = append(refused.Refusals, backend.Refusal{Origin: r.Origin, Why: why})
			}
		}
	}
	if len(refused.Refusals) > 0 {
		return nil, refused
	}
	return made(p)
}

// refusal is why a rule cannot be carried, "" where it can.
func refusal(r *program.Rule) string {
	for _, m := range r.Match {
		if !slices.Contains(carried, m.Field) {
			return fmt.Sprintf("a packet has no field %s", m.Field)
		}
	}
	for _, a := range r.Actions {
		if e := program.EffectOf(a); !e.Plain() && !e.Verdict {
			return "only verdicts, counters and untracked packets are known, not " + program.ActionText(a)
		}
	}
	return ""
}

// Decode reads what Encode wrote.
func (*Backend) Decode(data []byte) (backend.Artifact, error) { return decoded(data) }

// Read copies what is held.
func (b *Backend) Read(context.Context, bool) (backend.State, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.held
	out.sets, out.counters = maps.Clone(out.sets), maps.Clone(out.counters)
	return &out, nil
}

// ReadSince reads all.
func (b *Backend) ReadSince(ctx context.Context, _ backend.State) (backend.State, error) {
	return b.Read(ctx, true)
}

func ours(want backend.Artifact, have backend.State) (*artifact, *state, error) {
	a, s := (*artifact)(nil), &state{}
	if want != nil {
		own, is := want.(*artifact)
		if !is {
			return nil, nil, fmt.Errorf("backend %s was given an artifact of %s", Name, want.Backend())
		}
		a = own
	}
	if have != nil {
		own, is := have.(*state)
		if !is {
			return nil, nil, fmt.Errorf("backend %s was given a state of another backend (%T)", Name, have)
		}
		s = own
	}
	return a, s, nil
}

// Steps fill sets one by one, switch, and sweep.
func (b *Backend) Steps(want backend.Artifact, have backend.State) ([]backend.Step, error) {
	a, s, err := ours(want, have)
	switch {
	case err != nil:
		return nil, err
	case a == nil && s.Empty():
		return nil, nil
	case a == nil:
		return []backend.Step{b.step(backend.Switch, "remove everything", func(b *Backend) { b.held, b.bans = state{}, backend.Bans{} })}, nil
	}
	var out []backend.Step
	sets := a.sets()
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		if !s.sets[name] {
			out = append(out, b.step(backend.Fill, "set "+name, func(b *Backend) { b.hold(name) }))
		}
	}
	if unused := differing(s.sets, sets); s.rules != a.rules() || len(out)+len(unused) > 0 {
		out = append(out, b.step(backend.Switch, "rules", func(b *Backend) { b.load(a) }))
		if len(unused) > 0 {
			out = append(out, b.step(backend.Sweep, "sets that nobody uses any more", func(b *Backend) {
				for _, name := range unused {
					delete(b.held.sets, name)
				}
			}))
		}
	}
	return out, nil
}

func (b *Backend) hold(name string) {
	if b.held.sets == nil {
		b.held.sets = map[string]bool{}
	}
	b.held.sets[name] = true
}

// load makes the rules those of an artifact; counters go on.
func (b *Backend) load(a *artifact) {
	before := b.held.counters
	b.held.rules, b.held.cost, b.held.counters = a.rules(), a.Cost(), map[string]backend.Count{}
	for _, c := range a.program.Counters {
		b.held.counters[c.Name] = before[c.Name]
	}
}

// differing is what one has and the other has not, in order.
func differing(one, other map[string]bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(one)), func(name string) bool { return other[name] })
}

// Change says what both take.
func (b *Backend) Change(want backend.Artifact, have backend.State) (before, added backend.Cost, err error) {
	a, s, err := ours(want, have)
	if err == nil && a != nil {
		added = a.Cost()
	}
	if err == nil {
		before = s.cost
	}
	return before, added, err
}

// Compare compares names of sets and the sums of rules.
func (b *Backend) Compare(want backend.Artifact, have backend.State) ([]backend.Difference, error) {
	a, s, err := ours(want, have)
	if err != nil {
		return nil, err
	}
	sets, rules := map[string]bool{}, ""
	if a != nil {
		sets, rules = a.sets(), a.rules()
	}
	var out []backend.Difference
	for _, name := range differing(sets, s.sets) {
		out = append(out, backend.Difference{Kind: "set", Name: name, Want: "there"})
	}
	for _, name := range differing(s.sets, sets) {
		out = append(out, backend.Difference{Kind: "set", Name: name, Have: "there"})
	}
	if rules != s.rules {
		out = append(out, backend.Difference{Kind: "rules", Name: "all", Want: rules, Have: s.rules})
	}
	return out, nil
}

// Mark gives the mark.
func (b *Backend) Mark(context.Context) (mark string, confirmed bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mark, b.confirmed, nil
}

// Marked puts the mark into the last step that switches, or before what is swept.
func (b *Backend) Marked(steps []backend.Step, mark string) []backend.Step {
	set := func(b *Backend) { b.mark, b.confirmed = mark, false }
	marked := slices.Clone(steps)
	at := len(marked)
	for i, step := range slices.Backward(marked) {
		if step.Purpose == backend.Switch {
			switches := step.Transaction.(transaction)
			marked[i] = b.step(backend.Switch, step.Name, func(b *Backend) { switches.do(b); set(b) })
			return marked
		}
		if step.Purpose == backend.Sweep {
			at = i
		}
	}
	return slices.Insert(marked, at, b.step(backend.Switch, "mark", set))
}

// Confirm notes that what is marked is confirmed.
func (b *Backend) Confirm(ctx context.Context) error {
	return b.step(backend.Switch, "confirmed", func(b *Backend) { b.confirmed = true }).Take(ctx)
}

// Connect has nothing to keep.
func (b *Backend) Connect() (end func()) { return func() {} }

// Fingerprint counts the changes.
func (b *Backend) Fingerprint() (backend.Fingerprint, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changes, nil
}

var (
	_ backend.Backend = (*Backend)(nil)
	_ backend.Banner  = (*Backend)(nil)
)

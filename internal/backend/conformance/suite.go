package conformance

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// Host is where the suite loads things.
type Host interface {
	// Do runs f on a thread in the host's network namespace.
	Do(f func() error) error
	// Take takes one step there.
	Take(s backend.Step) error
}

// Run runs the suite. Of Programs, the backend must refuse those that are named refused
// and carry all others.
func Run(t *testing.T, b backend.Backend, can backend.Capabilities, host Host, refused ...string) {
	t.Helper()
	s := suite{b: b, can: can, host: host}
	for _, n := range Programs() {
		if slices.Contains(refused, n.Name) {
			t.Run("refuses "+n.Name, func(t *testing.T) { s.refusesAll(t, n.Make()) })
		} else {
			s.programs = append(s.programs, n)
		}
	}
	t.Run("one program one text", s.deterministic)
	t.Run("artifacts survive the disk", s.encode)
	t.Run("loads and reads back", s.load)
	t.Run("any program follows any other", s.follow)
	t.Run("stopped half way", s.stopped)
	t.Run("counters outlive a change", s.counters)
	t.Run("marks", s.marks)
	t.Run("fingerprints", s.fingerprints)
	t.Run("bans by command", s.bansByCommand)
	t.Run("strange artifacts and states", s.strange)
	t.Run("refuses by rule", s.refuses)
}

type suite struct {
	b        backend.Backend
	can      backend.Capabilities
	host     Host
	programs []Named
}

func (s suite) lower(t *testing.T, n Named) backend.Artifact {
	t.Helper()
	a, err := s.b.Lower(n.Make(), s.can)
	if err != nil {
		t.Fatalf("%s: %v", n.Name, err)
	}
	return a
}

func (s suite) read(t *testing.T, contents bool) backend.State {
	t.Helper()
	var state backend.State
	err := s.host.Do(func() (err error) {
		state, err = s.b.Read(context.Background(), contents)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func (s suite) steps(t *testing.T, want backend.Artifact, contents bool) []backend.Step {
	t.Helper()
	steps, err := s.b.Steps(want, s.read(t, contents))
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// to takes the steps to an artifact, nil for nothing.
func (s suite) to(t *testing.T, want backend.Artifact) {
	t.Helper()
	for _, step := range s.steps(t, want, true) {
		s.take(t, step)
	}
}

func (s suite) take(t *testing.T, step backend.Step) {
	t.Helper()
	if err := s.host.Take(step); err != nil {
		t.Fatalf("%s %s: %v\n%s", step.Purpose, step.Name, err, step.Text())
	}
}

// holds wants the kernel to hold exactly the artifact.
func (s suite) holds(t *testing.T, want backend.Artifact, when string) {
	t.Helper()
	for _, contents := range []bool{true, false} {
		found, err := s.b.Compare(want, s.read(t, contents))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range found {
			t.Errorf("%s (contents: %v): %s %s: want %q, have %q", when, contents, d.Kind, d.Name, d.Want, d.Have)
		}
		if again := s.steps(t, want, contents); len(again) > 0 {
			t.Errorf("%s (contents: %v): %d more steps, the first: %s %s\n%s", when, contents, len(again), again[0].Purpose, again[0].Name, again[0].Text())
		}
	}
}

func (s suite) deterministic(t *testing.T) {
	for _, n := range s.programs {
		p := n.Make()
		first, err := s.b.Lower(p, s.can)
		if err != nil {
			t.Fatalf("%s: %v", n.Name, err)
		}
		for range 3 {
			again, err := s.b.Lower(p, s.can)
			if err != nil || again.Text() != first.Text() {
				t.Errorf("%s: lowered again it is another text (%v)", n.Name, err)
			}
		}
		if !reflect.DeepEqual(p, n.Make()) {
			t.Errorf("%s: lowering changed the program", n.Name)
		}
		if first.Backend() != s.b.Name() {
			t.Errorf("%s: the artifact says it is of %s", n.Name, first.Backend())
		}
		if c := first.Cost(); c.Rules == 0 || c.Memory == 0 || c.LoadTime == 0 {
			t.Errorf("%s: it costs %+v", n.Name, c)
		}
		if before, added, err := s.b.Change(first, nil); err != nil || !reflect.DeepEqual(added, first.Cost()) || before.Elements+before.Rules > 0 {
			t.Errorf("%s: where nothing is, %+v comes beside %+v (%v), not %+v", n.Name, added, before, err, first.Cost())
		}
	}
}

func (s suite) encode(t *testing.T) {
	for _, n := range s.programs {
		a := s.lower(t, n)
		data, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		b, err := s.b.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if b.Text() != a.Text() || !slices.Equal(b.Notes(), a.Notes()) || !reflect.DeepEqual(b.Cost(), a.Cost()) {
			t.Errorf("%s: it is another one after Encode and Decode", n.Name)
		}
		if _, err := s.b.Decode(data[:len(data)/2]); err == nil {
			t.Errorf("%s: half of the data is decoded without an error", n.Name)
		}
	}
	if _, err := s.b.Decode(nil); err == nil {
		t.Error("no data are decoded without an error")
	}
}

func (s suite) load(t *testing.T) {
	s.to(t, nil)
	for _, n := range s.programs {
		a := s.lower(t, n)
		s.to(t, a)
		s.holds(t, a, n.Name)
		if s.read(t, true).Empty() {
			t.Errorf("%s: the state is empty", n.Name)
		}
		s.to(t, nil)
		if !s.read(t, true).Empty() {
			t.Errorf("%s: something is left after removal", n.Name)
		}
		if again := s.steps(t, nil, true); len(again) > 0 {
			t.Errorf("%s: removing nothing takes steps", n.Name)
		}
	}
}

func (s suite) follow(t *testing.T) {
	s.to(t, nil)
	for _, from := range s.programs {
		for _, to := range s.programs {
			s.to(t, s.lower(t, from))
			a := s.lower(t, to)
			s.to(t, a)
			s.holds(t, a, from.Name+", then "+to.Name)
		}
	}
	s.to(t, nil)
}

func (s suite) stopped(t *testing.T) {
	for i, to := range s.programs {
		from := s.lower(t, s.programs[(i+1)%len(s.programs)])
		want := s.lower(t, to)
		s.to(t, nil)
		s.to(t, from)
		for stop := range s.steps(t, want, true) {
			s.to(t, nil)
			s.to(t, from)
			for _, step := range s.steps(t, want, true)[:stop] {
				s.take(t, step)
			}
			for _, step := range s.steps(t, want, false) {
				s.take(t, step)
			}
			s.holds(t, want, fmt.Sprintf("%s, stopped after %d steps and taken up again", to.Name, stop))
		}
	}
	s.to(t, nil)
}

func (s suite) counters(t *testing.T) {
	s.to(t, nil)
	for _, n := range s.programs {
		s.to(t, s.lower(t, n))
		counters := s.read(t, false).Counters()
		for _, c := range n.Make().Counters {
			if _, there := counters[c.Name]; !there {
				t.Errorf("%s: no counter %q in the state", n.Name, c.Name)
			}
		}
	}
	s.to(t, nil)
}

// foreign is an artifact and a state of no backend.
type foreign struct{ backend.Artifact }

func (foreign) Backend() string                    { return "another" }
func (foreign) Empty() bool                        { return true }
func (foreign) Counters() map[string]backend.Count { return nil }

func (s suite) strange(t *testing.T) {
	if _, err := s.b.Steps(foreign{}, nil); err == nil {
		t.Error("the artifact of another backend is taken")
	}
	if _, err := s.b.Compare(nil, foreign{}); err == nil {
		t.Error("the state of another backend is taken")
	}
	a := s.lower(t, s.programs[0])
	if steps, err := s.b.Steps(a, nil); err != nil || len(steps) == 0 {
		t.Errorf("from nothing it takes %d steps: %v", len(steps), err)
	}
	if d, err := s.b.Compare(a, nil); err != nil || len(d) == 0 {
		t.Errorf("nothing differs from everything in %d things: %v", len(d), err)
	}
	if d, err := s.b.Compare(nil, nil); err != nil || len(d) != 0 {
		t.Errorf("nothing differs from nothing: %v %v", d, err)
	}
}

// refusesAll: a program with several rules that the backend cannot carry is refused by
// each of them, once.
func (s suite) refusesAll(t *testing.T, p *program.Program) {
	_, err := s.b.Lower(p, s.can)
	var refused *backend.RefusedError
	if !errors.As(err, &refused) || len(refused.Refusals) < 2 {
		t.Fatalf("got %v", err)
	}
	var rules []program.Origin
	for _, c := range p.Chains {
		for _, r := range c.Rules {
			rules = append(rules, r.Origin)
		}
	}
	for _, r := range refused.Refusals {
		i := slices.Index(rules, r.Origin)
		if i < 0 || r.Why == "" {
			t.Fatalf("%+v is of no rule, of one twice, or without a reason", r)
		}
		rules = slices.Delete(rules, i, i+1)
	}
}

// refuses: a rule that no kernel can run is refused with its place, and so are
// all others like it in one go.
func (s suite) refuses(t *testing.T) {
	p := s.programs[0].Make()
	hook := p.Hooks[0].Chain
	for line := 41; line < 43; line++ {
		chain := p.Chain(hook)
		chain.Rules = append([]program.Rule{{
			Match:   []program.Condition{{Field: "phase-of-the-moon", Names: []string{"full"}}},
			Actions: []program.Action{program.Drop},
			Origin:  program.Origin{File: "policy.yaml", Line: line, Column: 7},
		}}, chain.Rules...)
	}
	_, err := s.b.Lower(p, s.can)
	var refused *backend.RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("got %v", err)
	}
	for _, place := range []string{"policy.yaml:41:7", "policy.yaml:42:7"} {
		if !strings.Contains(err.Error(), place) {
			t.Errorf("%s is not named: %v", place, err)
		}
	}
}

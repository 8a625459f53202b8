package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/base/bdd"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// Proof is what came of holding the kernel against a program.
type Proof struct {
	// Proved says that every packet gets what was meant, in verdict, rewriting,
	// tracking, counters, logs and limits.
	Proved   bool `json:"proved"`
	Classes  int  `json:"classes"`  // kinds of packets that the program treats each in its own way
	Rules    int  `json:"rules"`    // read from the kernel
	Elements int  `json:"elements"` // of sets, read from the kernel
	// Banned is how many ranges of addresses are banned by command at the moment.
	// They are taken as they are: they are no difference from the policy.
	Banned      int          `json:"banned-by-command"`
	Differences []Difference `json:"differences"`
	// Strange is elements of sets that packets fill, which no rule made so. They are
	// no mistake of what was loaded: an apply takes them out.
	Strange []StrangeElement   `json:"strange-elements,omitempty"`
	Unread  []backend.Unlifted `json:"unread"` // whose meaning is not known
	// Opaque is conditions that nobody can decide, so that nothing is proved of
	// what they decide.
	Opaque []string `json:"opaque,omitempty"`
}

// Difference is packets that the kernel does not treat as was meant.
type Difference struct {
	Way      reach.Way `json:"way"`
	Witness  Witness   `json:"witness"` // one of them
	Packet   string    `json:"packet"`  // the witness, for a reader
	About    string    `json:"about"`   // what all of them have in common
	Packets  []string  `json:"packets"` // all of them, a line for each class, the first ones alone
	Expected Outcome   `json:"meant"`
	Kernel   Outcome   `json:"kernel"`
}

// Outcome is what happens to the witness.
type Outcome struct {
	Verdict string   `json:"verdict"`          // "accept", "drop", "reject"
	By      string   `json:"by"`               // the line or rule that decided
	Change  []string `json:"change,omitempty"` // rewriting and tracking
	Effects []string `json:"effects,omitempty"`
}

// StrangeElement is an element that switches a limit, a count or a ban by a limit off
// for its key.
type StrangeElement struct {
	Set      string `json:"set"`
	Expected string `json:"meant"`  // what the rules that fill the set put there
	Kernel   string `json:"kernel"` // the element, and what it does
}

// mostClasses is how many classes of packets a difference lists.
const mostClasses = 10

// Prove holds what was read against what was meant, which is in the backend's words
// (backend.Lifter). It is proved whatever the host's own addresses are; here is its devices,
// none where nobody knows them, which make for likelier witnesses. The error says that there are too
// many kinds of packets to tell apart, or which bound was reached.
func Prove(ctx context.Context, expected *program.Program, r *backend.Lifted, here []Device, bounds Bounds) (*Proof, error) {
	p := &Proof{Rules: r.Rules, Elements: r.Elements, Banned: r.Banned, Unread: r.Unlifted, Differences: []Difference{}}
	if p.Unread == nil {
		p.Unread = []backend.Unlifted{}
	}
	err := bounds.within(ctx, func(stop <-chan struct{}) { p.compare(expected, r.Program, nil, stop) })
	if err == nil && len(p.Differences) > 0 && len(here) > 0 {
		// A packet to the host's own address says more than one to any. Where there
		// is none, what was found holds for other addresses.
		closer := *p
		err := bounds.within(ctx, func(stop <-chan struct{}) { closer.compare(expected, r.Program, here, stop) })
		if err == nil && len(closer.Differences) > 0 {
			p.Differences = closer.Differences
		}
	}
	if err != nil {
		return nil, fmt.Errorf("prove the rules: %w", err)
	}
	p.Differences = append(append(p.Differences, devices(expected, r.Program)...), tables(expected, r.Program)...)
	for _, e := range r.Strange {
		p.Strange = append(p.Strange, StrangeElement{Set: e.Set, Expected: e.Want, Kernel: e.Have})
	}
	p.Proved = len(p.Differences)+len(p.Unread)+len(p.Opaque)+len(p.Strange) == 0
	return p, nil
}

// guarded runs a part of a proof. A fault of the prover must not end a command that
// is in the middle of changing the firewall.
func guarded(f func()) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("a bug in the prover: %v", fault)
		}
	}()
	return bdd.Guard(f)
}

func (p *Proof) compare(expected, have *program.Program, devices []Device, stop <-chan struct{}) {
	u := reach.NewUniverse(reach.Options{Own: addressesOf(devices), Settled: true, Stop: stop}, expected, have)
	p.Classes, p.Differences = u.Kinds(expected), []Difference{}
	for _, d := range u.Compare(expected, have, true) {
		d.Witness = likely(u, d, devices)
		p.Differences = append(p.Differences, differenceOf(u, d))
	}
	p.Opaque = u.Opaque()
}

func differenceOf(u *reach.Universe, d reach.Difference) Difference {
	out := Difference{
		Way: d.Way, Witness: witnessOf(d.Witness), Packet: packetText(d.Way, d.Witness),
		Expected: outcomeOf(&d.A), Kernel: outcomeOf(&d.B),
	}
	// Where both decide alike, what differs is what they do beside it.
	if out.Expected.Verdict == out.Kernel.Verdict {
		out.Expected.Effects, out.Kernel.Effects = apart(d.A.Effects, d.B.Effects)
	}
	classes := u.Classes(d.Way, d.Region)
	out.About = common(classes)
	for i, c := range classes {
		if i == mostClasses {
			out.Packets = append(out.Packets, fmt.Sprintf("and %d more kinds", len(classes)-i))
			break
		}
		out.Packets = append(out.Packets, classText(c))
	}
	return out
}

func outcomeOf(o *reach.Outcome) Outcome {
	out := Outcome{Verdict: string(o.Verdict), Change: o.Change, By: by(o)}
	return out
}

// by names what decided.
func by(o *reach.Outcome) string {
	origin := o.Origin
	if origin == (program.Origin{}) && o.Rule != nil {
		origin = o.Rule.Origin
	}
	switch {
	case origin.Foreign:
		return fmt.Sprintf("%s rule %d: %s", origin.File, origin.Line, origin.Text)
	case origin.File != "" && origin.Line > 0:
		return strings.TrimSpace(fmt.Sprintf("%s:%d %s", origin.File, origin.Line, origin.Text))
	case o.Rule != nil && o.Rule.Comment != "":
		return "an implicit rule: " + o.Rule.Comment
	case o.Chain != "":
		return "the default of " + o.Chain
	case o.Rule != nil:
		return "an implicit rule"
	}
	return "no rule decides"
}

// apart is what only one of two sorted lists has.
func apart(a, b []string) (onlyA, onlyB []string) {
	onlyB = slices.Clone(b)
	for _, text := range a {
		if i := slices.Index(onlyB, text); i >= 0 {
			onlyB = slices.Delete(onlyB, i, i+1)
			continue
		}
		onlyA = append(onlyA, text)
	}
	return onlyA, onlyB
}

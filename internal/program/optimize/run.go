package optimize

import (
	"fmt"
	"slices"

	"sluice/internal/base/nearest"
	"sluice/internal/program"
)

// Options is how Run works.
type Options struct {
	Without []string // passes that are left out, by name
	Check   bool     // check the program's invariants after every pass
	// NoElementCounters says that elements of sets cannot be counted, so that
	// rules with counters of their own stay apart.
	NoElementCounters bool
	// Profile is the packets that each counter of the program has counted, by
	// name; nil where nobody counted.
	Profile map[string]uint64
	// Estimate, where set, says how many ns a packet costs under the program in
	// the mean. It is asked before and after each pass where
	// Report is set.
	Estimate func(*program.Program) float64
	// Report, where set, is told what each pass did.
	Report func(Report)
	// Compared, where set, is told how many comparisons of rules a pass has made.
	Compared func(pass string, n int)
	// After, where set, sees the program after each pass.
	After func(pass string, p *program.Program)
}

// Report is what one pass did.
type Report struct {
	Pass    string   `json:"pass"`
	Did     []string `json:"did"` // in words; none, and not nil: it found nothing to do
	Reason  string   `json:"reason"`
	LeftOut bool     `json:"left-out,omitempty"` // switched off
	Before  Size     `json:"before"`
	After   Size     `json:"after"`
}

// Size is how large a program is and what a packet costs under it.
type Size struct {
	Rules  int     `json:"rules"`
	Chains int     `json:"chains"`
	Sets   int     `json:"sets"`
	NS     float64 `json:"ns,omitempty"` // expected per packet; 0 where nobody estimates
}

// sizeOf measures a program. Before the rules of base chains are in their order,
// what a packet meets is asked of a copy in which they are.
func (o *Options) sizeOf(p *program.Program, ordered bool) Size {
	s := Size{Chains: len(p.Chains), Sets: len(p.Sets)}
	for i := range p.Chains {
		s.Rules += len(p.Chains[i].Rules)
	}
	if o.Estimate != nil {
		if !ordered {
			inOrder := *p
			inOrder.Chains = slices.Clone(p.Chains)
			for i := range inOrder.Chains {
				inOrder.Chains[i].Rules = slices.Clone(p.Chains[i].Rules)
			}
			orderStages(&inOrder)
			p = &inOrder
		}
		s.NS = o.Estimate(p)
	}
	return s
}

// Run rewrites the program in place.
func Run(p *program.Program, opt Options) error {
	if err := constraints(Passes); err != nil {
		return err
	}
	if err := CheckWithout(opt.Without); err != nil {
		return err
	}
	var before Size
	text := ""
	if opt.Report != nil {
		before, text = opt.sizeOf(p, false), p.Text()
	}
	ordered := false
	for _, pass := range Passes {
		w := &work{Program: p, options: &opt}
		leftOut := slices.Contains(opt.Without, pass.Name)
		if !leftOut {
			pass.run(w)
		}
		ordered = ordered || pass.Name == "stages"
		if opt.Check {
			if err := p.Check(); err != nil {
				return fmt.Errorf("pass %s left a broken program: %w", pass.Name, err)
			}
		}
		if opt.Report != nil {
			after, now := opt.sizeOf(p, ordered), p.Text()
			if len(w.did) == 0 && now != text {
				w.say(inNumbers(before, after))
			}
			opt.Report(Report{Pass: pass.Name, Did: append([]string{}, w.did...), Reason: pass.Reason, LeftOut: leftOut, Before: before, After: after})
			before, text = after, now
		}
		if opt.Compared != nil && !leftOut {
			opt.Compared(pass.Name, w.compared)
		}
		if opt.After != nil && !leftOut {
			opt.After(pass.Name, p)
		}
	}
	return nil
}

// inNumbers is what can be said of a pass that says nothing itself.
func inNumbers(before, after Size) string {
	if before == after {
		return "rules or elements put in order"
	}
	text := ""
	add := func(what string, a, b int) {
		if a == b {
			return
		}
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%d → %d %s", a, b, what)
	}
	add("rules", before.Rules, after.Rules)
	add("chains", before.Chains, after.Chains)
	add("sets", before.Sets, after.Sets)
	if text == "" {
		return "rules rebuilt"
	}
	return text
}

// constraints holds a table of passes to its own words.
func constraints(passes []Pass) error {
	var seen []string
	for _, pass := range passes {
		for _, need := range pass.Needs {
			if !slices.Contains(seen, need) {
				return fmt.Errorf("pass %s needs %s before it", pass.Name, need)
			}
		}
		if slices.Contains(seen, pass.Name) {
			return fmt.Errorf("two passes are called %s", pass.Name)
		}
		seen = append(seen, pass.Name)
	}
	return nil
}

// CheckWithout says which of the passes cannot be left out, and why.
func CheckWithout(names []string) error {
	for _, name := range names {
		pass := Named(name)
		switch {
		case pass == nil:
			return &UnknownPassError{name, meant(name)}
		case pass.Required:
			return fmt.Errorf("pass %s cannot be left out: %s", name, pass.Reason)
		}
	}
	return nil
}

// UnknownPassError says that no pass is called so.
type UnknownPassError struct {
	Name    string
	Nearest string // that was probably meant; "" where none is
}

func (e *UnknownPassError) Error() string {
	text := fmt.Sprintf("no pass is called %q", e.Name)
	if e.Nearest != "" {
		text += fmt.Sprintf(", did you mean %q?", e.Nearest)
	}
	return text
}

// meant is the name that was probably meant, "" where none is like it.
func meant(name string) string {
	var names []string
	for _, p := range Passes {
		names = append(names, p.Name)
	}
	return nearest.Of(name, names)
}

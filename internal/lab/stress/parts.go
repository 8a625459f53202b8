package stress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"

	"sluice/internal/lab/testnet"
)

// ErrWrong says that a count is not what it has to be; the report names it.
var ErrWrong = errors.New("something was lost, leaked, left behind, or a control saw nothing")

// part is one part of a run.
type part struct {
	Name string
	What string
	run  func(*Run, context.Context, *testnet.Net) (result, error)
}

// result is what came of a part.
type result interface {
	// wrong is what must not be, in words.
	wrong() []string
	// print writes the counts for a reader.
	print(w io.Writer)
}

// Parts of the long form, in the order in which they run.
var parts = []part{
	{"control", "wrong on purpose, which has to show", func(r *Run, ctx context.Context, n *testnet.Net) (result, error) {
		return r.control(ctx, n, someCountries, 20)
	}},
	{"applies", "1,000 applies that alternate between two policies", func(r *Run, ctx context.Context, n *testnet.Net) (result, error) {
		return r.alternate(ctx, n, setting{geography: manyCountries, untracked: sameBypass, applies: r.times(1000), warm: 40, program: 20})
	}},
	{"europe", "applies with all of Europe on one side", func(r *Run, ctx context.Context, n *testnet.Net) (result, error) {
		return r.alternate(ctx, n, setting{geography: wholeEurope, untracked: sameBypass, applies: max(r.times(20), 4), warm: 2})
	}},
	{"tracking", "applies that change what is tracked", func(r *Run, ctx context.Context, n *testnet.Net) (result, error) {
		return r.alternate(ctx, n, setting{geography: fewCountries, untracked: otherBypass, applies: max(r.times(20), 4), warm: 2})
	}},
	{"refreshes", "1,000 refreshes of a list of 100,000 addresses that rules ask", func(r *Run, ctx context.Context, n *testnet.Net) (result, error) {
		return r.refresh(ctx, n, refreshing{size: [2]int{80_000, 20_000}, refreshes: r.times(1000), warm: 40})
	}},
	{"banned", "refreshes of such a list that is banned", func(r *Run, ctx context.Context, n *testnet.Net) (result, error) {
		return r.refresh(ctx, n, refreshing{size: [2]int{80_000, 20_000}, refreshes: r.times(100), warm: 2, bans: true})
	}},
	{"day", "24 hours of an agent, in one", func(r *Run, ctx context.Context, n *testnet.Net) (result, error) {
		hour := time.Hour / dayHours
		if r.Short {
			hour = 5 * time.Minute / dayHours
		}
		return r.live(ctx, n, dayHours, hour)
	}},
}

// Parts are the names of all parts, in the order in which they run, and what each is
// about.
func Parts() (names, about []string) {
	for _, p := range parts {
		names, about = append(names, p.Name), append(about, p.What)
	}
	return names, about
}

// Outcome is one part in the JSON report.
type Outcome struct {
	Part   string   `json:"part"`
	What   string   `json:"what"`
	Wall   float64  `json:"seconds"`
	Counts result   `json:"counts"`
	Wrong  []string `json:"wrong"`
}

// Long runs the parts whose name matches (nil: all) and prints their counts. The error
// is ErrWrong where all was counted and a count is wrong.
func (r *Run) Long(ctx context.Context, chosen *regexp.Regexp) (_ []Outcome, err error) {
	if r.Dir, err = os.MkdirTemp("", "sluice-stress-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.Dir)) }()
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	var all []Outcome
	for _, p := range parts {
		if chosen != nil && !chosen.MatchString(p.Name) {
			continue
		}
		fmt.Fprintf(r.Out, "\n%s: %s\n", p.Name, p.What)
		r.begun = time.Now()
		o := Outcome{Part: p.Name, What: p.What}
		err := testnet.Within("stress", func(n *testnet.Net) (err error) {
			o.Counts, err = p.run(r, ctx, n)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		o.Wall, o.Wrong = time.Since(r.begun).Seconds(), o.Counts.wrong()
		o.Counts.print(r.Out)
		for _, w := range o.Wrong {
			fmt.Fprintln(r.Out, "  WRONG:", w)
		}
		fmt.Fprintf(r.Out, "  %d wrong, %.0f s\n", len(o.Wrong), o.Wall)
		all = append(all, o)
	}
	if slices.ContainsFunc(all, func(o Outcome) bool { return len(o.Wrong) > 0 }) {
		return all, ErrWrong
	}
	return all, nil
}

func (c *controlled) print(w io.Writer) {
	fmt.Fprintf(w, "  %d reloads by nft, sets and their users together: %d packets lost that both policies allow\n", c.Together, c.Lost)
	fmt.Fprintf(w, "  %d reloads by nft, the table deleted before: %d packets passed that neither allows\n", c.Apart, c.Leaked)
	fmt.Fprintf(w, "  a rule that drops what streams carry: %d ends told dead\n", c.Cut)
	fmt.Fprintf(w, "  a file and a table left behind: found by %d counts\n", len(c.Grown))
}

func (a *alternated) print(w io.Writer) {
	fmt.Fprintf(w, "  %d applies in %.0f s, %d of them by the program; %d and %d elements in static sets\n",
		a.Applies, a.Wall.Seconds(), a.ByProgram, a.Elements[0], a.Elements[1])
	fmt.Fprintf(w, "  an apply of the first policy takes %s, of the second %s\n", a.Took[0].mean().Round(time.Millisecond), a.Took[1].mean().Round(time.Millisecond))
	a.Counts.print(w)
	printGrowth(w, a.Growth)
	remains := int64(0)
	for _, n := range a.Remains {
		remains += n
	}
	fmt.Fprintf(w, "  objects in the kernel when the policy is removed: %d\n", remains)
}

func (c *counts) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...any) {
		for _, cell := range cells {
			fmt.Fprintf(t, "%v\t", cell)
		}
		fmt.Fprintln(t)
	}
	row("", "sent", "passed", "lost", "leaked")
	for _, f := range slices.Concat(c.Flows, c.Services) {
		row(f.Name, f.Sent, f.Passed, f.Lost, f.Leaked)
	}
	row("all", "", "", c.lost(), c.leaked())
	_ = t.Flush()
	fmt.Fprintf(w, "  %d streams carried %d bytes, %d broke or stood still\n", c.Streams, c.Carried, len(c.Dead))
	fmt.Fprintf(w, "  %d connections were opened, used and closed, %d failed\n", c.Connects, len(c.Failed))
}

func printGrowth(w io.Writer, list []growth) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tbefore\tafter\tmay grow by\t")
	for _, g := range list {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t\n", g.What, g.Before, g.After, g.Tolerance)
	}
	_ = t.Flush()
}

package cli

import (
	"fmt"
	"io"
	"math"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/base/english"
	"sluice/internal/cli/answers"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/estimate"
)

// explanation is what "compile --explain" prints.
type explanation struct {
	Backend string                 `json:"backend"`
	Passes  []optimize.Report      `json:"passes"`
	Packets []packetCost           `json:"packets"`
	Layouts []backend.LayoutReport `json:"layouts"`
	Costs   engine.CostsView       `json:"costs"`

	costs  engine.Costs
	mix    []estimate.Class
	pricer backend.Pricer
}

// packetCost is what the packets of one class are expected to pay.
type packetCost struct {
	Class  string  `json:"class"`
	Share  float64 `json:"share"` // of the packets that are expected, up to 1
	Before float64 `json:"ns-before"`
	After  float64 `json:"ns-after"`
}

// explain prepares the options of the optimizer so that it tells what it does.
func (e *explanation) explain(p *program.Program, opt *optimize.Options) {
	opt.Report = func(r optimize.Report) { e.Passes = append(e.Passes, r) }
	if e.pricer == nil {
		return
	}
	e.mix = estimate.MixOf(p, opt.Profile)
	opt.Estimate = func(p *program.Program) float64 {
		classes := estimate.Classes(e.pricer.Prices(p), p, e.mix)
		if e.Packets == nil { // the first time, before all passes
			for _, c := range classes {
				e.Packets = append(e.Packets, packetCost{Class: c.Class, Share: c.Share, Before: c.NS})
			}
		}
		return estimate.Mean(classes)
	}
}

// finish adds what is known when the program is lowered.
func (e *explanation) finish(p *program.Program, a backend.Artifact) {
	e.Backend = a.Backend()
	if e.pricer != nil {
		for i, c := range estimate.Classes(e.pricer.Prices(p), p, e.mix) {
			e.Packets[i].After = c.NS
		}
	}
	if laid, is := a.(backend.LaidOut); is {
		e.Layouts = laid.Layouts()
	}
	if e.Layouts == nil {
		e.Layouts = []backend.LayoutReport{}
	}
}

func (e *explanation) print(w io.Writer) {
	fmt.Fprintf(w, "%-16s %15s %17s\n", "pass", "rules", "ns of a packet")
	for _, r := range e.Passes {
		ns := ""
		if r.Before.NS > 0 {
			ns = wholeNS(r.Before.NS) + " → " + wholeNS(r.After.NS)
		}
		fmt.Fprintf(w, "%s %15s %17s\n", command.Paint(w, "1", fmt.Sprintf("%-16s", r.Pass)), english.Grouped(r.Before.Rules)+" → "+english.Grouped(r.After.Rules), ns)
		switch {
		case r.LeftOut:
			fmt.Fprintln(w, "    left out")
		case len(r.Did) == 0:
			fmt.Fprintln(w, "    nothing to do")
		}
		for _, said := range r.Did {
			fmt.Fprintln(w, "    "+said)
		}
		fmt.Fprintln(w, command.Paint(w, "2", "    why: "+r.Reason))
	}
	if len(e.Packets) > 0 {
		fmt.Fprintln(w, "\nthe expected cost of rules for a packet, in ns (without connection tracking),\n"+answers.CostWords(e.costs.View()))
		for _, c := range e.Packets {
			fmt.Fprintf(w, "  %-18s %5.1f %% of packets %8.0f → %.0f\n", c.Class, 100*c.Share, c.Before, c.After)
		}
	}
	for _, l := range e.Layouts {
		printLayout(w, l)
	}
}

func wholeNS(ns float64) string { return english.Grouped(int(math.RoundToEven(ns))) }

func printLayout(w io.Writer, l backend.LayoutReport) {
	fmt.Fprintf(w, "\nset %s, IPv%d: %s ranges, looked up in %s\n", l.Set, l.Family, english.Grouped(l.Ranges), english.Plural(l.Uses, "way"))
	width := 0
	for _, c := range l.Candidates {
		width = max(width, len(c.Name))
	}
	fmt.Fprintf(w, "    %-*s %8s %8s %10s %9s\n", width, "layout", "by addr.", "by range", "memory", "load")
	for _, c := range l.Candidates {
		mark := " "
		if c.Name == l.Chosen {
			mark = "*"
		}
		fmt.Fprintf(w, "  %s %-*s %5.0f ns %5.0f ns %10s %6.0f ms\n", mark, width, c.Name, c.ByAddress, c.ByRange, strings.TrimSpace(apply.Bytes(c.Memory)), float64(c.Load)/1e6)
	}
}

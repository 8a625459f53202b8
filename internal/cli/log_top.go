package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
)

// logTop is whose packets were logged most.
type logTop struct {
	By      string `json:"by"`
	Packets uint64 `json:"packets"` // all that were asked for
	// Lost is how many more were logged and could not be kept.
	Lost uint64       `json:"lost"`
	Top  []*logTopRow `json:"top"`
}

type logTopRow struct {
	Name    string `json:"name"` // "" where the packets have none
	Packets uint64 `json:"packets"`
	Country string `json:"country,omitempty"` // of a source
	Rule    string `json:"rule,omitempty"`    // of a line
	// Ports are where the packets of a service went: tcp/22.
	Ports []string `json:"ports,omitempty"`
	// Counted is what a line of the policy that runs has counted since it was loaded, with what
	// was left out of the log; nil where that is not known.
	Counted *uint64 `json:"counted,omitempty"`

	id string // of the rule
}

// tops are what a packet counts for, by the words of --top.
var tops = map[string]func(engine.Logged) logTopRow{
	"source": func(l engine.Logged) logTopRow {
		if !l.Source.IsValid() {
			return logTopRow{}
		}
		return logTopRow{Name: l.Source.String(), Country: l.Country}
	},
	"country": func(l engine.Logged) logTopRow { return logTopRow{Name: l.Country} },
	"service": func(l engine.Logged) logTopRow {
		if l.Called == "" {
			return logTopRow{Name: l.Service()}
		}
		return logTopRow{Name: l.Called, Ports: []string{l.Service()}}
	},
	"line": func(l engine.Logged) logTopRow { return logTopRow{Name: loggedLine(l), Rule: l.Rule, id: l.ID} },
}

// topRows are how many are printed; --json has all.
const topRows = 20

func showLogTop(ctx context.Context, cmd *cobra.Command, h door, asked engine.LogQuestion, by string) error {
	row := tops[by]
	if row == nil {
		return fmt.Errorf("--top %q: there are %s", by, strings.Join(slices.Sorted(maps.Keys(tops)), ", "))
	}
	out := &logTop{By: by, Top: []*logTopRow{}}
	rows := map[string]*logTopRow{}
	if _, err := h.Log(ctx, asked, func(l engine.Logged) {
		r := row(l)
		if rows[r.Name] == nil {
			rows[r.Name] = &r
			out.Top = append(out.Top, &r)
		}
		have := rows[r.Name]
		have.Packets++
		for _, port := range r.Ports {
			if !slices.Contains(have.Ports, port) {
				have.Ports = append(have.Ports, port)
			}
		}
		out.Packets++
		out.Lost += uint64(l.Lost)
	}); err != nil {
		return err
	}
	sorting.By(out.Top, func(a, b *logTopRow) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Name, b.Name))
	})
	if by == "line" {
		s, err := h.Status(ctx, false)
		if err != nil {
			return err
		}
		for _, c := range s.Counters {
			for _, r := range out.Top {
				if r.id == c.Name {
					r.Counted = &c.Packets
				}
			}
		}
	}
	return answer(cmd, out, false, func(w io.Writer) { printLogTop(w, out) })
}

func printLogTop(w io.Writer, t *logTop) {
	if t.Packets == 0 {
		fmt.Fprintln(w, "no packets")
		return
	}
	counted := func(text string) string {
		if t.By == "line" {
			return fmt.Sprintf(" %12s", text)
		}
		return ""
	}
	fmt.Fprintf(w, "%10s %4s%s  %s\n", "packets", "%", counted("counted"), t.By)
	for _, r := range t.Top[:min(len(t.Top), topRows)] {
		all := "-"
		if r.Counted != nil {
			all = english.Grouped(*r.Counted)
		}
		text := fmt.Sprintf("%10s %4.0f%s  %-16s  %s", english.Grouped(r.Packets), 100*float64(r.Packets)/float64(t.Packets), counted(all), cmp.Or(r.Name, "-"), r.Country+r.Rule+strings.Join(r.Ports, ", "))
		fmt.Fprintln(w, strings.TrimRight(fitting(w, command.PlainName(text)), " "))
	}
	if more := len(t.Top) - topRows; more > 0 {
		fmt.Fprintf(w, "and %s more\n", english.Grouped(more))
	}
	if t.Lost > 0 {
		fmt.Fprintf(w, "%s more packets were logged but could not be kept or read in time\n", english.Grouped(t.Lost))
	}
}

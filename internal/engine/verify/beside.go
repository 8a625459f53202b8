package verify

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// devices compares what no packet shows: the interfaces of flowtables.
func devices(expected, have *program.Program) []Difference {
	var out []Difference
	of := func(p *program.Program) map[string]string {
		texts := map[string]string{}
		for _, f := range p.Flowtables {
			devices := slices.Clone(f.Devices)
			slices.Sort(devices)
			texts[f.Name] = "flowtable " + f.Name + " of " + strings.Join(devices, ", ")
		}
		return texts
	}
	a, b := of(expected), of(have)
	for _, f := range slices.Concat(expected.Flowtables, have.Flowtables) {
		if a[f.Name] != b[f.Name] && !slices.ContainsFunc(out, func(d Difference) bool { return d.Packet == f.Name }) {
			out = append(out, Difference{
				Way: reach.Through, Packet: f.Name, About: "flows that a flowtable takes over", Packets: []string{},
				Expected: Outcome{By: orNone(a[f.Name])}, Kernel: Outcome{By: orNone(b[f.Name])},
			})
		}
	}
	return out
}

func orNone(text string) string {
	if text == "" {
		return "no such flowtable"
	}
	return text
}

// tables compares what no packet shows either: how many entries a set holds that
// packets fill, and for how long, on which the limits that ask it rest.
func tables(expected, have *program.Program) []Difference {
	var out []Difference
	for i := range expected.Sets {
		a := &expected.Sets[i]
		b := have.Set(a.ID)
		if a.Life != program.Dynamic || b == nil || a.Size == b.Size && a.Timeout == b.Timeout {
			continue
		}
		text := func(s *program.Set) string {
			return fmt.Sprintf("at most %d entries, for %s", s.Size, time.Duration(s.Timeout)*time.Millisecond) //nolint:gosec // days at most
		}
		out = append(out, Difference{
			Way: reach.In, Packet: a.ID, About: "the size and timeout of a set that packets fill", Packets: []string{},
			Expected: Outcome{By: text(a)}, Kernel: Outcome{By: text(b)},
		})
	}
	return out
}

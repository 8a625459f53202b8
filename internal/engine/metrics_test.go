package engine

import (
	"strings"
	"testing"

	"sluice/internal/base/exposition"
	"sluice/internal/engine/apply"
	"sluice/internal/program"
)

// Each metric is on the page with a sample, which has its labels.
func TestMetricsHaveSamples(t *testing.T) {
	for _, f := range Bounded(allFamilies("", 1)) {
		if len(f.Samples) == 0 {
			t.Errorf("%s has no sample", f.Name)
		}
	}
}

// Counters of one line are one series, and a line of no name has no label.
func TestLinesAlike(t *testing.T) {
	f := &families{}
	one := apply.Counter{Name: "input_a", Packets: 2, Bytes: 5, Origin: program.Origin{File: "p.yaml", Line: 3, Text: "allow ssh"}}
	two, other := one, one
	two.Name, two.Packets, other.Name = "input_b", 3, "forward_a"
	all := []apply.Counter{one, two, other, {Name: "ban_x", Comment: "banned"}}
	gone := apply.Counter{Name: "output_a", Origin: program.Origin{File: "p.yaml", Line: 4, Text: "allow any"}}
	f.lines(&apply.Figures{Counters: all}, seriesOf("", append([]apply.Counter{gone}, all...)))
	var text strings.Builder
	if err := exposition.Write(&text, f.list[:1]); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(text.String(), "counter\n")
	const want = `sluice_rule_packets_total{line="3",policy="p.yaml",rule="allow ssh",section="input"} 5
sluice_rule_packets_total{line="3",policy="p.yaml",rule="allow ssh",section="forward"} 2
sluice_rule_packets_total{rule="banned",section="ban"} 0
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestBounded(t *testing.T) {
	families := Bounded(allFamilies("", 6000))
	total := 0
	for _, f := range families {
		total += len(f.Samples)
	}
	last := families[len(families)-1]
	whole := 0
	for _, f := range allFamilies("", 6000) {
		whole += len(f.Samples)
	}
	if total > MostSeries || last.Name != "sluice_metrics_left_out" || int(last.Samples[0].Value) != whole-total+1 {
		t.Errorf("%d series of %d, and %s %v", total, whole, last.Name, last.Samples)
	}
}

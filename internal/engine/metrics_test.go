package engine

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/exposition"
	"sluice/internal/engine/apply"
	"sluice/internal/program"
	"sluice/internal/system/kernel/conntrack"
)

// allFamilies are the metrics of a host that has one of each.
func allFamilies(namespace string, lines int) []exposition.Family {
	h := &Host{Host: &apply.Host{Namespace: namespace, Version: "1"}}
	f := &families{namespace: namespace}
	now := &apply.Figures{Generation: 1, Condition: apply.Running, Pending: &apply.Pending{}}
	now.Full = []apply.Counter{{Name: "full", Origin: program.Origin{File: "p.yaml", Line: 1, Text: "allow ssh"}}}
	now.Sets = append(now.Sets, backend.SetSize{ID: "office"}, backend.SetSize{ID: "limit", Origin: program.Origin{File: "p.yaml", Line: 1}, Most: 9})
	for i := range lines {
		now.Counters = append(now.Counters, apply.Counter{Name: fmt.Sprint("input_", i), Packets: uint64(i), Origin: program.Origin{File: "p.yaml", Line: i + 1, Text: "allow ssh"}})
	}
	f.running(h, now, nil, false)
	f.lines(now, seriesOf(namespace, now.Counters))
	f.sets(now)
	f.gauge("allows", allowsHelp, 1)
	f.renewed(h, &Gauged{Outside: Outside{Lists: []List{{Set: "tor", Every: time.Hour}}, Countries: "x"}})
	f.logged(&LogCounts{})
	f.dropped(func() (map[string]uint64, error) { return map[string]uint64{"NO_SOCKET": 1}, nil })
	f.connections(&conntrack.Table{})
	return f.list
}

// The table of docs/metrics.md is what is written.
func TestDocsNameEachMetric(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, f := range Bounded(allFamilies("", 1)) {
		if len(f.Samples) == 0 {
			t.Errorf("%s has no sample", f.Name)
		}
		var labels []string
		for _, label := range []string{"version", "kind", "policy", "line", "rule", "section", "by", "set", "reason"} {
			for _, s := range f.Samples {
				if _, has := s.Labels[label]; has {
					labels = append(labels, "`"+label+"`")
					break
				}
			}
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", f.Name, f.Type, strings.Join(labels, ", "), f.Help)
	}
	if !strings.Contains(string(page), want.String()) {
		t.Errorf("docs/metrics.md has another table than\n%s", want.String())
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

package scale

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/packetbench"
	"sluice/internal/lab/peers"
	"sluice/internal/lab/stats"
)

// two is a series that has two steps behind it, in which the peer became ten times
// slower and Sluice stayed as it was.
func two() *series {
	s := &series{
		Dimension: Prefixes, lefts: map[string]left{}, report: &figures.Report{},
		sides: []side{{name: packetbench.Sluice}, {name: "peer", peer: &peers.Peer{Name: "peer"}}},
	}
	s.Patience = time.Minute
	for _, n := range []float64{1, 10} {
		st := &step{n: int(n * 1000), packets: &figures.Section{}, loads: map[string]loads{
			packetbench.Sluice: {seconds: stats.Series{0.1}, cpu: stats.Series{0.1}, tool: 10 << 20, kernel: 1 << 20},
			"peer":             {seconds: stats.Series{0.01 * n}, tool: 1 << 20},
		}}
		for name, ns := range map[string]float64{packetbench.Sluice: 200, "peer": 50 * n} {
			st.packets.Add(figures.Figure{
				Case: "IPv4, blocked, new", Subject: name, Quantity: packetbench.Added, Unit: "ns", Samples: stats.Series{ns, ns, ns},
			})
		}
		s.steps = append(s.steps, st)
	}
	return s
}

func TestSection(t *testing.T) {
	s := two()
	s.leave("peer", 100_000, "a load would take about 70 s, by what 10,000 took")
	s.leave("peer", 1_000_000, "said before")
	section := s.section()
	text := strings.Join(section.Text, "\n")
	for _, want := range []string{
		"added to a packet that is blocked, new grows with the prefixes (in brackets, how many times more of them): sluice 1× (10×), peer 10× (10×)",
		"time to load grows with the prefixes (in brackets, how many times more of them): sluice 1× (10×), peer 10× (10×)",
		"peer is left out from 100,000 on: a load would take about 70 s, by what 10,000 took",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "said before") || len(s.report.Warnings) != 1 {
		t.Errorf("a side is left out once: %q, %q", text, s.report.Warnings)
	}
	charts := map[string]figures.Chart{}
	for _, c := range section.Charts {
		charts[c.Title] = c
		if !c.X.Log || !c.Y.Log {
			t.Errorf("%s: what grows from 1k to 1M has logarithmic axes", c.Title)
		}
	}
	if c := charts["added to a packet that is blocked, new"]; len(c.Lines) != 2 || len(c.Lines[1].Points) != 2 || c.Lines[1].Points[1].X != 10_000 || c.Lines[1].Points[1].Y != 500 {
		t.Errorf("drawn: %+v", c)
	}
	// What is not known has a dash and no line.
	for _, q := range []string{kernel, busy} {
		if c := charts[q]; len(c.Lines) != 1 {
			t.Errorf("%s has %d lines, want sluice's alone", q, len(c.Lines))
		}
	}
	for _, f := range section.Figures {
		if (f.Quantity == kernel || f.Quantity == busy) && f.Subject == "peer" && f.Note != "–" {
			t.Errorf("what is not known says %q", f.Note)
		}
	}
}

// A side is left out by what it took before, Sluice by loads alone.
func TestTooLong(t *testing.T) {
	for _, tc := range []struct {
		name, side string
		change     func(*series)
		want       string
	}{
		{"nothing is long", "peer", func(*series) {}, ""},
		{"a load", "peer", func(s *series) { s.last("peer", loads{seconds: stats.Series{7}}) }, "a load would take about 70 s, by what 10,000 took"},
		{"a load that is just short enough", "peer", func(s *series) { s.last("peer", loads{seconds: stats.Series{6}}) }, ""},
		{"memory", "peer", func(s *series) { s.last("peer", loads{seconds: stats.Series{1}, tool: 1 << 50}) }, "MiB, by what 10,000 took"},
		{"a packet", "peer", func(s *series) { s.Patience = 100 * time.Millisecond }, "a load would take about 1 s, by what 10,000 took"},
		{"Sluice is patient with packets", packetbench.Sluice, func(s *series) { s.Patience = time.Second }, ""},
		{"the first step is always tried", "peer", func(s *series) { s.Patience, s.steps = 0, nil }, ""},
		{"a side without figures", "nobody", func(s *series) { s.Patience = 0 }, ""},
	} {
		s := two()
		tc.change(s)
		if got := s.tooLong(tc.side, 100_000); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	s := two()
	s.last("peer", loads{seconds: stats.Series{0.001}})
	s.Patience = 200 * time.Millisecond
	if got, want := s.tooLong("peer", 100_000), "a packet would pay about 5 µs (IPv4, blocked, new), and all 65,536 of them 0.328 s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Where Sluice itself would take too long, nothing more is measured, and nothing is said
// about the others.
func TestOver(t *testing.T) {
	s := two()
	s.Steps = []int{100_000, 1_000_000}
	s.last(packetbench.Sluice, loads{seconds: stats.Series{7}})
	s.last("peer", loads{seconds: stats.Series{7}})
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
	if want := "sluice is left out from 100,000 prefixes on: a load would take about 70 s, by what 10,000 took"; len(s.report.Warnings) != 1 || s.report.Warnings[0] != want {
		t.Errorf("warnings %q, want %q alone", s.report.Warnings, want)
	}
}

func (s *series) last(name string, l loads) { s.steps[len(s.steps)-1].loads[name] = l }

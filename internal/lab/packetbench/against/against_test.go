package against

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/packetbench"
	"sluice/internal/lab/peers"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
)

// Of what is added there is a ratio where both add something.
func TestRatio(t *testing.T) {
	figure := func(of ...float64) figures.Figure {
		s := stats.Series(of)
		return figures.Figure{Case: "IPv4, banned", Subject: "peer", Quantity: packetbench.Added, Unit: "ns", Samples: s, Estimate: s.Estimate()}
	}
	for _, tc := range []struct {
		name       string
		peer, ours figures.Figure
		note       string
		median     float64
	}{
		{"three times", figure(300, 330, 360), figure(100, 110, 120), "", 3},
		{"sluice drops early", figure(300, 330, 360), figure(-20, -15, -10), "sluice below zero", 0},
		{"sluice adds nothing", figure(300, 330, 360), figure(-20, 5, 20), "too little", 0},
		{"the other drops early", figure(-20, -15, -10), figure(100, 110, 120), "below zero", 0},
		{"the other adds nothing", figure(-20, 5, 20), figure(100, 110, 120), "next to none", 0},
		{"the other means something else", figures.Figure{Note: "otherwise"}, figure(100, 110, 120), "otherwise", 0},
	} {
		got := ratio(tc.peer, tc.ours)
		if got.Note != tc.note || (len(got.Samples) > 0) != (tc.note == "") || tc.note == "" && got.Samples.Estimate().Median != tc.median {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}

// The ratios are before what they are made of, and are not said twice.
func TestTell(t *testing.T) {
	s := &Sides{chosen: []peers.Peer{{Name: "peer", About: "rules by hand"}, {Name: "absent"}}, took: map[string]time.Duration{"peer": time.Second}, missing: []string{"other is left out: no program"}}
	measured := figures.Section{Name: "packet"}
	for _, f := range []figures.Figure{
		{Subject: packetbench.Sluice, Quantity: packetbench.Added, Samples: stats.Series{100, 100, 100}},
		{Subject: "peer", Quantity: packetbench.Added, Samples: stats.Series{200, 200, 200}},
		{Subject: "peer", Quantity: packetbench.Ratio, Samples: stats.Series{1.5, 1.5, 1.5}},
	} {
		f.Case, f.Unit = "IPv4, banned", "ns"
		measured.Add(f)
	}
	r := &figures.Report{Sections: []figures.Section{measured, {Name: "traffic"}}}
	s.Tell(r)
	if len(r.Sections) != 3 || r.Sections[0].Name != "against" || r.Sections[1].Name != "packet" {
		t.Fatalf("sections: %+v", r.Sections)
	}
	var said []string
	for _, f := range r.Sections[0].Figures {
		said = append(said, f.Subject+": "+f.Quantity)
	}
	if got, want := strings.Join(said, "\n"), "peer: "+OfAdded+"\npeer: "+OfWhole+"\npeer: "+Loading; got != want {
		t.Errorf("said:\n%s\nwant:\n%s", got, want)
	}
	if text := strings.Join(r.Sections[0].Text, "\n"); !strings.Contains(text, "peer: rules by hand") || strings.Contains(text, "absent") {
		t.Errorf("said of the peers: %s", text)
	}
	if n := len(r.Sections[1].Figures); n != 2 || len(r.Warnings) != 1 {
		t.Errorf("%d figures are left behind the ratios, and %d warnings", n, len(r.Warnings))
	}
}

// A file of the user's that no program can load ends the run. One that one of them
// can is left out with the others.
func TestFileThatCannotBeLoaded(t *testing.T) {
	measure.Require(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	net := testnet.New(t)
	l, err := measure.NewLab(net, "files")
	if err != nil {
		t.Fatal(err)
	}
	load := func(file string) (out []error) {
		s, err := Choose([]string{file}, Patience)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.chosen {
			out = append(out, s.load(t.Context(), p, l))
		}
		return out
	}
	var end *packetbench.EndError
	for _, err := range load(write("wrong.nft", "table inet {")) {
		if !errors.As(err, &end) || strings.Contains(err.Error(), "\n") {
			t.Errorf("a file that nft cannot read gave %v", err)
		}
	}
	errs := load(write("wrong.rules", "*filter\n-A INPUT --nonsense\nCOMMIT\n"))
	for i, err := range errs {
		if last := i == len(errs)-1; err == nil || errors.As(err, &end) != last {
			t.Errorf("program %d of %d gave %v", i+1, len(errs), err)
		}
	}
	for _, err := range load(write("right.rules", "*filter\n-A INPUT -s 192.0.2.1 -j DROP\nCOMMIT\n")) {
		if err != nil {
			t.Error(err)
		}
	}
}

package kernelbench

import (
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
	"sluice/internal/system/host"
)

func report(kernel string, bare, ours float64) *figures.Report {
	s := figures.Section{Name: "lists", Title: "Lists", Text: []string{"the same in all", "of " + kernel}}
	add := func(row string, samples ...float64) {
		s.Add(figures.Figure{Case: row, Subject: kernel, Quantity: "banned", Unit: "instructions", Samples: samples})
	}
	add(bareLayout, bare, bare, bare)
	add("sluice", ours, ours, ours)
	s.Add(figures.Figure{Case: "ipset", Subject: kernel, Quantity: "banned", Unit: "instructions", Note: "left out"})
	return &figures.Report{Machine: host.Machine{Kernel: kernel, Counted: true}, Sections: []figures.Section{s}, Warnings: []string{"the same warning"}}
}

func TestMerge(t *testing.T) {
	if r := Merge([]*figures.Report{report("6.1", 1000, 100), report("6.1", 900, 90)}); r.Machine.Kernel != "6.1" {
		t.Errorf("two reports of one kernel are of %s", r.Machine.Kernel)
	}
	r := Merge([]*figures.Report{report("6.1", 1000, 100), report("6.12", 900, 90)})
	if len(r.Sections) != 1 || len(r.Warnings) != 1 || r.Machine.Kernel != "6.1, 6.12" {
		t.Fatalf("%d sections, %q, %s", len(r.Sections), r.Warnings, r.Machine.Kernel)
	}
	if got := strings.Join(r.Sections[0].Text, "; "); got != "the same in all; of 6.1; of 6.12" {
		t.Error(got)
	}
	tables := r.Sections[0].Tables()
	if len(tables) != 1 || strings.Join(tables[0].Subjects, " ") != "6.1 6.12" || strings.Join(tables[0].Cases, ",") != bareLayout+",sluice,ipset" {
		t.Fatalf("%+v", tables)
	}
	if got := tables[0].Cells[[2]string{"sluice", "6.12"}].Estimate.Median; got != 90 {
		t.Errorf("%g", got)
	}
}

func TestAgree(t *testing.T) {
	a, err := Agree(report("6.1", 1000, 100), report("6.1", 1000, 100))
	if err != nil || a.Worst != 0 || a.Figures != 2 {
		t.Errorf("the same: %+v, %v", a, err)
	}
	// ten instructions of what is added, in a packet of 1,100
	a, err = Agree(report("6.1", 1000, 100), report("6.1", 1000, 110))
	if err != nil || a.Worst < 0.009 || a.Worst > 0.0092 || !strings.Contains(a.Which, "sluice") {
		t.Errorf("ten of 1,100: %+v, %v", a, err)
	}
	if a, err = Agree(report("6.1", 1000, 100), report("6.1", 1050, 100)); err != nil || a.Worst < 0.049 || !strings.Contains(a.Which, bareLayout) {
		t.Errorf("the bare stack: %+v, %v", a, err)
	}
	if a, err = Agree(report("6.1", 1000, 0), report("6.1", 1000, 0)); err != nil || a.Worst != 0 {
		t.Errorf("nothing is added: %+v, %v", a, err)
	}
}

// What limits add is compared on the scale of the base chain without them.
func TestAgreeOfLimits(t *testing.T) {
	of := func(more float64) *figures.Report {
		s := figures.Section{Name: "limits"}
		s.Add(figures.Figure{Case: unlimitedRow, Subject: "6.1", Unit: "instructions", Samples: stats.Series{400}})
		s.Add(figures.Figure{Case: limitedPolicies[1].row, Subject: "6.1", Unit: "instructions", Samples: stats.Series{more}})
		return &figures.Report{Sections: []figures.Section{s}}
	}
	if a, err := Agree(of(10), of(14.1)); err != nil || a.Worst < 0.0099 || a.Worst > 0.0101 {
		t.Errorf("four of 410: %+v, %v", a, err)
	}
}

// A figure that only one run has is no agreement.
func TestAgreeOfOthers(t *testing.T) {
	whole := report("6.1", 1000, 100)
	fewer, renamed, lacking, empty := report("6.1", 1000, 100), report("6.1", 1000, 100), report("6.1", 1000, 100), report("6.1", 1000, 100)
	fewer.Sections[0].Figures = fewer.Sections[0].Figures[:2]
	renamed.Sections[0].Figures[1].Case = "other"
	lacking.Sections[0].Name = "forward"
	empty.Sections[0].Figures[1].Samples, empty.Sections[0].Figures[1].Estimate = nil, stats.Estimate{}
	for name, other := range map[string]*figures.Report{"fewer": fewer, "renamed": renamed, "another section": lacking, "without samples": empty} {
		if a, err := Agree(whole, other); err == nil {
			t.Errorf("%s: %+v", name, a)
		}
		if a, err := Agree(other, whole); err == nil {
			t.Errorf("%s, the other way round: %+v", name, a)
		}
	}
	if a, err := Agree(report("6.1", 1000, 100), report("6.12", 1000, 100)); err == nil {
		t.Errorf("of two kernels: %+v", a)
	}
}

// A list that could be written as a shorter one would measure that.
func TestBannedAreNoNeighbours(t *testing.T) {
	var set addrset.Builder
	for _, a := range banned() {
		set.AddPrefix(netip.PrefixFrom(a, a.BitLen()))
	}
	if n := set.Set().Len4(); n != bans {
		t.Errorf("%d addresses are %d ranges", bans, n)
	}
}

func TestShort(t *testing.T) {
	for release, want := range map[string]string{"6.12.117+deb12-cloud-amd64": "6.12", "6.1.0-9-cloud-amd64": "6.1", "7.1": "7.1", "strange": "strange"} {
		if got := Short(release); got != want {
			t.Errorf("%s: %s", release, got)
		}
	}
}

func TestNoSection(t *testing.T) {
	if _, err := Run(t.Context(), Options{Sections: []string{"lists", "other"}}); err == nil || !strings.Contains(err.Error(), `no section is called "other"`) {
		t.Errorf("%v", err)
	}
}

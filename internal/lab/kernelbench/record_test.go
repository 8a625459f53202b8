package kernelbench

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/packetbench"
	"sluice/internal/lab/stats"
	"sluice/internal/system/host"
)

// run is a report of the examples in which Sluice adds so much to one packet and half
// of it to another, and A/A differs by so much.
func run(adds, same float64) *figures.Report {
	s := figures.Section{Name: "examples"}
	add := func(row, packet, unit string, of float64) {
		s.Add(figures.Figure{Case: row, Subject: "6.12", Quantity: packet, Unit: unit, Samples: stats.Series{of - 1, of, of + 1}})
	}
	for i, packet := range []string{"a: IPv4, established", "a: IPv6, established"} {
		ours := adds / float64(i+1)
		add(bareLayout, packet, "instructions", 2500)
		add(packetbench.Sluice, packet, "instructions", ours)
		add(uncounted, packet, "instructions", ours-100)
		add(byHand[0], packet, "instructions", 1000)
		add(byHand[1], packet, "instructions", -100)
		s.Add(figures.Figure{Case: packetbench.Sluice, Subject: "6.12", Quantity: packet + sameSuffix, Unit: ratioUnit, Samples: stats.Series{same, same, same}})
	}
	return &figures.Report{Machine: host.Machine{Kernel: "6.12.1", Counted: true}, Sections: []figures.Section{s}}
}

func TestRecordIsReadAsItWasWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record.json")
	if err := RecordOf(run(2000, 1.001)).Keep(file); err != nil {
		t.Fatal(err)
	}
	got, err := LoadRecord(file)
	if err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(t.TempDir(), "again.json")
	if err := got.Save(again); err != nil {
		t.Fatal(err)
	}
	first, second := read(t, file), read(t, again)
	if first != second || !strings.Contains(first, `"added":{"ipset (iptables-nft)":[-101,-100,-99],"nftables-set":[999,1000,1001],"sluice":[1999,2000,2001],"sluice, not counting":[1899,1900,1901]}`) {
		t.Errorf("%s\nthen %s", first, second)
	}
	// another section goes beside, the same one in its place
	other := *RecordOf(run(3000, 1))
	was := other.Date
	other.Date = "2030-01-01"
	for i := range other.Packets {
		other.Packets[i].Section = "lists"
	}
	for range 2 {
		if err := other.Keep(file); err != nil {
			t.Fatal(err)
		}
	}
	if got, err = LoadRecord(file); err != nil || len(got.Packets) != 4 || got.Packets[0].Section != "examples" || got.Date != was {
		t.Errorf("%+v, %v", got, err)
	}
	other.Kernel = "6.12.2" // nothing is left of another kernel
	if err := other.Keep(file); err != nil {
		t.Fatal(err)
	}
	if got, err = LoadRecord(file); err != nil || len(got.Packets) != 2 || got.Date != other.Date {
		t.Errorf("%+v, %v", got, err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestHold(t *testing.T) {
	record := RecordOf(run(2000, 1.001))
	for _, c := range []struct {
		adds, same float64
		costlier   int
	}{
		{2000, 1, 0},
		{1000, 1, 0},     // cheaper
		{2088, 1, 0},     // by less than 2 % of 4,500 and of 3,500
		{2092, 1, 1},     // of 4,500 by more
		{2150, 1, 2},     // and of both
		{2150, 0.98, 0},  // which A/A is more than a third of
		{2200, 1.012, 1}, // and here of one of them
	} {
		costlier, strangers := record.Hold(RecordOf(run(c.adds, c.same)))
		if len(costlier) != c.costlier || len(strangers) > 0 {
			t.Errorf("%+v: %v, %q", c, costlier, strangers)
		}
	}
	fewer := *record
	fewer.Packets = fewer.Packets[:1]
	for _, both := range [][2]*Record{{&fewer, record}, {record, &fewer}} {
		if _, strangers := both[0].Hold(both[1]); len(strangers) != 1 || !strings.Contains(strangers[0], "a: IPv6, established") {
			t.Errorf("%q", strangers)
		}
	}
	// a section that was not measured is not missed
	lists := *record
	lists.Packets = slices.Concat(record.Packets, []Packet{{Section: "lists", Name: "IPv4, banned"}})
	if _, strangers := lists.Hold(record); len(strangers) > 0 {
		t.Errorf("%q", strangers)
	}
}

func TestTables(t *testing.T) {
	record := RecordOf(run(2000, 1))
	page := "before\n<!-- figures: examples -->\nold\n" + endMark + "after\n"
	got, err := write(page, record.parts())
	if err != nil || !strings.HasPrefix(got, "before\n<!-- figures: examples -->\n") || !strings.HasSuffix(got, endMark+"after\n") || strings.Contains(got, "old") {
		t.Fatalf("%v\n%s", err, got)
	}
	if again, err := write(got, record.parts()); err != nil || again != got {
		t.Errorf("%v\n%s", err, again)
	}
	if row := "| a: IPv4, established | 2,500 | 2,000 | 1,900 | 1,000 | −100 | 1.88* |\n"; !strings.Contains(got, row) {
		t.Errorf("no %s in\n%s", row, got)
	}
	// what was not measured stays
	lists := "<!-- figures: lists -->\nold\n" + endMark
	if got, err := write(lists, record.parts()); err != nil || got != lists {
		t.Errorf("%v\n%s", err, got)
	}
	for _, name := range []string{"blocked", "allowed"} {
		p := record.Packets[0]
		p.Section, p.Name = "layouts", "IPv4, "+name+", new"
		record.Packets = append(record.Packets, p)
		p.Section = "lists"
		record.Packets = append(record.Packets, p)
	}
	if got, err := write(lists, record.parts()); err != nil || !strings.Contains(got, "| Sluice | 2,000 | 2,000 / 2,000 |  /  |\n") {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := write("<!-- figures: summary -->\n", record.parts()); err == nil {
		t.Error("figures without an end pass")
	}
}

// The record that the tree keeps holds later runs to something: nowhere does A/A differ by
// so much that a look-up more would pass.
func TestRecordOfTheTreeHasTeeth(t *testing.T) {
	record, err := LoadRecord(filepath.Join("..", "..", "..", RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadDir(filepath.Join("..", "..", "..", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range examples {
		if _, err := os.Stat(filepath.Join("..", "..", "..", "examples", e.Name(), "policy.yaml")); err != nil {
			continue // it is not a policy
		}
		if !slices.ContainsFunc(record.Packets, func(p Packet) bool { return strings.HasPrefix(p.Name, e.Name()+": ") }) {
			t.Errorf("nothing of %s is on record", e.Name())
		}
	}
	for _, p := range record.Packets {
		if p.Section != "examples" {
			continue
		}
		const most = 0.04 // of the packet
		costlier := *record
		planted := p
		cost := p.Added[packetbench.Sluice]
		cost.Median += most * (p.Bare.Median + max(0, cost.Median))
		planted.Added = map[string]Cost{packetbench.Sluice: cost}
		costlier.Packets = []Packet{planted}
		if found, _ := record.Hold(&costlier); len(found) != 1 {
			t.Errorf("%s: a packet that is costlier by %g %% passes", p.Name, 100*most)
		}
	}
}

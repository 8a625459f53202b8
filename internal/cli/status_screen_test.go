package cli

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/engine/apply"
	"sluice/internal/program"
	"sluice/internal/system/kernel/conntrack"
)

// full is a status that has so many of all that there may be several of.
func full(many int) *apply.Status {
	now := time.Now()
	s := &apply.Status{
		Condition: apply.Running, Generation: &apply.Generation{Number: 7, Policy: "/etc/sluice/policy.yaml", By: apply.Author{User: "alice", From: "198.51.100.7", Reason: "the new shop"}},
		Since: now, Boot: 6, Proved: now, Pending: &apply.Pending{Previous: 6, Until: now, Deadline: 1 << 62},
		Edited: []string{"/etc/sluice/policy.yaml"}, OldCountries: now.Add(-9999 * time.Hour), Bans: &apply.BanCount{Command: 50000, Limit: 12}, Allows: 3,
		Connections: &conntrack.Table{Entries: 900, Most: 1000, Dropped: 5, Failed: 2, Evicted: 1},
	}
	for i := range many {
		at := netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})
		s.Due = append(s.Due, apply.Due{List: fmt.Sprint("scanners", i), Of: now, At: now, By: apply.ByAgent, Failed: "the server answers 404\nhttps://lists.example.net/"})
		s.Drift = append(s.Drift, backend.Difference{Kind: "element", Name: "office", Want: "203.0.113.9"})
		s.Waiting = append(s.Waiting, apply.Waiting{Interface: fmt.Sprint("wg", i)})
		s.Host.Fixed = append(s.Host.Fixed, "10.0.0.1 is new")
		s.Counters = append(s.Counters, apply.Counter{Name: "input_x", Packets: uint64(i % 7), Origin: program.Origin{File: "policy.yaml", Line: i + 1, Text: "allow tcp/7000 from office"}})
		s.Full = append(s.Full, apply.Counter{Packets: 3, Origin: program.Origin{File: "policy.yaml", Line: 3}})
		if i < 5 {
			s.Dropped = append(s.Dropped, apply.Dropped{Time: now, Source: at, Country: "NO", Service: "tcp/3306", File: "policy.yaml", Line: 4})
		}
	}
	return s
}

// labelsOf are what the parts of a status are of, each as often as it comes.
func labelsOf(text string) map[string]int {
	out := map[string]int{}
	for line := range strings.Lines(text) {
		label, _, _ := strings.Cut(line, " ")
		out[label]++
	}
	return out
}

// Whatever there is, it is one screen.
func TestStatusIsOneScreen(t *testing.T) {
	for _, many := range []int{0, 1, 2, 3, 5, 9, 40, 4000} {
		s := full(many)
		for _, few := range []func(){
			func() {}, func() { s.Due = nil }, func() { s.Drift, s.Full = nil, nil }, func() { s.Counters = s.Counters[:min(len(s.Counters), 3)] }, func() { s.Counters = nil },
			func() { s.EditedUnread = strings.Repeat("x\n", 50) }, func() { s.Pending, s.Lost = nil, "it is damaged" },
		} {
			few()
			text := screenOf(io.Discard, s, "")
			if rows := rowsOf(text); rows > screenRows {
				t.Errorf("%d of each: %d rows:\n%s", many, rows, text)
			}
		}
	}
}

// On a day with much to tell nothing that somebody has to act on is left out.
func TestBusyDayOnOneScreen(t *testing.T) {
	s := full(5)
	s.Waiting, s.Full, s.Host.Fixed = nil, nil, nil
	s.Due = s.Due[:2]
	s.Due[0].Failed, s.Due[1].Failed, s.Drift = "", "", s.Drift[:1]
	text := screenOf(io.Discard, s, "")
	got := labelsOf(text)
	for label, want := range map[string]int{"generation": 1, "since": 1, "proved": 1, "pending": 1, "edited": 1, "old": 1, "due": 1, "drift": 1, "connections": 1, "addresses": 1, "dropped": 1, "hint": 2} {
		if got[label] < want {
			t.Errorf("%s is left out", label)
		}
	}
	if !strings.Contains(text, "more: --all shows them") || rowsOf(text) > screenRows {
		t.Errorf("it is\n%s", text)
	}

	// On a quiet one there is room for the five sources, and for lines of the policy.
	s = &apply.Status{Condition: apply.Running, Generation: s.Generation, Boot: 7, Connections: &conntrack.Table{Most: 1000}, Dropped: s.Dropped, Counters: full(40).Counters}
	text = screenOf(io.Discard, s, "")
	if got := labelsOf(text); got["dropped"] != 5 || !strings.Contains(text, "policy.yaml:7: ") || strings.Contains(text, "policy.yaml:8: ") {
		t.Errorf("it is\n%s", text)
	}
	if rows := rowsOf(text); rows != screenRows {
		t.Errorf("%d rows of %d are used:\n%s", rows, screenRows, text)
	}
}

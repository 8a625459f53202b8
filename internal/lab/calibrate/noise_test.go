package calibrate

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/procfs"

	"sluice/internal/backend/nftables"
	"sluice/internal/lab/stats"
)

// quiet is what the machine of the built-in figures measures.
func quiet() *Measured {
	m := &Measured{Costs: nftables.DefaultCosts(), Series: map[string]stats.Series{}, Same: stats.Series{-1, 0, 1}}
	for _, c := range nftables.Constants() {
		m.Series[c.Name] = slices.Repeat(stats.Series{c.Of(&m.Costs)}, 21)
	}
	return m
}

func TestSettle(t *testing.T) {
	one := func(name string, values ...float64) func(*Measured) {
		return func(m *Measured) { m.Series[name] = values }
	}
	for _, c := range []struct {
		name  string
		with  func(*Measured)
		noise string // "": none
	}{
		{"quiet", func(*Measured) {}, ""},
		{"the same cell differs", func(m *Measured) { m.Same = stats.Series{-40, 0, 30} }, "the same packet differs from itself by -40 to 30 ns"},
		{"others work", func(m *Measured) { m.Others = 0.33 }, "other programs took 33 % of the processors"},
		{"others hardly work", func(m *Measured) { m.Others = 0.05 }, ""},
		{"one constant spreads", one("packet.route-ns", 10, 100, 300), ""},
		{"most constants spread", func(m *Measured) {
			for name, s := range m.Series {
				m.Series[name] = stats.Series{0.1 * s[0], s[0], 3 * s[0]}
			}
		}, "spread by more than 40 %: memory.rule-bytes, "},
		{"a constant is below nothing", one("packet.limit-ns", -3, -2, -1), "packet.limit-ns costs nothing, by what was measured"},
	} {
		m := quiet()
		c.with(m)
		m.settle()
		if got := strings.Join(m.Noise, "\n"); c.noise == "" && got != "" || !strings.Contains(got, c.noise) {
			t.Errorf("%s: noise is %q, want %q", c.name, got, c.noise)
		}
		if constant, err := m.Costs.Check(); err != nil {
			t.Errorf("%s: what is settled cannot be stored: %s: %v", c.name, constant.Name, err)
		}
	}
}

// TestSettleRises: medians of a curve that fall are noise, and no file may have them.
func TestSettleRises(t *testing.T) {
	m := quiet()
	m.Series["lookup.interval-set.of-4096-ns"] = stats.Series{5}
	m.settle()
	if in := m.Costs.Lookup.Interval; in.Of4096 != in.Of256 || in.Of16384 <= in.Of4096 {
		t.Errorf("settled to %+v", in)
	}
}

func TestSettleRounds(t *testing.T) {
	m := quiet()
	m.Series["packet.route-ns"] = stats.Series{123.456}
	m.settle()
	if got := m.Costs.Packet.Route; got != 123 {
		t.Errorf("123.456 is stored as %v", got)
	}
}

func TestOthers(t *testing.T) {
	if seconds := programTime(procfs.CPUStat{User: 10, Nice: 2, System: 3, Idle: 999, Iowait: 0.5, IRQ: 0.07, SoftIRQ: 8, Steal: 1}); seconds != 16 {
		t.Errorf("%v seconds, want 16", seconds)
	}
	before := processorTimes{all: 100, own: 50, processors: 2}
	after := before
	after.at = before.at.Add(10e9)
	after.all, after.own = 115, 60
	if got := after.others(before); math.Abs(got-0.25) > 1e-9 {
		t.Errorf("others took %v, want a quarter of 2 processors", got)
	}
	after.own = 80
	if got := after.others(before); got != 0 {
		t.Errorf("others took %v where all was ours", got)
	}
	if got := before.others(before); got != 0 {
		t.Errorf("others took %v in no time", got)
	}
	if now := timesNow(); now.all <= 0 || now.processors < 1 || now.own <= 0 {
		t.Errorf("of this machine it is known %+v", now)
	}
}

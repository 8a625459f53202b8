package cli

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/system/kernel/conntrack"
)

func TestShort(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", 2: "2", 0.25: "0.2", 9.94: "9.9", 9.96: "10", 999.6: "1000", 9999: "9999", 10000: "10.0k", 99960: "100k",
		123456: "123k", 999600: "1.00M", 1234567: "1.23M", 5e9: "5.00G", 7e14: "700T", 7e16: "70000T",
	} {
		if got := short(n); got != want {
			t.Errorf("%v: %s, want %s", n, got, want)
		}
	}
}

func TestCutTo(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"", 3, ""}, {"abc", 1, "…"}, {"日本", 4, "日本"}, {"日本", 3, "日…"}, {"日本語", 5, "日本…"}, {"a日本", 4, "a日…"},
	} {
		if got := cutTo(c.text, c.columns); got != c.want {
			t.Errorf("%q in %d: %q, want %q", c.text, c.columns, got, c.want)
		}
	}
}

// TestTopOfManyAndHostile: whatever names there are and how large figures get, no line is
// longer than a terminal of 80 columns or steers it.
func TestTopOfManyAndHostile(t *testing.T) {
	look := hostileTop()
	var out bytes.Buffer
	printTop(&out, look)
	text := out.String()
	for line := range strings.Lines(text) {
		if n := columnsOf(strings.TrimSuffix(line, "\n")); n > columns {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	if strings.ContainsAny(text, "\x1b\r\t\u202e") {
		t.Errorf("it steers the terminal: %q", text)
	}
	for _, want := range []string{"and 80 more: --json has them", `drop \u001b[2J`, "and 61 more"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// hostileTop is a look at a host of many lines and processors, with names that steer.
func hostileTop() *engine.Top {
	began := 1e12
	look := &engine.Top{
		Time: time.Now(), Seconds: 2, Condition: apply.Running, Generation: math.MaxInt32,
		Verdicts: []engine.TopVerdict{{Verdict: policy.Allow, Flow: engine.Flow{PacketRate: 1e12, ByteRate: 1e15}}, {Verdict: policy.Drop}, {Verdict: policy.Reject}},
		Table:    &engine.TopTable{Table: &conntrack.Table{Entries: math.MaxUint64, Most: 1 << 40, Dropped: math.MaxUint64}, Began: &began},
		Drops:    []engine.TopDrop{{Function: "a\nb", Reason: strings.Repeat("R\x1b]0;x\a", 90), Packets: math.MaxUint64, Rate: 1e30}},
	}
	for i := range 100 {
		look.Lines = append(look.Lines, engine.TopLine{Origin: program.Origin{File: "p\r.yaml", Line: i + 1}, Text: "drop \x1b[2J\u202e日本" + strings.Repeat("語", i), Flow: engine.Flow{Packets: math.MaxUint64 >> i}})
	}
	for i := range 64 {
		look.Processors = append(look.Processors, engine.TopProcessor{Number: i, Softirq: 1, Busy: 1})
	}
	return look
}

// columnsOf is how many columns a line takes.
func columnsOf(line string) (n int) {
	for line != "" {
		cut := cutTo(line, n+1)
		if cut == line {
			return n + 1
		}
		n++
	}
	return n
}

func TestTopSort(t *testing.T) {
	look := &engine.Top{Lines: []engine.TopLine{
		{Text: "a", Flow: engine.Flow{Packets: 5, Bytes: 9}},
		{Text: "b", Flow: engine.Flow{Packets: 7, Bytes: 8, PacketRate: 1}},
		{Text: "c", Flow: engine.Flow{Packets: 6, Bytes: 7, PacketRate: 1}},
	}}
	for column, want := range []string{"bca", "bca", "bca", "abc"} {
		table := topTables(look)[0]
		table.sort(column)
		got := ""
		for _, r := range table.rows {
			got += r.cells[4]
		}
		if got != want {
			t.Errorf("by %s: %s, want %s", table.heads[column], got, want)
		}
	}
}

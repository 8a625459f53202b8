package cli

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/prove/query"
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
		if n := columnsIn(strings.TrimSuffix(line, "\n")); n > columns {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	if strings.ContainsAny(text, "\x1b\r\t\u202e") {
		t.Errorf("it steers the terminal: %q", text)
	}
	for _, want := range []string{"and 80 more: --json shows them", `drop \u001b[2J`, "and 61 more"} {
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

// TestTopScreenFits: on a screen of any size no row is longer than it is, there are no more
// rows than it has, and nothing steers it, whatever was typed.
func TestTopScreenFits(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {200, 60}, {40, 10}, {20, 5}, {7, 2}, {1, 1}} {
		v := topView{of: "a\x1bb"}
		for _, key := range []string{"", "s", keyTab, keyDown, keyPageDown, keyTab, keyTab, "s", "/", "日", "1", keyEnter, keyEscape, keyBackTab, "p", keyEnter, keyDown, "q"} {
			_, asked := v.key(key)
			if asked != nil {
				v.detail = &topDetail{lines: wrapped(strings.Repeat("a \x1b[2J日本 ", 90), size[0])}
			}
			rows := v.screen(size[0], size[1])
			if len(rows) > size[1] {
				t.Errorf("%v, %q: %d rows", size, key, len(rows))
			}
			for _, row := range rows {
				text := ""
				for _, span := range row {
					text += span.text
				}
				if columnsIn(text) > size[0] || strings.ContainsAny(text, "\x1b\r\t\n\u202e") {
					t.Errorf("%v, %q: %q", size, key, text)
				}
			}
			v.last = hostileTop()
		}
	}
}

// TestTopKeys: rows are marked, sorted, filtered and asked about, and a look stands still.
func TestTopKeys(t *testing.T) {
	v := topView{last: hostileTop()}
	press := func(keys ...string) (asked *topRow) {
		for _, key := range keys {
			_, asked = v.key(key)
		}
		return asked
	}
	if r := press(keyDown, keyDown, keyUp, keyEnter); r == nil || !strings.Contains(r.cells[4], "yaml:2 ") {
		t.Errorf("asked about %+v", r)
	}
	if press("/", "Y", "a", "m", "x", keyErase, "l", ":", "7", keyEnter); len(v.tables()[0].rows) != 11 || v.typing { // 7, 70 to 79
		t.Errorf("filter %q: %d rows", v.filter, len(v.tables()[0].rows))
	}
	if r := press(keyEnter); r == nil || !strings.Contains(r.cells[4], "yaml:7 ") {
		t.Errorf("asked about %+v", r)
	}
	press(keyEscape, "p")
	held := v.shown()
	v.last = hostileTop()
	if v.shown() != held || press(" ") != nil || v.shown() == held {
		t.Error("it does not stand still, or for ever")
	}
	v.last.Sources = &engine.TopSources{Countries: []engine.TopCountry{{Code: "NO", Name: "Norway"}}}
	if r := press(keyTab, keyTab, keyEnter); r != nil || v.at != 1 || v.filter != "NO" {
		t.Errorf("of a country: table %d, filter %q", v.at, v.filter)
	}
	for _, key := range []string{"q", keyInterrupt} {
		if end, _ := v.key(key); !end {
			t.Errorf("%s does not end it", key)
		}
	}
}

func TestWordsOfLine(t *testing.T) {
	for text, want := range map[string]query.Words{
		"allow [http, tcp/7] from [a, b] in wan log \"x from y\"": {Service: "[http, tcp/7]", From: "[a, b]", In: "wan"},
		"drop any from not a to 192.0.2.1 out lan":                {Service: "any", To: "192.0.2.1", Out: "lan"},
		"default: drop": {}, "": {},
	} {
		if got := wordsOfLine(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestWrapped(t *testing.T) {
	for text, want := range map[string][]string{
		"abc de fg\nx": {"abc de", "    fg", "x"},
		"abcdefghijkl": {"abcdefg", "    hij", "    kl"},
		"日本語日本":        {"日本語", "    日", "    本"},
		"a\tb\x1b":     {`a\u0009`, `    b\u`, "    001", "    b"},
		"":             nil,
	} {
		if got := wrapped(text, 7); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

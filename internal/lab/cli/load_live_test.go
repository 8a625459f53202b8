package cli

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/lab/load"
)

func loadTick(second, answered int, p99 time.Duration) load.Tick {
	t := load.Tick{Interval: load.Interval{
		From: time.Duration(second) * time.Second, To: time.Duration(second+1) * time.Second, Answered: uint64(answered), Open: 5000,
	}}
	if p99 > 0 {
		t.Latency = load.Percentiles{Count: int64(answered), P99: p99}
	}
	return t
}

// The chart has the whole time on its axis from the start, keeps its size, and
// shows a table that fills: requests fall to nothing, and latency has a gap there.
func TestDrawLoad(t *testing.T) {
	var ticks []load.Tick
	for second, answered := range []int{6000, 6200, 6100, 0, 0, 90} {
		p99 := time.Duration(0)
		if answered > 0 {
			p99 = time.Duration(20000/answered) * 10 * time.Millisecond
		}
		ticks = append(ticks, loadTick(second, answered, p99))
	}
	ticks[5].Errors = map[load.Kind]uint64{load.Timeout: 4000}
	want := `requests/s
   6,200 ┼───────────────────────╮
   5,314 ┤                       │
   4,429 ┤                       │
   3,543 ┤                       │
   2,657 ┤                       ╰╮
   1,771 ┤                        │
     886 ┤                        │
       0 ┤                        ╰────────────────────────╴
99 % of latencies below, ms
   2,220 ┤                                        ╶────────╴
   1,903 ┤
   1,586 ┤
   1,269 ┤
     951 ┤
     634 ┤
     317 ┤
       0 ┼────────────────────────╴
6s of 10s: 90 requests/s, 99 % below 2.22 s, 5,000 open, 4,000 time-out`
	got := drawLoad(ticks, 10*time.Second, 92, 21)
	for i := range got {
		got[i] = strings.TrimRight(got[i], " ")
	}
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	for n := range ticks {
		if lines := drawLoad(ticks[:n+1], 10*time.Second, 92, 21); len(lines) != len(got) {
			t.Errorf("after %d s: %d lines, want %d", n+1, len(lines), len(got))
		}
	}
	for _, size := range [][2]int{{200, 60}, {79, 23}, {40, 12}, {30, 8}, {20, 5}, {20, 1}} {
		lines := drawLoad(ticks, 10*time.Second, size[0], size[1])
		if len(lines) > max(1, size[1]) {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, line := range lines {
			if len([]rune(line)) > size[0] {
				t.Errorf("%v: too wide: %q", size, line)
			}
		}
	}
}

// writes counts the writes to a terminal.
type writes []string

func (w *writes) Write(p []byte) (int, error) {
	*w = append(*w, string(p))
	return len(p), nil
}

// Each drawing is one write that begins where the last one did, and clears no
// line before it writes it.
func TestLoadViewDoesNotFlicker(t *testing.T) {
	var w writes
	v := &loadView{w: &w, total: 10 * time.Second, size: func() (int, int, error) { return 80, 24, nil }}
	v.draw([]string{"a", "b", "c"})
	v.draw([]string{"d", "e"})
	v.done()
	want := []string{
		"\x1b[?2026h\x1b[?25l\ra\x1b[K\n\rb\x1b[K\n\rc\x1b[K\x1b[J\x1b[?2026l",
		"\x1b[?2026h\x1b[2A\rd\x1b[K\n\re\x1b[K\x1b[J\x1b[?2026l",
		"\x1b[?25h\n\n",
	}
	if len(w) != 3 || w[0] != want[0] || w[1] != want[1] || w[2] != want[2] {
		t.Errorf("got %q", []string(w))
	}
	w = nil
	v = &loadView{w: &w, total: 10 * time.Second, size: v.size}
	for n := range 5 {
		v.tick(loadTick(n, 1000, time.Millisecond))
	}
	if len(w) != 1 {
		t.Errorf("%d drawings within %s, want one", len(w), redraw)
	}
	last := loadTick(9, 1000, time.Millisecond)
	last.Done = 1
	if v.tick(last); len(w) != 2 {
		t.Error("the end is not drawn")
	}
}

// Without a terminal there is a line a second, however fine the intervals are.
func TestLoadLines(t *testing.T) {
	var w writes
	v := &loadView{w: &w, total: 2 * time.Second}
	for n := range 20 {
		tick := loadTick(0, 100, time.Millisecond)
		tick.From, tick.To = time.Duration(n)*100*time.Millisecond, time.Duration(n+1)*100*time.Millisecond
		v.tick(tick)
	}
	if len(w) != 3 || w[1] != "1s of 2s: 1,000 requests/s, 99 % below 1 ms, 5,000 open\n" {
		t.Errorf("got %q", []string(w))
	}
}

// FuzzLoadInterval reads any interval: what is accepted takes some time, and is
// read again as the same.
func FuzzLoadInterval(f *testing.F) {
	for _, text := range []string{"1s", "100ms", "0ms", "1h30m", "-1ms", "1e9ms", "ms", "1.5ms", "9999999999999999ms", "0s", "1d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var every, again shortTime
		if every.Set(text) != nil {
			return
		}
		if time.Duration(every) < time.Millisecond {
			t.Fatalf("%q: %v", text, time.Duration(every))
		}
		if s := every.String(); time.Duration(every)%time.Millisecond == 0 && time.Duration(every) < time.Second && (again.Set(s) != nil || again != every) {
			t.Fatalf("%q: written as %q", text, s)
		}
	})
}

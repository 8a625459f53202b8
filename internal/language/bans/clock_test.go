package bans_test

import (
	"testing"
	"time"

	"sluice/internal/language/bans"
)

// A ban of this boot ends when its time is up by the clock of the boot, however the wall
// clock is set; of another boot the last that was known there of the wall clock counts.
func TestJournalOutlivesTheClock(t *testing.T) {
	for name, c := range map[string]struct {
		write []string
		moves []bans.Moment // before each of them; then that of reading
		want  time.Duration // that the ban has then; 0: none
	}{
		"no jump":          {[]string{"ban"}, []bans.Moment{{Boot: "a"}, {Wall: at(20), Boot: "a", Up: 20 * time.Minute}}, 40 * time.Minute},
		"forward":          {[]string{"ban"}, []bans.Moment{{Wall: time.Unix(60, 0), Boot: "a", Up: time.Minute}, {Wall: at(20), Boot: "a", Up: 21 * time.Minute}}, 40 * time.Minute},
		"back":             {[]string{"ban"}, []bans.Moment{{Wall: at(5000), Boot: "a"}, {Wall: at(20), Boot: "a", Up: 20 * time.Minute}}, 40 * time.Minute},
		"forward and over": {[]string{"ban"}, []bans.Moment{{Wall: time.Unix(60, 0), Boot: "a"}, {Wall: at(0), Boot: "a", Up: 61 * time.Minute}}, 0},
		"slewed":           {[]string{"ban"}, []bans.Moment{{Wall: at(0), Boot: "a"}, {Wall: at(20).Add(900 * time.Millisecond), Boot: "a", Up: 20 * time.Minute}}, 40*time.Minute - 900*time.Millisecond},
		"another boot":     {[]string{"ban"}, []bans.Moment{{Wall: at(0), Boot: "a", Up: time.Hour}, {Wall: at(20), Boot: "b", Up: time.Second}}, 40 * time.Minute},
		"told the time":    {[]string{"ban", "mark"}, []bans.Moment{{Wall: time.Unix(60, 0), Boot: "a"}, {Wall: at(10), Boot: "a", Up: 10 * time.Minute}, {Wall: at(20), Boot: "b"}}, 40 * time.Minute},
		"never told":       {[]string{"ban"}, []bans.Moment{{Wall: time.Unix(60, 0), Boot: "a"}, {Wall: at(20), Boot: "b"}}, 0},
		"rewritten":        {[]string{"ban", "rewrite"}, []bans.Moment{{Wall: time.Unix(60, 0), Boot: "a"}, {Wall: at(10), Boot: "a", Up: 10 * time.Minute}, {Wall: at(500), Boot: "a", Up: 20 * time.Minute}}, 40 * time.Minute},
		"rewritten late":   {[]string{"ban", "rewrite"}, []bans.Moment{{Wall: at(0), Boot: "a", Up: time.Hour}, {Wall: time.Unix(60, 0), Boot: "b", Up: time.Minute}, {Wall: at(20), Boot: "b", Up: 3 * time.Minute}}, 40 * time.Minute},
	} {
		var now bans.Moment
		j := bans.Open(t.TempDir()).By(func() bans.Moment { return now })
		for i, what := range append(c.write, "read") {
			if now = c.moves[i]; now.Wall.IsZero() {
				now.Wall = at(0)
			}
			var err error
			switch what {
			case "ban":
				one := ban(t, "203.0.113.7", now.Wall.Add(time.Hour), "")
				_, err = j.Append(bans.EntryOf([]bans.Ban{one, ban(t, "203.0.113.8", time.Time{}, "")}, now.Wall, one.By))
			case "mark":
				_, err = j.Append(bans.Entry{Time: now.Wall})
			case "rewrite":
				err = j.Rewrite(read(t, j))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		live := bans.Live(read(t, j).Bans, now.Wall)
		var left time.Duration
		for _, b := range live {
			if !b.Until.IsZero() {
				left = b.Until.Sub(now.Wall)
			}
		}
		if left != c.want || len(live) == 0 {
			t.Errorf("%s: it is banned for %v, want %v", name, left, c.want)
		}
	}
}

// at is minutes behind the start.
func at(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }

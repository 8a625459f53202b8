package trust

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// living is an entry that is fine.
func living(seq int64, kind, what string) Living {
	e := Living{
		Seq: seq, Kind: kind, What: what, Hosts: "role=web and not env=test", Reason: "ssh: <40> bad passwörds", Who: "operator:erika",
		Made: start, Expires: start.Add(time.Hour),
	}
	if kind == LivingAllow || kind == LivingDisallow {
		e.Service = "[http, https]"
	}
	e.ID = LivingID(kind, what, e.Service, e.Hosts)
	return e
}

// sorted are entries as the whole has them.
func sorted(entries ...Living) []Living {
	for i := range entries {
		for j := range i {
			if entries[j].ID > entries[i].ID {
				entries[i], entries[j] = entries[j], entries[i]
			}
		}
	}
	return entries
}

func TestReadBans(t *testing.T) {
	t.Parallel()
	log := Bans{After: 4, Now: start, Entries: []Living{
		living(5, LivingBan, "203.0.113.7"), living(6, LivingAllow, "2001:db8::/48"), living(7, LivingUnban, "203.0.113.7"), living(8, LivingDisallow, "2001:db8::/48"),
	}}
	whole := Bans{Whole: true, Now: start, Entries: sorted(living(2, LivingBan, "203.0.113.0-203.0.113.6"), living(8, LivingAllow, "2001:db8::1"), living(3, LivingBan, "198.51.100.0/24"))}
	part := whole
	part.From, part.To, part.Entries = whole.Entries[0].ID, whole.Entries[2].ID, whole.Entries[1:]
	if LivingID(LivingBan, "203.0.113.7", "", "") != LivingID(LivingUnban, "203.0.113.7", "", "") || LivingID(LivingAllow, "203.0.113.7", "", "") == LivingID(LivingBan, "203.0.113.7", "", "") {
		t.Error("the ID of what is lifted is another one, or an allow has that of a ban")
	}
	for name, b := range map[string]Bans{"log": log, "nothing new": {After: 8, Now: start}, "whole": whole, "no bans": {Whole: true, Now: start}, "part": part} {
		text := must(json.Marshal(b))
		read, err := ReadBans(text, 8)
		ok(t, err)
		if !reflect.DeepEqual(*read, b) {
			t.Errorf("%s: %+v became %+v", name, b, *read)
		}
	}
	entry := func(change func(*Living)) func(*Bans) {
		return func(b *Bans) {
			b.Entries = append([]Living(nil), b.Entries...)
			change(&b.Entries[1])
		}
	}
	renamed := func(change func(*Living)) func(*Bans) { // whose ID is right
		return entry(func(e *Living) {
			change(e)
			e.ID = LivingID(e.Kind, e.What, e.Service, e.Hosts)
		})
	}
	for name, change := range map[string]func(*Bans){
		"a gap":             func(b *Bans) { b.After = 3 },
		"less than it says": func(b *Bans) { b.Entries = b.Entries[:3] },
		"both":              func(b *Bans) { b.Whole = true },
		"a bound of a log":  func(b *Bans) { b.To = "f" },
		"no clock":          func(b *Bans) { b.Now = time.Time{} },
		"before the first":  func(b *Bans) { b.After = -1 },
		"another number":    entry(func(e *Living) { e.Seq = 7 }),
		"another ID":        entry(func(e *Living) { e.ID = log.Entries[0].ID }),
		"no ID":             entry(func(e *Living) { e.ID = "" }),
		"a kind":            renamed(func(e *Living) { e.Kind = "flush" }),
		"no address":        renamed(func(e *Living) { e.What = "DE" }),
		"a prefix as not":   renamed(func(e *Living) { e.What = "2001:db8::1/48" }),
		"a service of bans": renamed(func(e *Living) { e.Kind = LivingBan }),
		"a selector":        renamed(func(e *Living) { e.Hosts = "role=" }),
		"a long service":    renamed(func(e *Living) { e.Service = strings.Repeat("x", maxService+1) }),
		"a long reason":     entry(func(e *Living) { e.Reason = strings.Repeat("x", maxReason+1) }),
		"an escape":         entry(func(e *Living) { e.Reason = "\x1b[2J" }),
		"a line feed":       entry(func(e *Living) { e.Who = "a\nb" }),
		"an end before":     entry(func(e *Living) { e.Expires = e.Made.Add(-1) }),
		"no end":            entry(func(e *Living) { e.Expires = time.Time{} }),
		"eleven years":      entry(func(e *Living) { e.Expires = e.Made.Add(MaxLivingFor + 1) }),
	} {
		b := log
		change(&b)
		if _, err := ReadBans(must(json.Marshal(b)), 8); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*Bans){
		"not in order":        func(b *Bans) { b.Entries = []Living{whole.Entries[1], whole.Entries[0], whole.Entries[2]} },
		"twice":               func(b *Bans) { b.Entries = []Living{whole.Entries[0], whole.Entries[0]} },
		"behind its end":      func(b *Bans) { b.To = whole.Entries[1].ID },
		"before its begin":    func(b *Bans) { b.From = whole.Entries[0].ID },
		"an end at its begin": func(b *Bans) { b.From, b.To, b.Entries = "a", "a", nil },
		"what lifts":          entry(func(e *Living) { e.Kind, e.Service = LivingUnban, ""; e.ID = LivingID(e.Kind, e.What, "", e.Hosts) }),
		"later than it":       entry(func(e *Living) { e.Seq = 9 }),
		"no number":           entry(func(e *Living) { e.Seq = 0 }),
	} {
		b := whole
		change(&b)
		if _, err := ReadBans(must(json.Marshal(b)), 8); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"nothing": "", "a null": `{"now":"2026-01-01T00:00:00Z","entries":[null]}`, "something else": `{"now":"2026-01-01T00:00:00Z","lift":"all"}`, "a key twice": `{"now":"2026-01-01T00:00:00Z","after":0,"after":0}`, "a list": `[]`,
	} {
		if _, err := ReadBans([]byte(text), 0); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadBans([]byte(strings.Repeat(" ", MaxBans+1)), 0); !errors.Is(err, ErrTooLarge) {
		t.Errorf("10 MB: %v", err)
	}
}

func FuzzBans(f *testing.F) {
	for seq, b := range map[int64]Bans{
		6: {After: 4, Now: start, Entries: []Living{living(5, LivingBan, "203.0.113.7"), living(6, LivingDisallow, "2001:db8::/48")}},
		8: {Whole: true, Now: start, From: "0", Entries: sorted(living(2, LivingBan, "203.0.113.0-203.0.113.6"), living(8, LivingAllow, "2001:db8::1"))},
		0: {Now: start},
	} {
		f.Add(seq, must(json.Marshal(b)))
	}
	f.Add(int64(1), []byte(`{"now":"2026-01-01T00:00:00Z","entries":[{"seq":1,"id":"x","kind":"ban","what":"::ffff:203.0.113.7","made":"9999-12-31T23:59:59-23:59","expires":"0001-01-01T00:00:00Z"}]}`))
	f.Fuzz(func(t *testing.T, seq int64, text []byte) {
		b, err := ReadBans(text, seq)
		if err != nil {
			if !typed(err) {
				t.Errorf("an error of no kind: %v", err)
			}
			return
		}
		again, err := json.Marshal(b)
		ok(t, err)
		if len(again) > MaxBans {
			return // "<" is longer as it is written
		}
		twice, err := ReadBans(again, seq)
		if err != nil || !bytes.Equal(must(json.Marshal(twice)), again) {
			t.Errorf("read otherwise than written: %s, %v", again, err)
		}
	})
}

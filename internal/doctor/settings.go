package doctor

import (
	"context"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/system/hostwatch"
	"sluice/internal/system/kernel/conntrack"
)

// Setting is a sysctl that fixes something. Whoever sets it reads first what it was.
type Setting struct {
	Name string `json:"name"`
	Now  string `json:"now"`
	To   string `json:"to"`
}

// set proposes a setting, as a command in a finding too. More is what the command's comment
// says.
func (f *Finding) set(more string, settings ...Setting) {
	var fix, undo strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&fix, " %s=%s", s.Name, s.To)
		fmt.Fprintf(&undo, " %s=%s", s.Name, s.Now)
	}
	f.Settings = append(f.Settings, settings...)
	text := "sysctl -w" + fix.String()
	if more != "" {
		text += "   # " + more
	}
	f.Fix = append(f.Fix, text)
	f.Undo = append(f.Undo, "sysctl -w"+undo.String())
}

// to is a setting that is a number now.
func (s *Seen) to(name string, value uint64) Setting {
	return Setting{name, s.setting(name), strconv.FormatUint(value, 10)}
}

// Wish is what is asked of the connection table.
type Wish struct {
	Expect   uint64 `json:"expect,omitempty"`    // new connections a second that it is to bear; 0: what it has
	Max      uint64 `json:"max,omitempty"`       // entries that it is to have; 0: as reckoned
	TimeWait uint64 `json:"time-wait,omitempty"` // seconds that an entry is to stay behind a closed connection; 0: as it is, or as the dead ones ask for
}

// Advice is how the connection table should be, with what that rests on. All figures are of
// one reading.
type Advice struct {
	Entries  uint64  `json:"entries"`
	Most     uint64  `json:"most"`
	Buckets  uint64  `json:"buckets"`
	Rate     float64 `json:"rate"`     // new connections a second, as expected or reckoned
	Lifetime uint64  `json:"lifetime"` // seconds that an entry stays behind a closed connection, as it is to be
	Wanted   uint64  `json:"wanted"`   // entries that this asks for
	// EntryBytes is what one takes with its extensions; Measured says that the kernel's slab
	// says it.
	EntryBytes uint64 `json:"entry-bytes"`
	Measured   bool   `json:"measured"`
	// Memory in bytes: what the table takes now, at most as it is, and at most as advised.
	Memory     uint64          `json:"memory"`
	MemoryMost uint64          `json:"memory-most"`
	MemoryThen uint64          `json:"memory-then"`
	Settings   []AdvisedChange `json:"settings"` // none: it may stay as it is
	// Shorter is the other way where the table gets large: entries that do with shortLife.
	Shorter uint64   `json:"shorter,omitempty"`
	Unread  []string `json:"unread,omitempty"`
}

// AdvisedChange is a setting that should be another, and why.
type AdvisedChange struct {
	Setting
	Why string `json:"why"`
}

// TableAdvice reckons how the connection table of the calling thread's network namespace should be,
// as the checks of it do, without a look at anything else. Packets that are refused for lack
// of room count from a window on, and from Options.Since. It is nil where nothing is tracked.
func TableAdvice(ctx context.Context, w Wish, since time.Time, window time.Duration) (*Advice, error) {
	s := &Seen{Expect: w.Expect, Since: since, settings: map[string]string{}, Total: map[string]uint64{}, Moved: map[string]uint64{}}
	before, err := conntrack.ReadTable()
	if err != nil || before == nil {
		return nil, err
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(window):
	}
	s.Window = time.Since(began)
	s.seeTable(hostwatch.Space{})
	if s.Table == nil {
		return nil, nil
	}
	s.Moved["conntrack.drop"] = s.Total["conntrack.drop"] - min(before.Dropped, s.Total["conntrack.drop"])
	s.Moved["conntrack.early_drop"] = s.Total["conntrack.early_drop"] - min(before.Evicted, s.Total["conntrack.early_drop"])
	s.seeLog()
	return s.advise(w), nil
}

func (s *Seen) advise(w Wish) *Advice {
	t := s.Table
	life := s.lifetime()
	if w.TimeWait > 0 {
		s.settings[timeWait] = strconv.FormatUint(w.TimeWait, 10) // from here on it is reckoned with that
	}
	a := &Advice{
		Entries: t.Entries, Most: t.Most, Buckets: t.Buckets, Lifetime: s.lifetime(), Wanted: s.wanted(),
		EntryBytes: t.EntryBytes, Measured: t.Measured, Memory: t.memory(t.Entries, t.Buckets), MemoryMost: t.memory(t.Most, t.Buckets),
		Settings: []AdvisedChange{}, Unread: s.Unread,
	}
	a.Rate, _ = s.rate()
	change := func(why string, c Setting) {
		if c.Now != c.To && c.Now != "" {
			a.Settings = append(a.Settings, AdvisedChange{c, why})
		}
	}
	most, buckets, why := t.Most, t.Buckets, ""
	switch size := s.sized(); {
	case w.Max > 0:
		most, why = w.Max, "as requested"
	case size > t.Most && t.Most > 0:
		most, why = size, fmt.Sprintf("twice the entries of %s new connections a second, which live %d s", english.Grouped(uint64(a.Rate)), a.Lifetime)
		if s.nearlyFull() {
			why = "it is full or nearly full, or was recently"
		}
	}
	if most > buckets && (most != t.Most || t.Most > entriesOfBucket*buckets) {
		buckets = roundBuckets(most)
	}
	change("as many buckets as entries: a look-up in a full table passes two of them", s.to(conntrackBuckets, buckets))
	change(why, s.to(conntrackMax, most))
	a.MemoryThen = t.memory(most, buckets)
	switch {
	case w.TimeWait > 0:
		change("as requested", Setting{timeWait, strconv.FormatUint(life, 10), strconv.FormatUint(w.TimeWait, 10)})
	case most > largeTable && life > shortLife && w.Max == 0:
		a.Shorter = max(1, a.Wanted*shortLife/life)
	}
	for _, c := range s.shortened() {
		if c.Name != timeWait || w.TimeWait == 0 {
			change(fmt.Sprintf("%s entries of closed connections and %s of idle ones fill most of the table", english.Grouped(t.Ended), english.Grouped(t.Idle)), c)
		}
	}
	return a
}

// rate is how many new connections a second are reckoned with, and by what.
func (s *Seen) rate() (perSecond float64, why string) {
	if s.Expect > 0 {
		return float64(s.Expect), "--expect"
	}
	return s.Table.Fresh + s.second(s.Moved["conntrack.drop"]), "computed from the entries of closed connections"
}

// sized is how many entries the table should have room for, a power of two: what the load
// asks for, and a full one four times what it has.
func (s *Seen) sized() uint64 {
	n := s.wanted()
	if s.nearlyFull() {
		n = max(n, 4*s.Table.Most, smallTable)
	}
	return 1 << bits.Len64(n-1)
}

// roundBuckets is as the kernel rounds: whole pages of pointers (nf_ct_alloc_hashtable).
func roundBuckets(n uint64) uint64 {
	const page = 4096 / bucketBytes
	return (n + page - 1) / page * page
}

// shortened are the time-outs that hold most entries after their connections, shorter.
func (s *Seen) shortened() (out []Setting) {
	t := s.Table
	if t.Listed < mentioned || 2*(t.Ended+t.Idle) < t.Listed {
		return nil
	}
	for _, c := range []struct {
		name string
		to   uint64
		held bool
	}{
		{timeWait, shortLife, t.Ended > t.Idle/4},
		{"net.netfilter.nf_conntrack_tcp_timeout_established", idleLife, t.Idle > t.Ended/4},
	} {
		if c.held && s.number(c.name) > c.to {
			out = append(out, s.to(c.name, c.to))
		}
	}
	return out
}

// sizeText is how large an entry is, and what the table takes.
func (t *Table) sizeText() string {
	how := "from /proc/slabinfo"
	if !t.Measured {
		how = "the usual size, since /proc/slabinfo could not be read"
	}
	return fmt.Sprintf("%d bytes an entry with its extensions, %s: the table takes %s now, at most %s", t.EntryBytes, how,
		bytesText(t.memory(t.Entries, t.Buckets)), bytesText(t.memory(t.Most, t.Buckets)))
}

package bans

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Moment is a time by the wall clock, which may be set, and by the clock of a boot, which
// goes on while the machine sleeps and may not.
type Moment struct {
	Wall time.Time
	Boot string // tells the boot from others
	Up   time.Duration
}

// Now is the moment by the clocks of the kernel.
func Now() Moment {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it is always there
	return Moment{time.Now(), boot(), time.Duration(ts.Nano())}
}

// bootChars are enough to tell the boots of one machine apart.
const bootChars = 8

var boot = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	id := strings.TrimSpace(string(text))
	return id[:min(len(id), bootChars)]
})

// began is when the boot began, by the wall clock as it is now.
func (m Moment) began() time.Time { return m.Wall.Add(-m.Up) }

// jumpTime is from where on a difference of clocks is that somebody set one of them.
const jumpTime = time.Second

// stamp says the moment of an entry that has an end of a ban, or nothing at all.
func (e *Entry) stamp(now Moment) {
	if e.Time.IsZero() {
		e.Time = now.Wall.Truncate(time.Millisecond)
	}
	timed := len(e.Groups)+len(e.Kept)+len(e.Countries)+len(e.Fleet) == 0 && e.Lifted+e.LiftedCountries+e.LiftedFleet == ""
	for _, g := range e.Fleet {
		timed = timed || !g.Until.IsZero()
	}
	for _, g := range e.Countries {
		timed = timed || !g.Until.IsZero()
	}
	for _, g := range e.Groups {
		timed = timed || !g.Until.IsZero()
	}
	for _, g := range e.Kept {
		timed = timed || !g.Until.IsZero()
	}
	if timed && now.Boot != "" {
		e.Boot, e.Up = now.Boot, (now.Up - now.Wall.Sub(e.Time)).Milliseconds()
	}
}

func (e *Entry) began() time.Time { return e.Time.Add(-time.Duration(e.Up) * time.Millisecond) }

// shifts makes bans end when their time is up by the clock of the boot that they are of,
// however the wall clock was set in that boot behind them.
type shifts struct {
	began map[string]time.Time // of each boot, by its last entry
	bans  []shift
}

type shift struct {
	*Ban
	boot  string
	began time.Time // as Ban has it
}

// addShifts notes the bans of an entry. Of those that were kept from before, the ones of
// other boots stay as they are.
func addShifts[K comparable](s *shifts, e *Entry, edits []edit[K]) {
	if e.Boot == "" {
		return
	}
	began := e.began()
	s.began[e.Boot] = began
	var last *Ban
	for _, d := range edits {
		if d.ban == nil || d.ban == last || d.ban.Until.IsZero() || d.ban.Since.Before(began.Add(-jumpTime)) || d.ban.Since.After(e.Time.Add(jumpTime)) {
			continue
		}
		last = d.ban
		s.bans = append(s.bans, shift{last, e.Boot, began})
	}
}

func (s *shifts) apply(now Moment) {
	s.began[now.Boot] = now.began()
	for _, b := range s.bans {
		if by := s.began[b.boot].Sub(b.began); by.Abs() >= jumpTime {
			b.Since, b.Until = b.Since.Add(by), b.Until.Add(by)
		}
	}
}

package rollout

import (
	"fmt"
	"time"
)

// Freeze is a time of each week in which no stage begins, by the clocks of a place:
// "Fri 16:00 - Mon 08:00 Europe/Berlin". What has begun settles, and a halt reverts.
type Freeze struct {
	From Moment `json:"from"`
	To   Moment `json:"to"`
	Zone string `json:"zone"` // of the IANA database
}

// Moment is a minute of the week.
type Moment struct {
	Day    time.Weekday `json:"day"`
	Minute int          `json:"minute"` // of the day, from 0
}

func (m Moment) String() string {
	return fmt.Sprintf("%s %02d:%02d", m.Day.String()[:3], m.Minute/60, m.Minute%60)
}

// String is the window as a policy writes it.
func (f Freeze) String() string { return fmt.Sprintf("%s - %s %s", f.From, f.To, f.Zone) }

func (f Freeze) check() error {
	for _, m := range []Moment{f.From, f.To} {
		if m.Day < time.Sunday || m.Day > time.Saturday || m.Minute < 0 || m.Minute >= 24*60 {
			return fmt.Errorf("a freeze window has no such minute of the week: day %d, minute %d", m.Day, m.Minute)
		}
	}
	if f.From == f.To {
		return fmt.Errorf("the freeze window %s is empty or the whole week: let it end at another time than it begins", f)
	}
	_, err := time.LoadLocation(f.Zone)
	return err
}

// until is when the window that now is in ends; zero outside of it. A time that the clocks
// skip in spring, or show twice in autumn, counts so that the window is the longer.
func (f Freeze) until(now time.Time) (time.Time, error) {
	zone, err := time.LoadLocation(f.Zone)
	if err != nil {
		return time.Time{}, err
	}
	here := now.In(zone)
	// A window that now is in began today or within the last seven days, and ends within
	// seven days of that.
	days := (int(here.Weekday()) - int(f.From.Day) + 7) % 7
	length := (int(f.To.Day) - int(f.From.Day) + 7) % 7
	if length == 0 && f.To.Minute < f.From.Minute {
		length = 7
	}
	for _, back := range []int{days, days + 7} {
		from, _ := wall(here, -back, f.From.Minute)
		_, to := wall(here, length-back, f.To.Minute)
		if !now.Before(from) && now.Before(to) {
			return to, nil
		}
	}
	return time.Time{}, nil
}

// wall is the first and the last time at which the clocks of a day, so many days from
// now, show a minute, or would show it if they skipped nothing.
func wall(now time.Time, days, minute int) (first, last time.Time) {
	year, month, day := now.Date()
	naive := time.Date(year, month, day+days, 0, minute, 0, 0, time.UTC)
	var shown, meant []time.Time
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := naive.Add(near).In(now.Location()).Zone()
		at := naive.Add(-time.Duration(offset) * time.Second).In(now.Location())
		meant = append(meant, at)
		if at.Hour()*60+at.Minute() == minute {
			shown = append(shown, at)
		}
	}
	if len(shown) == 0 {
		shown = meant
	}
	first, last = shown[0], shown[len(shown)-1]
	if last.Before(first) {
		first, last = last, first
	}
	return first, last
}

// frozen is when the windows that now is in, and those that follow without a gap, end;
// the window is the one that ends last.
func frozen(windows []Freeze, now time.Time) (time.Time, Freeze, error) {
	var end time.Time
	var by Freeze
	for at, more := now, true; more; {
		more = false
		for _, w := range windows {
			to, err := w.until(at)
			if err != nil {
				return time.Time{}, w, err
			}
			// A year of windows without a gap is a freeze without an end.
			if to.After(at) && to.Before(now.AddDate(1, 0, 0)) {
				at, end, by, more = to, to, w, true
			}
		}
	}
	return end, by, nil
}

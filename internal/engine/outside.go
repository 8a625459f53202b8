package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sluice/internal/base/fetch"
	"sluice/internal/engine/apply"
	"sluice/internal/engine/schedule"
	"sluice/internal/language/geo"
	"sluice/internal/language/lists"
	"sluice/internal/language/resolve"
)

// Outside is what the policy that runs takes from elsewhere, which changes by and by.
type Outside struct {
	Lists     []List `json:"lists,omitempty"`
	Countries string `json:"countries,omitempty"` // the sum of the country data that it was made of; "": of none
}

// List is the list of a set.
type List struct {
	Set   string        `json:"set"`
	Every time.Duration `json:"every,omitempty"` // 0: it is not asked for by itself
	URL   string        `json:"url"`             // with what is secret in it
}

// Outside reads what the policy that runs takes from elsewhere: nothing where none does.
func (h *Host) Outside() (*Outside, error) {
	running, err := h.Running(nil)
	var closed *apply.ClosedRunsError
	if errors.Is(err, apply.ErrNoPolicy) || errors.As(err, &closed) {
		return &Outside{}, nil
	}
	if err != nil {
		return nil, err
	}
	out := &Outside{Countries: running.Runs.Inputs[resolve.CountryData]}
	for _, s := range running.Policy.Sets {
		if s.URL != nil && s.File == nil {
			out.Lists = append(out.Lists, List{s.Name, s.Refresh, s.URL.Text})
		}
	}
	return out, nil
}

// Copied is when the server of a list last said that the copy of it is current; zero: there
// is none.
func (h *Host) Copied(l List) time.Time {
	at, _ := (lists.Store{Dir: filepath.Join(h.State, "lists")}).Stage().Copied(l.URL)
	return at
}

// CountriesInUse is the sum of the country data in use.
func (h *Host) CountriesInUse() (string, error) {
	d, err := geo.Open(h.State)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", d.Sum()), nil
}

// CountriesUpdated is when the country data in use were written; zero: they are built in.
func (h *Host) CountriesUpdated() time.Time {
	info, err := os.Stat(geo.CurrentFile(h.State))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// CountriesDir is the folder of the country data, which network namespaces share.
func (h *Host) CountriesDir() string { return filepath.Dir(geo.CurrentFile(h.State)) }

// timersWanted is where systemd has the timers that are enabled.
const timersWanted = "/etc/systemd/system/timers.target.wants"

// ByAgent says that an agent asks for the lists of the running policy.
func (h *Host) ByAgent() bool { return schedule.Kept(h.Dir) }

// due is what is done next, and by whom.
func (h *Host) due() ([]apply.Due, error) {
	outside, err := h.Outside()
	if err != nil {
		return nil, err
	}
	var countries time.Time
	if outside.Countries != "" {
		if data, err := geo.Open(h.State); err == nil {
			countries = data.Info().Date
		}
	}
	return h.dueOf(outside, countries), nil
}

// dueOf is what is done next where the country data are of a date.
func (h *Host) dueOf(outside *Outside, countries time.Time) []apply.Due {
	var out []apply.Due
	plan, by := schedule.Plan{}, ""
	if schedule.Kept(h.Dir) {
		plan, by = schedule.Read(h.Dir), apply.ByAgent
	} else {
		timer := "sluice-refresh.timer"
		if h.Namespace != "" {
			timer = "sluice-refresh@" + h.Namespace + ".timer"
		}
		if _, err := os.Lstat(filepath.Join(timersWanted, timer)); err == nil {
			by = apply.ByTimer
		}
	}
	for _, l := range outside.Lists {
		d := apply.Due{List: l.Set, URL: fetch.Redact(l.URL), Of: h.Copied(l)}
		task, planned := plan[schedule.List(l.Set)]
		switch {
		case l.Every == 0:
		case by == apply.ByAgent && planned:
			d.By, d.At, d.Failed = by, task.Next, task.Error
		default:
			d.By, d.At = by, d.Of.Add(l.Every)
		}
		out = append(out, d)
	}
	if outside.Countries != "" {
		d := apply.Due{Of: countries}
		if dir := h.CountriesDir(); schedule.Kept(dir) {
			task := schedule.Read(dir)[schedule.Countries]
			d.By, d.At, d.Failed = apply.ByAgent, task.Next, task.Error
		}
		if task, failed := plan[schedule.Countries]; failed && d.Failed == "" {
			d.Failed = task.Error
		}
		out = append(out, d)
	}
	return out
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sluice/internal/language/apart"
	"sluice/internal/language/bans"
	"sluice/internal/language/geo"
)

// UpdatingCountries is what newer country data are asked for by, as geo.UpdateOptions has it.
type UpdatingCountries struct {
	From   []string // none: of whom Publishers says, and then what the data in use came from
	SHA256 string
	Date   time.Time
	Force  bool
}

// ErrNoPublisher is said where the data in use came from a file, which may be another one by
// now, and whose publisher nobody asked to be left.
var ErrNoPublisher = errors.New("the data in use came from a file, so there is no source to update from")

// UpdateCountries updates the country data, which network namespaces share, as geo.Update
// does.
func (h *Host) UpdateCountries(ctx context.Context, in UpdatingCountries) (*geo.UpdateResult, error) {
	if len(in.From) == 0 {
		var err error
		if in.From, err = h.publishers(); err != nil {
			return nil, err
		}
	}
	return geo.Update(ctx, geo.UpdateOptions{
		StateDir: h.State, From: in.From, SHA256: in.SHA256, Date: in.Date, Force: in.Force,
		Progress: h.Download, Process: apart.Process{Command: h.Fetch, Unconfined: apart.Once(h.warn)},
	})
}

// country gives what a country has, by the data in use.
func (h *Host) country() func(code string) (*bans.Country, error) {
	data := sync.OnceValues(func() (*geo.Database, error) { return geo.Open(h.State) })
	return func(code string) (*bans.Country, error) {
		d, err := data()
		if err != nil {
			return nil, err
		}
		of, err := d.Countries(code)
		if err == nil && of.IsEmpty() {
			err = fmt.Errorf("the country data have no address of %s", code)
		}
		if err != nil {
			return nil, err
		}
		return &bans.Country{Code: code, Data: d.Info().Date, Set: of}, nil
	}
}

// UndoCountries goes back to the country data that the last update replaced.
func (h *Host) UndoCountries(context.Context) (*geo.UpdateResult, error) { return geo.Undo(h.State) }

// publishers are those that are asked where nobody is named.
func (h *Host) publishers() ([]string, error) {
	if h.Publishers != nil {
		if from, err := h.Publishers(); err != nil || len(from) > 0 {
			return from, err
		}
	}
	d, err := geo.Open(h.State)
	if err != nil {
		return nil, err
	}
	if d.Info().BuiltIn {
		return geo.Defaults, nil
	}
	from := d.Info().From
	for _, f := range from {
		if !geo.Lasts(f) {
			return nil, ErrNoPublisher
		}
	}
	return from, nil
}

package bans

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"sluice/internal/base/addrset"
	"sluice/internal/base/regular"
)

// PastFile has, in a state directory, past bans that the journal no longer has.
const PastFile = "bans.past"

// Of past bans, those of the last PastTime are kept, and of them the newest MostPast.
const (
	PastTime = 30 * 24 * time.Hour
	MostPast = 10_000
)

// Past is a ban that holds no more.
type Past struct {
	Ban
	Ended  time.Time
	Lifted bool   // before its time was up
	Lifter Author // who lifted it, and why
}

// pastGroup is past bans that have all but the address in common.
type pastGroup struct {
	countryGroup
	Ended  time.Time `json:"ended"`
	Lifted bool      `json:"lifted,omitempty"`
	Lifter Author    `json:"lifter,omitzero"`
}

// pastKey tells bans of the same range apart.
type pastKey struct {
	name         string
	since, ended int64
}

func (p Past) key() pastKey { return pastKey{p.Name(), p.Since.UnixMilli(), p.Ended.UnixMilli()} }

func (p Past) group() pastGroup {
	g := pastGroup{Ended: p.Ended, Lifted: p.Lifted, Lifter: p.Lifter}
	g.Until, g.Reason, g.Since, g.By = p.Until, p.Reason, p.Since, p.By
	if p.Country != nil {
		g.Code, g.Data = p.Country.Code, p.Country.Data
	}
	return g
}

// Past is the bans that ended, the last one first, as far back as they are kept. A ban
// whose place another of the same took while it held has not ended. Damaged says that a
// part of them could not be read.
func (j Journal) Past() (list []Past, damaged bool, err error) {
	now := j.now()
	old, damaged, err := j.oldPast()
	if err != nil {
		return nil, false, err
	}
	data, err := regular.Read(j.path, mostBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !regular.Unfit(err) {
		return nil, false, fmt.Errorf("read the journal of bans: %w", err)
	}
	r, err := replay(data, now)
	if errors.Is(err, errNewer) {
		return nil, false, &NewerError{j.path}
	}
	if err != nil {
		return nil, false, err
	}
	list = ended(old, r.edits, now.Wall, func(p *Past, of place) { p.What, p.ID = of.what, of.id })
	list = ended(list, r.countries, now.Wall, func(p *Past, code string) { p.Country = &Country{Code: code, Data: p.Country.Data} })
	list = slices.DeleteFunc(list, func(p Past) bool { return now.Wall.Sub(p.Ended) > PastTime })
	slices.SortStableFunc(list, func(a, b Past) int { //nolint:forbidigo // hundreds of thousands
		if c := b.Ended.Compare(a.Ended); c != 0 {
			return c
		}
		return a.What.Compare(b.What)
	})
	// A command that was killed behind keepPast left some of them in both files.
	list = slices.CompactFunc(list, func(a, b Past) bool { return a.key() == b.key() })
	return list[:min(len(list), MostPast)], damaged || len(r.list.Damaged) > 0, nil
}

// ended is a list with what edits say of bans that hold no more; name says what was banned.
func ended[K comparable](list []Past, edits []edit[K], now time.Time, name func(*Past, K)) []Past {
	open := map[K]*Ban{}
	end := func(of K, at time.Time, by *lifting) {
		b := open[of]
		if b == nil {
			return
		}
		p := Past{Ban: *b, Ended: b.Until}
		switch {
		case b.Over(at):
		case by != nil:
			p.Ended, p.Lifted, p.Lifter = by.at, true, by.by
		default:
			return
		}
		name(&p, of)
		list = append(list, p)
	}
	for _, e := range edits {
		if e.ban != nil {
			end(e.of, e.ban.Since, nil)
			open[e.of] = e.ban
			continue
		}
		end(e.of, e.lift.at, e.lift)
		delete(open, e.of)
	}
	for of := range open {
		end(of, now, nil)
	}
	return list
}

// oldPast is what PastFile has.
func (j Journal) oldPast() (list []Past, damaged bool, err error) {
	path := filepath.Join(filepath.Dir(j.path), PastFile)
	data, err := regular.Read(path, mostBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if regular.Unfit(err) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read past bans: %w", err)
	}
	e, err := decode(bytes.TrimSuffix(data, []byte{'\n'}))
	if errors.Is(err, errLine) {
		return nil, true, nil // it counts for nothing
	}
	if e.Format > format {
		return nil, false, &NewerError{path}
	}
	for _, g := range e.Past {
		p := Past{Ban{Since: g.Since, Until: g.Until, By: g.By, Reason: g.Reason}, g.Ended, g.Lifted, g.Lifter}
		if g.Code != "" {
			p.Country = &Country{Code: g.Code, Data: g.Data}
			list = append(list, p)
			continue
		}
		err := eachRange(g.Bans, func(r addrset.Range) {
			p.What = r
			list = append(list, p)
		})
		if errors.Is(err, errLine) {
			return nil, true, nil
		}
	}
	return list, false, nil
}

// keepPast records what would be lost of past bans where the journal is rewritten.
func (j Journal) keepPast() error {
	list, _, err := j.Past()
	if err != nil {
		return err
	}
	e := Entry{Format: format, Time: j.now().Wall}
	for len(list) > 0 {
		g := list[0].group()
		var ranges []addrset.Range
		for len(list) > 0 && list[0].group() == g {
			if list[0].Country == nil {
				ranges = append(ranges, list[0].What)
			}
			list = list[1:]
		}
		g.Bans = Words(ranges)
		e.Past = append(e.Past, g)
	}
	line, err := encode(e)
	if err != nil {
		return err
	}
	path := filepath.Join(filepath.Dir(j.path), PastFile)
	if err := renameio.WriteFile(path, line, 0o600, renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return fmt.Errorf("write past bans: %w", err)
	}
	return nil
}

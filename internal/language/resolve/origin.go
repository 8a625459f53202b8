package resolve

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
)

// Entry is one place that puts an address into a set or takes it out: a line of
// the policy or of a set file, a country.
type Entry struct {
	// Sets are the names from the set that was asked to the one that has the
	// entry, through union and except.
	Sets []string
	// Out says that the entry takes the address out of the set that was asked:
	// an except is on the way.
	Out bool
	// Pos is the entry: in the policy, in a set file, or in the copy of a list;
	// of a country, where the policy names it.
	Pos     policy.Pos
	Element addrset.Range // of the entry; of a country, the range of its data
	URL     string        // of a list
	Added   bool          // by a command: Pos is the set's
	Until   time.Time     // of what a command added; zero: for good
	// Country and Continent are the codes by which the address is of the set,
	// and Data says which country data have it so.
	Country, Continent string
	Data               string
}

// Origin finds every entry of a set, or of a zone's networks, that holds an
// address. It reads set files and lists again; what has changed since the policy
// was resolved is found as it is now.
func (r *Resolved) Origin(name string, a netip.Addr) ([]Entry, error) {
	if zone := r.Policy.Zone(name); zone != nil {
		var out []Entry
		for _, n := range zone.Networks {
			if n.Range.Contains(a) {
				out = append(out, Entry{Sets: []string{name}, Pos: n.Pos, Element: n.Range})
			}
		}
		return out, nil
	}
	set := r.Policy.Set(name)
	if set == nil {
		return nil, fmt.Errorf("the policy has no set %q", name)
	}
	o := origins{Resolved: r, address: a}
	err := o.set(set, nil, false)
	return o.found, err
}

type origins struct {
	*Resolved
	address netip.Addr
	found   []Entry
}

func (o *origins) add(e Entry, sets []string, out bool) {
	e.Sets, e.Out = slices.Clone(sets), out
	o.found = append(o.found, e)
}

func (o *origins) set(s *policy.Set, above []string, out bool) error {
	if slices.Contains(above, s.Name) {
		return nil // policy has said that it is a cycle
	}
	sets := append(slices.Clone(above), s.Name)
	for _, e := range s.Elements {
		if e.Range.Contains(o.address) {
			o.add(Entry{Pos: e.Pos, Element: e.Range}, sets, out)
		}
	}
	for _, a := range s.Added {
		if a.What.Contains(o.address) {
			o.add(Entry{Pos: s.Pos, Element: a.What, Added: true, Until: a.Until}, sets, out)
		}
	}
	if err := o.texts(s, sets, out); err != nil {
		return err
	}
	if len(s.Countries)+len(s.Continents) > 0 {
		if err := o.country(s, sets, out); err != nil {
			return err
		}
	}
	for i, names := range [][]policy.Word{s.Union, s.Except} {
		for _, name := range names {
			if part := o.Policy.Set(name.Text); part != nil {
				if err := o.set(part, sets, out != (i == 1)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// texts looks into the set's file or list.
func (o *origins) texts(s *policy.Set, sets []string, out bool) error {
	var text io.ReadCloser
	var name, url string
	var err error
	switch {
	case s.File != nil:
		name = s.FilePath()
		text, err = o.Policy.Open(name)
	case s.URL != nil && o.opt.Lists != nil:
		url = s.URL.Text
		text, name, err = o.opt.Lists.Open(url, 0)
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for %s in set %s: %w", o.address, s.Name, err)
	}
	defer text.Close()
	return eachLine(name, text, func(r addrset.Range, line, column int) {
		if r.Contains(o.address) {
			o.add(Entry{Pos: policy.Pos{File: name, Line: line, Column: column}, Element: r, URL: url}, sets, out)
		}
	})
}

func (o *origins) country(s *policy.Set, sets []string, out bool) error {
	if o.opt.Geo == nil {
		return errNoGeo
	}
	data, err := o.opt.Geo()
	if err != nil {
		return fmt.Errorf("look for %s in set %s: %w", o.address, s.Name, err)
	}
	match, in, err := data.Find(o.address)
	if err != nil || !in {
		return err
	}
	e := Entry{Element: match.Range, Country: match.Code, Continent: match.Continent, Data: dataText(data.Info().Origin)}
	if i := slices.IndexFunc(s.Countries, func(w policy.Word) bool { return w.Text == match.Code }); i >= 0 {
		e.Pos = s.Countries[i].Pos
	} else if i := slices.IndexFunc(s.Continents, func(w policy.Word) bool { return w.Text == match.Continent }); i >= 0 {
		e.Pos = s.Continents[i].Pos
	} else {
		return nil
	}
	o.add(e, sets, out)
	return nil
}

// Country says which country an address is of, where countries are in the set
// or in one that it is made of, whether the set has the address or not. Data is
// which country data say so; not ok means that no country is asked or known.
func (r *Resolved) Country(name string, a netip.Addr) (c geo.Country, data string, ok bool, err error) {
	if !r.asksCountries(r.Policy.Set(name), nil) || r.opt.Geo == nil {
		return c, "", false, nil
	}
	db, err := r.opt.Geo()
	if err != nil {
		return c, "", false, err
	}
	match, ok, err := db.Find(a)
	return match.Country, dataText(db.Info().Origin), ok, err
}

func (r *Resolved) asksCountries(s *policy.Set, above []*policy.Set) bool {
	if s == nil || slices.Contains(above, s) {
		return false
	}
	return len(s.Countries)+len(s.Continents) > 0 || slices.ContainsFunc(slices.Concat(s.Union, s.Except), func(w policy.Word) bool {
		return r.asksCountries(r.Policy.Set(w.Text), append(slices.Clone(above), s))
	})
}

func dataText(o geo.Origin) string {
	text := o.Source
	if text == "" {
		text = "country data"
	}
	if !o.Date.IsZero() {
		text += " of " + o.Date.Format("2006-01-02")
	}
	return text
}

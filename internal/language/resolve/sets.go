package resolve

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
)

// set resolves one set, and those that it is made of, once.
func (r *resolver) set(s *policy.Set) *Set {
	if done := r.out.Sets[s.Name]; done != nil {
		return done
	}
	if r.open[s.Name] {
		return &Set{Name: s.Name, Pos: s.Pos} // policy has said that it is a cycle
	}
	r.open[s.Name] = true
	defer delete(r.open, s.Name)

	out := &Set{Name: s.Name, Pos: s.Pos, Counters: s.Counters, Endpoints: s.Endpoints, Living: s.Counters || s.URL != nil || s.Living || s.IsGroup(), Expires: s.Living, Others: s.Others}
	var b addrset.Builder
	var written []addrset.Range
	exact := 0 // single addresses; negative where there is a range
	add := func(e addrset.Range) {
		b.AddRange(e)
		if exact++; e.From != e.To || exact <= 0 {
			exact = -1
		}
		if s.Counters {
			written = append(written, e)
		}
	}
	addSet := func(part addrset.Set) {
		if s.Counters {
			written = append(written, part.Ranges()...)
		}
		b.AddSet(part)
	}
	for _, e := range s.Elements {
		add(e.Range)
	}
	switch {
	case s.Live && s.File != nil:
		r.live(s, add)
	case s.File != nil:
		r.file(s, add)
	case s.URL != nil:
		r.list(s, add)
	}
	if s.Live && len(s.Within) > 0 {
		var within addrset.Builder
		for _, w := range s.Within {
			within.AddRange(w.Range)
		}
		bounds := within.Set()
		all := b.Set().Intersect(bounds)
		b = addrset.Builder{}
		b.AddSet(all)
		for i := len(written) - 1; i >= 0; i-- {
			if !bounds.ContainsSet(addrset.Of(written[i])) {
				written = append(written[:i], append(addrset.Of(written[i]).Intersect(bounds).Ranges(), written[i+1:]...)...)
			}
		}
	}
	out.Living = out.Living || s.File != nil && exact > 0 && exact <= editedInPlace
	r.countries(s, addSet)
	for _, name := range s.Union {
		if part := r.named(name); part != nil {
			addSet(part.Addresses)
		}
	}
	out.Addresses = b.Set()
	for _, name := range s.Except {
		if part := r.named(name); part != nil {
			out.Addresses = out.Addresses.Difference(part.Addresses)
		}
	}
	if s.Counters {
		out.Elements = disjoint(written, out.Addresses)
	}
	out.add(s.Added)
	r.out.Sets[s.Name] = out
	return out
}

// editedInPlace is how many single addresses a set file may have, and no range,
// that one more is brought to the kernel by itself. What is edited has to be read
// ahead.
const editedInPlace = 10_000

func (r *resolver) named(name policy.Word) *Set {
	s := r.out.Policy.Set(name.Text)
	if s == nil {
		return nil // policy has said so
	}
	return r.set(s)
}

func (r *resolver) file(s *policy.Set, add func(addrset.Range)) {
	path := s.FilePath()
	f, err := r.out.Policy.Open(path)
	if err != nil {
		r.fail(s.File.Pos, "cannot read the set file: "+err.Error(), "paths are relative to the file that has them")
		return
	}
	defer f.Close()
	r.text(s.File.Pos, fileInput(path), path, f, add)
}

func (r *resolver) list(s *policy.Set, add func(addrset.Range)) {
	if r.opt.Lists == nil {
		r.fail(s.URL.Pos, fmt.Sprintf("no copy of %s on this host", s.URL.Text), "")
		return
	}
	text, name, err := r.opt.Lists.Open(s.URL.Text, s.Refresh)
	if err != nil {
		r.fail(s.URL.Pos, err.Error(), "")
		return
	}
	defer text.Close()
	r.text(s.URL.Pos, listInput(s.URL.Text), name, text, add)
}

// LiveCopy is what the copy of a live list is called that its fleet's controller gave, beside
// one that a server gave for the same URL.
func LiveCopy(url string) string { return "live " + url }

// openLive opens what the controller gave of a live list last, or what was signed with the
// policy where it gave nothing yet.
func openLive(p *policy.Policy, s *policy.Set, live func(url string) (io.ReadCloser, error)) (text io.ReadCloser, name string, err error) {
	if live != nil {
		text, err = live(LiveCopy(s.URL.Text))
	}
	if text != nil || err != nil {
		return text, s.Name, err
	}
	text, err = p.Open(s.FilePath())
	return text, s.FilePath(), err
}

func (r *resolver) live(s *policy.Set, add func(addrset.Range)) {
	text, name, err := openLive(r.out.Policy, s, r.opt.Live)
	if err != nil {
		r.fail(s.URL.Pos, "cannot read the list: "+err.Error(), "")
		return
	}
	defer text.Close()
	r.text(s.URL.Pos, listInput(LiveCopy(s.URL.Text)), name, text, add)
}

// text reads a list; input is what it is among the inputs.
func (r *resolver) text(pos policy.Pos, input, name string, text io.Reader, add func(addrset.Range)) {
	h := newHashing(text)
	if err := ReadSetFile(name, h, add); err != nil {
		r.add(pos, err, "")
	}
	r.out.Inputs.add(input, h.sum())
}

func (r *resolver) countries(s *policy.Set, addSet func(addrset.Set)) {
	if len(s.Countries)+len(s.Continents) == 0 {
		return
	}
	if r.geo == nil && r.geoError == nil {
		r.geo, r.geoError = r.openGeo()
	}
	if r.geoError != nil {
		r.fail(s.Pos, "cannot read the country data: "+r.geoError.Error(), "")
		var unreadable *geo.UnreadableError
		switch {
		case !errors.As(r.geoError, &unreadable):
		case errors.Is(unreadable, fs.ErrPermission):
			r.errs[len(r.errs)-1].Remedy = policy.ReadCountries
		default:
			r.errs[len(r.errs)-1].Remedy = policy.RenewCountries
		}
		return
	}
	r.out.Inputs.add(CountryData, r.geo.Sum())
	places, err := r.geo.Places(texts(s.Countries), texts(s.Continents))
	if err == nil {
		addSet(places)
		return
	}
	for _, w := range s.Countries {
		if _, err := r.geo.Countries(w.Text); err != nil {
			r.fail(w.Pos, err.Error(), "")
		}
	}
	for _, w := range s.Continents {
		if _, err := r.geo.Continents(w.Text); err != nil {
			r.fail(w.Pos, err.Error(), "")
		}
	}
}

func texts(words []policy.Word) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w.Text
	}
	return out
}

var errNoGeo = errors.New("there are none on this host")

func (r *resolver) openGeo() (*geo.Database, error) {
	if r.opt.Geo == nil {
		return nil, errNoGeo
	}
	return r.opt.Geo()
}

// disjoint sorts the elements of a counted set, drops those that lie in
// another or are not in the set any more, and cuts nothing: where elements
// overlap without one holding the other, their union takes their place.
func disjoint(written []addrset.Range, keep addrset.Set) []addrset.Range {
	sorting.By(written, func(a, b addrset.Range) int {
		if c := a.From.Compare(b.From); c != 0 {
			return c
		}
		return b.To.Compare(a.To)
	})
	var merged []addrset.Range
	for _, e := range written {
		if n := len(merged); n > 0 && merged[n-1].To.Is4() == e.From.Is4() && e.From.Compare(merged[n-1].To) <= 0 {
			if e.To.Compare(merged[n-1].To) > 0 {
				merged[n-1].To = e.To
			}
			continue
		}
		merged = append(merged, e)
	}
	var out []addrset.Range
	for _, e := range merged {
		one := addrset.Of(e)
		if keep.ContainsSet(one) {
			out = append(out, e)
			continue
		}
		out = append(out, one.Intersect(keep).Ranges()...)
	}
	return out
}

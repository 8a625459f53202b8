package engine

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	"sluice/internal/base/countries"
	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/netns"
)

const (
	sourcesShare = 50  // counting takes this part of the time that passes between two
	namedSources = 100 // that are named, and as many countries
)

// sourceCounter counts the connection table by source, one time after the other, beside who
// calls it.
type sourceCounter struct {
	host      *Host
	here      *netns.Namespace
	countries freshCountries // of who counts
	under     chan counted   // nil: nobody counts
	not       time.Time      // to be begun again before
	last      counted
}

type counted struct {
	panicked any // for whoever takes it, as a screen may have to be left first
	sources  *TopSources
	took     time.Duration
	err      error
}

// begin has it counted, unless it was lately.
func (s *sourceCounter) begin(ctx context.Context) {
	if s.take(false); s.under != nil || time.Now().Before(s.not) {
		return
	}
	to := make(chan counted, 1)
	s.under = to
	go func() {
		defer func() {
			if p := recover(); p != nil {
				to <- counted{panicked: p}
			}
		}()
		began := time.Now()
		var out *TopSources
		err := s.here.Do(func() (err error) {
			out, err = s.count(ctx)
			return err
		})
		took := time.Since(began)
		if err == nil {
			out.Took = took
		}
		to <- counted{sources: out, took: took, err: err}
	}()
}

// take takes what was counted, and waits for it if that is wanted.
func (s *sourceCounter) take(wait bool) {
	if s.under == nil || !wait && len(s.under) == 0 {
		return
	}
	s.last, s.under = <-s.under, nil
	if s.last.panicked != nil {
		panic(s.last.panicked)
	}
	s.not = time.Now().Add(sourcesShare * s.last.took)
}

func (s *sourceCounter) count(ctx context.Context) (*TopSources, error) {
	out := &TopSources{Counted: time.Now(), Most: []TopSource{}}
	c, err := s.host.countEntries(ctx, EntryQuestion{By: []string{"source"}, Most: namedSources})
	if err != nil {
		return nil, err
	}
	data := s.countries.now()
	code := func(a netip.Addr) string {
		if data == nil {
			return ""
		}
		return data.Code(a)
	}
	out.Entries, out.Sources = c.out.Entries, len(c.places)
	for _, n := range c.out.Counts {
		a, err := netip.ParseAddr(n.Values[0])
		if err != nil {
			return nil, err
		}
		out.Most = append(out.Most, TopSource{Address: a, Country: code(a), Entries: n.Entries, Packets: n.Packets, Bytes: n.Bytes})
	}
	if data == nil {
		return out, nil
	}
	of := map[string]*TopCountry{}
	for key, at := range c.places {
		a, _ := netip.AddrFromSlice([]byte(key[1:]))
		name := code(a)
		if of[name] == nil {
			of[name] = &TopCountry{Code: name, Name: countries.Name(name)}
		}
		of[name].Sources++
		of[name].Entries += c.tallies[at].entries
	}
	out.Countries = make([]TopCountry, 0, len(of))
	for _, n := range of {
		out.Countries = append(out.Countries, *n)
	}
	sorting.By(out.Countries, func(a, b TopCountry) int {
		return cmp.Or(cmp.Compare(b.Entries, a.Entries), cmp.Compare(a.Code, b.Code))
	})
	out.Countries = out.Countries[:min(len(out.Countries), namedSources)]
	return out, nil
}

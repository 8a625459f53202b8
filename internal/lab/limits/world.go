package limits

import (
	"errors"
	"fmt"
	"net/netip"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/product"
	"sluice/internal/language/geo"
)

// world is the country data that everything is measured with.
type world struct {
	europe  addrset.Set // allowed
	blocked addrset.Set // allocated, but not to Europe
	info    geo.Info
}

func (w *world) describe(r *report) {
	r.say("%s, %s; all but Europe: %d IPv4 and %d IPv6 ranges (%s, %s)", w.info.Source, w.info.Date.Format("January 2006"),
		w.blocked.Len4(), w.blocked.Len6(), w.info.Attribution, w.info.Licence)
}

// loadWorld takes the country data into the state directory of the run.
func (b *bench) loadWorld(o Options) (*world, error) {
	sluice := product.Sluice{Binary: b.binary, State: b.state}
	if o.Data != "" {
		err := sluice.TakeCountries(b, o.Data)
		if errors.Is(err, product.ErrNoCountries) {
			err = fmt.Errorf("%w; without --data those of the state directory are taken", err)
		}
		if err != nil {
			return nil, err
		}
	} else if err := sluice.ShareCountries(o.StateDir); err != nil {
		return nil, err
	}
	db, err := geo.Open(b.state)
	if err != nil {
		return nil, err
	}
	var w world
	if w.europe, err = db.Continents("EU"); err != nil {
		return nil, err
	}
	others, err := db.Continents("AF", "AN", "AS", "NA", "OC", "SA")
	if err != nil {
		return nil, err
	}
	w.blocked = others.Difference(w.europe)
	w.info = db.Info()
	return &w, nil
}

// drawn are datagrams of sources, each with the verdict that it should get. The set is
// asked once for each.
func (w *world) drawn(name string, f addrset.Family, sources []netip.Addr) measure.Case {
	passes := make([]bool, len(sources))
	for i, a := range sources {
		passes[i] = !w.blocked.Contains(a)
	}
	return measure.Case{Name: name, Traffic: measure.UDP(sources, measure.Target(f, 9)), Survives: func(i int) bool { return passes[i] }}
}

func (b *bench) draws4() []measure.Case {
	w := b.world
	return []measure.Case{
		w.drawn(weightBlocked, addrset.IPv4, measure.ByAddress(w.blocked, addrset.IPv4, measure.Sources, b.seed)),
		w.drawn(weightAllowed, addrset.IPv4, measure.ByAddress(w.europe, addrset.IPv4, measure.Sources, b.seed)),
		w.drawn(rangeBlocked, addrset.IPv4, measure.ByRange(w.blocked, addrset.IPv4, measure.Sources, b.seed)),
		w.drawn(rangeAllowed, addrset.IPv4, measure.ByRange(w.europe, addrset.IPv4, measure.Sources, b.seed)),
	}
}

func (b *bench) draws6() []measure.Case {
	w := b.world
	return []measure.Case{
		w.drawn(over48s, addrset.IPv6, measure.BySubnet48(w.blocked.Union(w.europe), measure.Sources, b.seed)),
		w.drawn(rangeBlocked, addrset.IPv6, measure.ByRange(w.blocked, addrset.IPv6, measure.Sources, b.seed)),
		w.drawn(rangeAllowed, addrset.IPv6, measure.ByRange(w.europe, addrset.IPv6, measure.Sources, b.seed)),
	}
}

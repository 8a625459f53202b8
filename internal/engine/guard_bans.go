package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// guardAge is how old what was read of a guard may be whose own file has not changed: files of its
// sets may have.
const guardAge = 10 * time.Second

// reaching keeps whom the host's guard says that no ban may block: what its lines that allow name by
// addresses. Those of countries and of "not" are not among them: nobody means each of these
// addresses, and a ban of one must be possible. It is read again where the file has changed.
type reaching struct {
	host  *Host
	mutex sync.Mutex
	was   os.FileInfo // nil: there was no guard
	at    time.Time
	all   []apply.Reaching
}

func (r *reaching) now() ([]apply.Reaching, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	is, err := os.Stat(r.host.Guard)
	if errors.Is(err, fs.ErrNotExist) {
		r.was, r.all = nil, nil
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if r.was != nil && os.SameFile(r.was, is) && r.was.ModTime().Equal(is.ModTime()) && r.was.Size() == is.Size() && time.Since(r.at) < guardAge {
		return r.all, nil
	}
	guard, err := ReadGuard(r.host.Guard)
	if guard == nil || err != nil {
		return nil, err
	}
	from := r.host.sources()
	from.Offline = true
	// Zones of interfaces name no addresses, whichever the default routes leave by.
	by, err := from.Resolve(context.Background(), guard, host.Facts{Known: true, DefaultRoute: []string{resolve.RouteInterfaces}})
	if err != nil {
		return nil, err
	}
	r.was, r.at, r.all = is, time.Now(), nil
	for _, x := range guard.Expect {
		var b addrset.Builder
		for _, w := range []*policy.Who{x.From, x.To} {
			if w != nil && !w.Not && x.Action == policy.Allow {
				b.AddSet(named(by, w))
			}
		}
		if all := b.Set(); !all.IsEmpty() {
			r.all = append(r.all, apply.Reaching{By: fmt.Sprintf("%s: %s", x.Pos, x.Text), Addresses: all})
		}
	}
	return r.all, nil
}

// named is what somebody is called by addresses, and by sets and zones of addresses alone.
func named(r *resolve.Resolved, w *policy.Who) addrset.Set {
	var b addrset.Builder
	for _, item := range w.Items {
		switch zone, set := r.Zones[item.Name], r.Sets[item.Name]; {
		case item.Name == "":
			b.AddRange(item.Literal)
		case zone != nil && len(zone.Interfaces) == 0:
			b.AddSet(zone.Networks)
		case set != nil && !ofCountries(r.Policy, item.Name):
			b.AddSet(set.Addresses)
		}
	}
	return b.Set()
}

// ofCountries says that a set, or one that it is made of, has countries.
func ofCountries(p *policy.Policy, name string) bool {
	s := p.Set(name)
	if s == nil { // a country's own name
		return true
	}
	for _, w := range s.Union {
		if ofCountries(p, w.Text) {
			return true
		}
	}
	return len(s.Countries)+len(s.Continents) > 0
}

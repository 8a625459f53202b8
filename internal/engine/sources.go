package engine

import (
	"cmp"
	"context"
	"io"
	"path/filepath"
	"sync"
	"time"

	"sluice/internal/base/users"
	"sluice/internal/language/apart"
	"sluice/internal/language/geo"
	"sluice/internal/language/lists"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// Sources is where the names of policies are resolved from. Policies that share one
// read each list and the country data once. It is safe for concurrent use.
type Sources struct {
	State   string             // the tool's own state directory, with copies of lists and country data
	Data    string             // another one that country data is read from; "" is State
	Offline bool               // no list is asked for
	Fetch   []string           // command line of the process that asks for lists; none: this one does
	Warn    func(text string)  // is told when an old copy of a list is used; may be nil
	Words   func(error) string // the text of an error for Warn; nil: its own
	staged  *lists.Staging     // in a refresh: where lists come from instead
	sum     string             // in a refresh: of the country data to read, where they are still there

	once      sync.Once
	store     lists.Store
	asked     sync.Map // lists that were asked for, by URL
	countries func() (*geo.Database, error)
}

// Resolve resolves the names of a policy for a host.
func (s *Sources) Resolve(ctx context.Context, p *policy.Policy, facts host.Facts) (*resolve.Resolved, error) {
	return resolve.Resolve(p, s.options(ctx, facts))
}

// Countries is the country data, opened when it is first asked for.
func (s *Sources) Countries() (*geo.Database, error) {
	s.open()
	return s.countries()
}

func (s *Sources) options(ctx context.Context, facts host.Facts) resolve.Options {
	s.open()
	o := resolve.Options{
		Facts: facts, Geo: s.countries, Lists: &listsOnce{s, ctx},
		User: func(name string) (uint32, error) { return users.Number(ctx, name) },
	}
	o.Live = s.store.Copy
	if s.staged != nil {
		o.Lists, o.Live = s.staged, s.staged.Copy
	}
	return o
}

// copies are the same sources, of which nothing is asked again and which warn of nothing.
func (s *Sources) copies() *Sources {
	s.open()
	out := &Sources{State: s.State, Data: s.Data, Offline: true, sum: s.sum}
	out.open()
	out.countries = s.countries
	return out
}

func (s *Sources) open() {
	s.once.Do(func() {
		s.store = lists.Store{
			Dir: filepath.Join(s.State, "lists"), Offline: s.Offline, Child: s.Fetch, Warn: func(err *lists.StaleError) { s.warn(wordsOf(err, s.Words)) }, Unconfined: apart.Once(s.warn),
		}
		s.countries = sync.OnceValues(func() (*geo.Database, error) {
			if s.sum != "" {
				if d := geo.WithSum(s.State, s.sum); d != nil {
					return d, nil
				}
			}
			return geo.Open(cmp.Or(s.Data, s.State))
		})
	})
}

func (s *Sources) warn(text string) {
	if s.Warn != nil {
		s.Warn(text)
	}
}

// listsOnce asks for each list once: who asks again gets the copy, and no second
// warning that it is old.
type listsOnce struct {
	*Sources
	ctx context.Context
}

// Open gives the copy of a list.
func (l *listsOnce) Open(url string, refresh time.Duration) (io.ReadCloser, string, error) {
	store := l.store
	store.Context = l.ctx
	_, before := l.asked.Load(url)
	store.Offline = store.Offline || before
	text, name, err := store.Open(url, refresh)
	if err == nil {
		l.asked.Store(url, true)
	}
	return text, name, err
}

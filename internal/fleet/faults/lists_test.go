package faults

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"sluice/internal/base/addrset"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

const listSet = "scanners"

// served is what servers of lists have, by path.
var served sync.Map

// listServer serves lists on loopback, outside of any bubble, and has no connection live on:
// who waits for one keeps the time of a bubble from going on.
var listServer = sync.OnceValue(func() string {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, has := served.Load(r.URL.Path)
		if !has {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(text.([]byte))
	}))
	s.Config.SetKeepAlivesEnabled(false)
	s.Start()
	return s.URL
})

var fleets atomic.Int64

// lists are those of a fleet.
type lists struct {
	path, name string
	changes    int
}

func newList() lists {
	path := fmt.Sprint("/", fleets.Add(1), "/list.txt")
	return lists{path: path, name: policy.SignedList(listSet, listServer()+path)}
}

// serve has the server have another list: the one address besides is another with each change.
func (f *fleet) serve() {
	f.list.changes++
	all := []addrset.Range{must(addrset.ParseRange(fmt.Sprint("203.0.113.", f.list.changes)))}
	for i := range 30 {
		all = append(all, must(addrset.ParseRange(fmt.Sprint("198.51.100.", 2*i))))
	}
	text := addrset.Of(all...).Lines()
	f.history.Add(Event{Kind: Served, What: listWord + f.list.name, Content: shortHash(wire.Hash(text))})
	served.Store(f.list.path, text)
}

func shortHash(hash string) string { return hash[:min(12, len(hash))] }

// TakeLists takes them into what runs, which is another generation then.
func (*kernel) Restore(context.Context, string) error { return nil }

func (k *kernel) TakeLists(_ context.Context, files map[string]string, _ bool) (used []string, err error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	f := k.host.f
	if f.faults() && f.chance(8) {
		f.fault("kernel busy", k.host)
		return nil, errCut
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		used = append(used, name)
		if f.bug == keptLists && k.lists != nil {
			continue
		}
		content := shortHash(wire.Hash(must(os.ReadFile(files[name]))))
		if f.bug == emptyLists && f.chance(2) {
			content = "nothing"
		}
		after := map[string]string{listWord + name: content}
		if f.bug == oldLists && k.listsBefore != nil && f.chance(2) {
			after = k.listsBefore
		}
		if !maps.Equal(k.lists, after) {
			k.carries(k.lists, after, false)
			k.lists, k.listsBefore = after, k.lists
		}
	}
	k.count++
	k.runs[len(k.runs)-1].number = k.count
	return used, nil
}

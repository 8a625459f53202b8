package geo

import (
	"cmp"
	"regexp"
	"strings"
	"sync"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/fetch"
	"sluice/internal/base/sorting"
)

// Defaults are the publishers that are asked where nobody names any, the one that decides
// first.
var Defaults = []string{"dbip", "registries"}

// known are the sources of publishers that have a name of their own.
func known(name string, now time.Time) string {
	switch name {
	case "dbip":
		// The file of a month comes on its first day, which is not everywhere the same.
		return "https://download.db-ip.com/free/dbip-country-lite-" + now.UTC().AddDate(0, 0, -2).Format("2006-01") + ".csv.gz"
	case "registries":
		return "https://ftp.ripe.net/pub/stats/ripencc/nro-stats/latest/nro-delegated-stats"
	}
	return ""
}

var named = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([a-z][a-z0-9-]*)=(.+)$`) })

// sourceOf takes what an update is from apart: a known publisher, NAME=PLACE, or a place,
// which is a URL or a file.
func sourceOf(from string, now time.Time) (publisher, place string) {
	if place := known(from, now); place != "" {
		return from, place
	}
	if m := named().FindStringSubmatch(from); m != nil {
		return m[1], m[2]
	}
	return "", from
}

// Lasts says whether what an update was from can be asked again: a file may be another one
// by now.
func Lasts(from string) bool {
	_, place := sourceOf(from, time.Time{})
	return fetch.IsURL(place)
}

// Publisher is what one of several contributes. Where they differ, the first of them that
// says something decides.
type Publisher struct {
	Name      string    `json:"name"`
	Decides   Counts    `json:"decides"`   // addresses of which none before it says anything
	Otherwise Counts    `json:"otherwise"` // addresses that it places in other countries
	Differs   []Differs `json:"differs"`   // the same by countries, the most IPv4 addresses first
}

// Differs is what a publisher places elsewhere than the one that decides.
type Differs struct {
	Decided Country `json:"decided"`
	Said    Country `json:"said"`
	Counts
}

// combined makes one table of those of publishers.
func combined(names []string, tables []*Table) (*Table, []Publisher) {
	type pair struct {
		publisher     int
		decided, said uint16
	}
	out := &Table{}
	decides := make([]addrset.Builder, len(tables))
	differs := map[pair]*addrset.Builder{}
	for _, is4 := range [2]bool{true, false} {
		lists := make([][]row, len(tables))
		for i, t := range tables {
			rows := t.v6
			if is4 {
				rows = t.v4
			}
			var over int
			lists[i], over = flatten(rows)
			out.within += over
			for j := range lists[i] {
				lists[i][j].code = out.indexOf(t.codes[lists[i][j].code])
			}
		}
		into := &out.v6
		if is4 {
			into = &out.v4
		}
		beside(lists, func(from, to num, said []*row) {
			decided := -1
			r := addrset.Range{From: from.Addr(is4), To: to.Addr(is4)}
			for i, s := range said {
				switch {
				case s == nil:
				case decided < 0:
					decided = i
					decides[i].AddRange(r)
					*into = append(*into, row{from, to, s.code})
				case s.code != said[decided].code:
					key := pair{i, said[decided].code, s.code}
					if differs[key] == nil {
						differs[key] = &addrset.Builder{}
					}
					differs[key].AddRange(r)
				}
			}
		})
	}
	publishers := make([]Publisher, len(tables))
	for i := range publishers {
		publishers[i] = Publisher{Name: names[i], Decides: CountsOf(decides[i].Set()), Differs: []Differs{}}
	}
	for key, b := range differs {
		p := &publishers[key.publisher]
		d := Differs{CountryOf(out.codes[key.decided]), CountryOf(out.codes[key.said]), CountsOf(b.Set())}
		p.Otherwise.add(d.Counts)
		p.Differs = append(p.Differs, d)
	}
	for i := range publishers {
		sorting.By(publishers[i].Differs, func(a, b Differs) int {
			return cmp.Or(cmp.Compare(b.Addresses4, a.Addresses4), b.Addresses6.Big().Cmp(a.Addresses6.Big()),
				strings.Compare(a.Decided.Code, b.Decided.Code), strings.Compare(a.Said.Code, b.Said.Code))
		})
	}
	return out, publishers
}

// beside gives every stretch of addresses over which each list says one thing or none, and
// some list says something, in order. Lists are as flatten gives them.
func beside(lists [][]row, give func(from, to num, said []*row)) {
	said := make([]*row, len(lists))
	var pos num
	for {
		var end, next num
		covered, more := false, false
		for i := range lists {
			for len(lists[i]) > 0 && lists[i][0].to.Less(pos) {
				lists[i] = lists[i][1:]
			}
			said[i] = nil
			if len(lists[i]) == 0 {
				continue
			}
			r := &lists[i][0]
			if pos.Less(r.from) {
				if !more || r.from.Less(next) {
					next, more = r.from, true
				}
				continue
			}
			said[i] = r
			if !covered || r.to.Less(end) {
				end, covered = r.to, true
			}
		}
		switch {
		case !covered && !more:
			return
		case !covered:
			pos = next
			continue
		case more && next.Compare(end) <= 0:
			end = next.Prev()
		}
		give(pos, end, said)
		if pos = end.Next(); pos.Less(end) {
			return // behind the last address
		}
	}
}

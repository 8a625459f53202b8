package faults

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// What hosts hold of guests, of the members of sets and of live lists: in the What of an event
// each begins with its word.
const (
	guestWord = "guest "
	setWord   = "set "
	listWord  = "list "
)

// holders follow what hosts hold.
type holders map[string]map[string]string // content, by what and host

func (is holders) carry(e Event) {
	if is[e.What] == nil {
		is[e.What] = map[string]string{}
	}
	if is[e.What][e.Host] = e.Content; e.Content == "" {
		delete(is[e.What], e.Host)
	}
}

// forgotten is what an older database may not know as it became.
type forgotten struct {
	said map[string]time.Time // when it was said last of what
	is   map[string]bool
}

func (f *forgotten) see(e Event) {
	if f.said == nil {
		f.said, f.is = map[string]time.Time{}, map[string]bool{}
	}
	switch e.Kind {
	case Placed, Settled, Served:
		f.said[e.What] = e.At
	case Restored:
		for what, at := range f.said {
			f.is[what] = f.is[what] || strings.HasPrefix(what, listWord) || !at.Before(e.Until)
		}
	}
}

func newer(h []Event, broken func(int, string, ...any)) {
	type one struct{ host, what string }
	type version struct {
		number int
		host   string // where a guest was placed by it
	}
	type settled struct {
		version
		at time.Time
	}
	said, last := map[string]map[string]version{}, map[string]version{}
	had, moved, has := map[one]version{}, map[string]settled{}, holders{}
	dropped := map[one]bool{} // not by going back
	var lost forgotten
	for i, e := range h {
		lost.see(e)
		switch e.Kind {
		case Placed, Served:
			if said[e.What] == nil {
				said[e.What] = map[string]version{}
			}
			last[e.What] = version{i + 1, e.Host}
			said[e.What][e.Content] = last[e.What]
		case Settled:
			moved[e.What] = settled{version{last[e.What].number, e.Host}, e.At}
		case Carries:
			_, holds := has[e.What][e.Host]
			has.carry(e)
			again := dropped[one{e.Host, e.What}]
			dropped[one{e.Host, e.What}] = e.Content == "" && !e.Back
			if e.Content == "" || strings.HasPrefix(e.What, setWord) {
				continue
			}
			is, known := said[e.What][e.Content]
			was, m := had[one{e.Host, e.What}], moved[e.What]
			switch {
			case !known:
				broken(i, "%s holds %s as %q, which nobody said", e.Host, e.What, e.Content)
			case e.Back || lost.is[e.What]:
			case is.number < was.number || is.number == was.number && again:
				broken(i, "%s holds %s as %q again, which is older than what it had", e.Host, e.What, e.Content)
			case !holds && m.number >= is.number && m.host != e.Host && e.At.Sub(m.at) > underWay:
				broken(i, "%s begins to hold %s, which has been on %s alone since %s", e.Host, e.What, m.host, m.at.Format(time.TimeOnly))
			}
			if is.number > was.number {
				had[one{e.Host, e.What}] = is
			}
		}
	}
}

func stays(h []Event, broken func(int, string, ...any)) {
	said, gone := map[string]map[string]int{}, map[string]int{}
	moved, has := map[string]string{}, holders{}
	var lost forgotten
	for i, e := range h {
		lost.see(e)
		switch e.Kind {
		case Placed:
			if said[e.What] == nil {
				said[e.What] = map[string]int{}
			}
			if said[e.What][e.Content] = i; e.Content == "" {
				gone[e.What] = i
			}
		case Settled:
			moved[e.What] = e.Host
		case Carries:
			before := has[e.What][e.Host]
			has.carry(e)
			if before == "" || len(has[e.What]) > 0 || !strings.HasPrefix(e.What, guestWord) || lost.is[e.What] {
				continue
			}
			asked := gone[e.What] > said[e.What][before]
			tried := e.Back && moved[e.What] != e.Host // it was there on trial, and nobody was told that it had come
			if !asked && !tried {
				broken(i, "%s holds %s no more, and no other host does yet", e.Host, e.What)
			}
		}
	}
}

func bounded(h []Event, broken func(int, string, ...any)) {
	within := map[string]netip.Prefix{}
	for i, e := range h {
		switch e.Kind {
		case Within:
			within[e.What] = netip.MustParsePrefix(e.Content)
		case Carries:
			if !strings.HasPrefix(e.What, setWord) {
				continue
			}
			for _, a := range strings.Fields(e.Content) {
				if !within[e.What].Contains(netip.MustParseAddr(a)) {
					broken(i, "%s holds in %s %s, which is not within %s", e.Host, e.What, a, within[e.What])
				}
			}
		}
	}
}

func belongs(h []Event, broken func(int, string, ...any)) {
	has, due := holders{}, map[string]string{}
	for i, e := range h {
		switch {
		case e.Kind == Carries:
			has.carry(e)
		case e.Kind != Due:
		case e.What != "":
			due[e.What] = e.Content
		default:
			for _, what := range slices.Sorted(maps.Keys(due)) {
				if is := has[what][e.Host]; is != due[what] {
					broken(i, "%s holds %s as %q, and is to hold it as %q", e.Host, what, is, due[what])
				}
			}
			for _, what := range slices.Sorted(maps.Keys(has)) {
				if _, is := due[what]; !is && has[what][e.Host] != "" && !strings.HasPrefix(what, listWord) {
					broken(i, "%s holds %s, which is not to be there", e.Host, what)
				}
			}
			clear(due)
		}
	}
}

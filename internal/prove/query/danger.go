package query

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/base/sorting"
	"sluice/internal/prove/check"
)

// manyPorts is from how many ports on a range is as good as any.
const manyPorts = 1024

// Degrees of danger of a service.
const (
	ordinary = iota
	manages
	anyService
)

// danger says how dangerous it is that somebody reaches the services.
func danger(services []string) int {
	worst := ordinary
	for _, s := range services {
		worst = max(worst, dangerOf(s))
	}
	return worst
}

func dangerOf(service string) int {
	if strings.HasPrefix(service, everyProtocol) || strings.Contains(service, " but ") {
		return anyService
	}
	protocol, ports, has := strings.Cut(service, "/")
	number, hasPorts := packet.PortProtocol(protocol)
	switch {
	case !hasPorts:
		return ordinary
	case !has:
		return anyService
	}
	first, last, isRange := strings.Cut(ports, "-")
	if !isRange {
		last = first
	}
	from, err1 := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	switch {
	case err1 != nil || err2 != nil:
		return ordinary
	case to-from >= manyPorts:
		return anyService
	case check.Manages(number, uint16(from), uint16(to)):
		return manages
	}
	return ordinary
}

// reached is the services that packets of a change arrive at.
func (c *Change) reached() []string {
	if len(c.inner) > 0 {
		return c.inner
	}
	return c.Services
}

// rank is the place of a kind in a report: what is reached newly is as bad as what
// is allowed newly.
func rank(k Kind) int {
	if k == Reached {
		k = Opened
	}
	return slices.Index(order, k)
}

// sortByDanger puts what opens before what closes, management and whole protocols
// first, and more addresses before fewer.
func sortByDanger(list []Change) {
	weight := func(c *Change) float64 {
		out := 1.0
		for _, a := range []*Addresses{c.From, c.To} {
			if a != nil {
				out *= a.weight() / 2
			}
		}
		return out
	}
	hook := func(c *Change) int {
		for i, at := range ways {
			if string(at.Hook) == c.Hook {
				return i
			}
		}
		return len(ways)
	}
	sorting.StableBy(list, func(a, b Change) int {
		return cmp.Or(
			cmp.Compare(rank(a.Kind), rank(b.Kind)),
			cmp.Compare(danger(b.reached()), danger(a.reached())),
			cmp.Compare(weight(&b), weight(&a)),
			cmp.Compare(hook(&a), hook(&b)),
			cmp.Compare(strings.Join(a.Services, " "), strings.Join(b.Services, " ")),
			cmp.Compare(a.Place(), b.Place()),
		)
	})
}

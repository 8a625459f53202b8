package query

import (
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/prove/reach"
)

// leads is what of a change of packets says where they arrive in the end.
func leads(texts []string) (out []string) {
	for _, text := range texts {
		if strings.HasPrefix(text, leadsAddress) || strings.HasPrefix(text, leadsPort) {
			out = append(out, text)
		}
	}
	return out
}

// What package reach says of a destination that is rewritten.
const (
	leadsAddress = "destination "
	leadsPort    = "port to "
)

// ledOn says that packets from other hosts arrive at another address, port or
// way by the new policy: what is there can be reached, and by them it could not.
func ledOn(old, next keyed) bool {
	return next.way != reach.Out && (old.way != next.way || !slices.Equal(leads(old.texts), leads(next.texts)))
}

// reaches says where packets of a class arrive: "10.20.0.5 tcp/5432".
func reaches(c class, next []string) (place string, services []string) {
	place, services = "an address as it was asked", c.words
	if c.way == reach.In {
		place = "this host"
	}
	for _, text := range next {
		if to, is := strings.CutPrefix(text, leadsAddress); is && c.way == reach.Through {
			place = strings.TrimPrefix(to, "to ")
			if a, err := netip.ParseAddr(place); err == nil {
				place = a.String()
			}
		}
		if port, is := strings.CutPrefix(text, leadsPort); is {
			services = nil
			for _, word := range c.words {
				protocol, _, _ := strings.Cut(word, "/")
				if with := protocol + "/" + port; !slices.Contains(services, with) {
					services = append(services, with)
				}
			}
		}
	}
	return place, services
}

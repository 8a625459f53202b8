package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/program"
)

// change is what has happened to a packet since it came: rewriting and tracking.
// The zero value is nothing.
type change struct {
	untracked           bool
	source, destination []step
	port                *uint16
	dnat, snat          bool
	mark                []program.SetMark
}

// step is one rewriting of an address: to a fixed one, or from prefix to prefix.
type step struct {
	to       netip.Addr
	own      bool // of the host itself, which one is not known
	from, as netip.Prefix
	before   bool // connection tracking has not seen the packet yet
}

// key is equal for equal changes alone: what is rewritten with state, without it
// and before connection tracking reads the same and is not.
func (c *change) key() string {
	var places strings.Builder
	for _, s := range slices.Concat(c.source, c.destination) {
		fmt.Fprintf(&places, " %t", s.before)
	}
	return fmt.Sprintf("%q%s %t %t", c.text(), places.String(), c.dnat, c.snat)
}

// text is the change for a reader.
func (c *change) text() []string {
	var out []string
	if c.untracked {
		out = append(out, "not tracked")
	}
	for _, s := range c.source {
		out = append(out, "source "+s.text())
	}
	for _, s := range c.destination {
		out = append(out, "destination "+s.text())
	}
	if c.port != nil {
		out = append(out, "port to "+strconv.Itoa(int(*c.port)))
	}
	for _, m := range c.mark {
		out = append(out, program.ActionText(m))
	}
	return out
}

func (s step) text() string {
	switch {
	case s.own && !s.to.IsValid():
		return "to an address of the host"
	case s.to.IsValid():
		return "to " + s.to.String()
	}
	return "from " + s.from.String() + " to " + s.as.String()
}

// apply is the address behind the steps; not valid where nobody knows it.
func apply(a netip.Addr, steps []step) netip.Addr {
	for _, s := range steps {
		switch {
		case s.own:
			return netip.Addr{}
		case s.to.IsValid():
			a = s.to
		default:
			a = mapPrefix(a, s.from, s.as)
		}
	}
	return a
}

package query

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// wording turns what a universe tells apart into words.
type wording struct {
	universe *reach.Universe
	names    *Names
	policies []*resolve.Resolved
	limits   map[string]string // of "gate:" and "table:" fields, what they are
	bounds   map[string]string // how much limits let through, by their ActionText
	states   []packet.State    // that need no word
}

// field says what a field of a class has to be, unless it is said elsewhere or
// goes without saying.
func (w *wording) field(c *class, way reach.Way, v reach.FieldValues) {
	say := func(format string, args ...any) { c.more = append(c.more, fmt.Sprintf(format, args...)) }
	name, about, _ := strings.Cut(string(v.Field), ":")
	yes := slices.Contains(v.Names, "yes")
	switch {
	case name == "gate" && yes:
		say("within %s", w.limits[string(v.Field)])
	case name == "gate":
		c.limited = true
		say("over %s", w.limits[string(v.Field)])
	case name == "followed":
		w.route(c, about, yes, say)
	case name == "own":
		zone, behind, _ := strings.Cut(about, " ")
		say("%sto an address of this host in %s%s", choose(yes, "", "not "), zone, choose(behind != "", " "+behind, ""))
	case name == "filled":
		set, field, _ := strings.Cut(about, " ")
		say("with its %s %sin %s, which another program fills", field, choose(yes, "", "not "), set)
	case name == "table" && strings.HasPrefix(about, program.ExemptSet+" "):
		say("%s%s", choose(yes, "", "not "), w.limits[string(v.Field)])
	case name == "table":
		c.limited = c.limited || yes
		say("%s %s", choose(yes, "banned:", "not banned:"), w.limits[string(v.Field)])
	case name == "status" && about == "dnat":
		say("%s", choose(yes, "published (its destination was rewritten)", "not published"))
	case name == "status":
		say("%s a flow that is %s", choose(yes, "of", "not of"), about)
	case name == "opaque" || name == "extension" || name == "mark" && about != "":
		say("%s: %s", choose(yes, "where this holds", "where this does not hold"), about)
	default:
		w.plainField(c, way, v, say)
	}
}

// route says that a packet comes or goes by an interface of a default route, or not.
func (w *wording) route(c *class, about string, yes bool, say func(string, ...any)) {
	text := choose(yes, "", "not ") + "the default route's interface"
	for _, p := range w.policies {
		for _, z := range p.Policy.Zones {
			if zone := p.Zones[z.Name]; zone != nil && slices.Equal(zone.Interfaces, []string{resolve.RouteInterfaces}) {
				text = choose(yes, "", "not ") + z.Name
			}
		}
	}
	at := &c.in
	if strings.HasPrefix(about, string(program.OutInterface)) {
		at = &c.out
	}
	if *at == "" {
		*at = text
	}
	if *at == text { // which is said already
		return
	}
	say("%s %s", choose(at == &c.in, "in by", "out by"), text)
}

func choose(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func (w *wording) plainField(c *class, way reach.Way, v reach.FieldValues, say func(string, ...any)) {
	switch v.Field {
	case program.Protocol, program.Port, program.ICMPType, program.ICMPv6Type, program.Source, program.Destination:
		// services and sides have said it
	case program.InInterface:
		c.in = w.device(v)
	case program.OutInterface:
		c.out = w.device(v)
	case program.State:
		if text := w.state(v.Names); text != "" {
			say("%s", text)
		}
	case program.DestinationHere:
		c.here = packet.Is(slices.Contains(v.Names, "local"))
		if len(v.Names) == 1 {
			say("%s", choose(c.here == packet.Yes, "to an address of the interface itself", "not to an address of the interface itself"))
		}
	case program.SourceType, program.DestinationType:
		if text := kinds(way, v); text != "" {
			say("%s", text)
		}
	case program.SourcePort:
		say("from source port %s", numbers(v.Numbers))
	case program.TCPFlags:
		say("%s", tcpFlags(v.Numbers))
	case program.ICMPCode, program.ICMPv6Code:
		say("code %s", numbers(v.Numbers))
	case program.Owner:
		say("%s", w.owner(v.Numbers))
	case program.Time:
		say("%s", times(v.Numbers))
	case program.Fragment:
		say("%s", choose(v.Numbers[0].From == 1, "later fragments", "whole packets and first fragments"))
	case program.OriginalSource:
		say("sent by %s before rewriting", w.names.Of(v.Addresses.Intersect(whole(c.families))).Text)
	case program.OriginalDestination:
		say("sent to %s before rewriting", w.names.Of(v.Addresses.Intersect(whole(c.families))).Text)
	case program.OriginalPort:
		say("sent to port %s before rewriting", numbers(v.Numbers))
	case program.Direction:
		say("%s", choose(slices.Contains(v.Names, "reply"), "replies of a flow", "in the direction in which the flow began"))
	default:
		values := v.Names
		if len(v.Numbers) > 0 {
			values = []string{numbers(v.Numbers)}
		}
		say("%s %s", v.Field, strings.Join(values, " or "))
	}
}

// times writes ranges of seconds since 1970.
func times(list []program.NumberRange) string {
	texts := make([]string, len(list))
	for i, r := range list {
		moment := func(n uint64) string { return time.Unix(int64(n), 0).UTC().Format(time.RFC3339) } //nolint:gosec // 32 bits
		switch {
		case r.From == 0:
			texts[i] = "before " + moment(r.To+1)
		case r.To >= math.MaxUint32:
			texts[i] = "from " + moment(r.From) + " on"
		default:
			texts[i] = "from " + moment(r.From) + " until " + moment(r.To+1)
		}
	}
	return strings.Join(texts, " or ")
}

// numbers writes ranges of numbers.
func numbers(list []program.NumberRange) string {
	texts := make([]string, len(list))
	for i, r := range list {
		texts[i] = r.String()
	}
	return strings.Join(texts, ", ")
}

// device says by which interfaces a packet comes or goes: by a zone's, by name,
// or by which not. Loopback is not spoken of.
func (w *wording) device(v reach.FieldValues) string {
	// Beside every other name, those that are named say something only where a
	// wildcard leaves them out.
	named := slices.DeleteFunc(slices.Clone(v.Names), func(n string) bool {
		return n == "lo" || v.Other && !slices.ContainsFunc(v.Without, func(pattern string) bool { return resolve.MatchInterface(pattern, n) })
	})
	list, not := named, ""
	if v.Other {
		list, not = slices.DeleteFunc(slices.Clone(v.Without), func(n string) bool { return n == "lo" }), "not "
	}
	switch {
	case len(list) == 0 && not != "":
		return ""
	case not != "" && len(named) > 0:
		return "any interface except " + english.List(list) + ", which " + english.List(named) + " are not meant by"
	}
	sorted := slices.Sorted(slices.Values(list))
	for _, p := range w.policies {
		for _, z := range p.Policy.Zones {
			if zone := p.Zones[z.Name]; zone != nil && len(list) > 0 && slices.Equal(zone.Patterns(), sorted) {
				return not + z.Name
			}
		}
	}
	return not + "interface " + english.List(list)
}

// state is what connection tracking says of a packet; "" where it is what the
// question has asked about. A flow that another one expects begins as others do, and
// is decided so.
func (w *wording) state(names []string) string {
	usual := len(names) > 0
	for _, s := range w.states {
		usual = usual && slices.Contains(names, string(s))
	}
	for _, n := range names {
		usual = usual && (slices.Contains(w.states, packet.State(n)) || n == string(packet.Untracked) ||
			n == string(packet.Related) && slices.Contains(w.states, packet.New))
	}
	if usual && len(w.states) > 0 {
		return ""
	}
	return "state " + english.List(names)
}

// kinds is what the routing table says of an address, where that does not follow
// from the way of the packet.
func kinds(way reach.Way, v reach.FieldValues) string {
	source := v.Field == program.SourceType
	home := way == reach.Out && source || way == reach.In && !source
	local, unicast := slices.Contains(v.Names, "local"), slices.Contains(v.Names, "unicast")
	rest := slices.Contains(v.Names, "broadcast") && slices.Contains(v.Names, "multicast")
	end := choose(source, "from", "to")
	switch {
	case home && local && rest, !home && unicast && !local && rest && way != reach.Through, way == reach.Through && unicast:
		return ""
	case home && local && len(v.Names) == 1, home && local && unicast && len(v.Names) == 2:
		return end + " an address of this host"
	}
	names := slices.DeleteFunc(slices.Clone(v.Names), func(n string) bool { return home && n == "unicast" })
	for i, n := range names {
		switch n {
		case "local":
			names[i] = "this host's"
		case "unicast":
			names[i] = "other hosts'"
		}
	}
	return end + " " + english.List(names) + " addresses"
}

// owner says which user's process sends.
func (w *wording) owner(list []program.NumberRange) string {
	const nobody = uint64(1) << 32 // what stands for a packet without a local socket
	user := func(n uint64) string {
		for _, p := range w.policies {
			// Of several ways to write a user the last by letters, which is not a number.
			for _, name := range slices.Backward(slices.Sorted(maps.Keys(p.Users))) {
				if uint64(p.Users[name]) == n {
					return name
				}
			}
		}
		return strconv.FormatUint(n, 10)
	}
	if last := list[len(list)-1]; last.To >= nobody {
		var out []string
		next := uint64(0)
		for _, r := range list {
			for n := next; n < r.From; n++ {
				out = append(out, user(n))
			}
			next = r.To + 1
		}
		return "not by user " + english.List(out)
	}
	var out []string
	for _, r := range list {
		if r.From == r.To {
			out = append(out, user(r.From))
		} else {
			out = append(out, r.String())
		}
	}
	return "by user " + english.List(out)
}

package starter

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/sorting"
	"sluice/internal/language/policy"
	"sluice/internal/system/host"
)

// entry is one line that a policy may have.
type entry struct {
	service string // as a rule names it
	reason  string
}

// sorted gives what others can reach, what perhaps only asks others, what only the
// host itself can reach, and what asks others and waits for their answers.
func (w *writer) sorted() (open, unsure, loopback, clients []entry) {
	ofTunnels := w.tunnels()
	var reachable []Listener
	for _, l := range w.Listeners {
		e := entry{serviceName(l.Protocol, l.Port), l.reason()}
		switch {
		case l.Protocol == "tcp" && slices.Contains(w.SSHPorts, l.Port):
		case l.onlyLoopback():
			loopback = append(loopback, e)
		case slices.ContainsFunc(ofTunnels, func(o entry) bool { return o.service == e.service }):
			// It is open already.
		case l.Protocol == "udp" && (l.Port == 68 || l.Port == 546):
			clients = append(clients, e)
		case l.Protocol == "udp" && !l.Serves && l.Port >= w.Facts.EphemeralFrom && l.Port <= w.Facts.EphemeralTo:
			e.reason += "; a server?"
			unsure = append(unsure, e)
		case w.isPublished(l):
			// The program that holds a container's port; it is listed there.
		default:
			reachable = append(reachable, l)
		}
	}
	return together(reachable), unsure, loopback, clients
}

// tunnels is what has to be let in for those to come back who are logged in through
// tunnels, once each.
func (w *writer) tunnels() []entry {
	var out []entry
	for _, o := range w.Facts.OuterFlows {
		if o.Unknown != "" || o.Begins != host.FromOutside {
			continue
		}
		e := entry{fmt.Sprintf("proto/%d", o.Protocol), fmt.Sprintf("it carries %s, through which %s is logged in", shown(o.Tunnel), o.Peer)}
		switch o.Protocol {
		case 6:
			e.service = serviceName("tcp", o.Local.Port())
		case 17:
			e.service = serviceName("udp", o.Local.Port())
		}
		if !slices.ContainsFunc(out, func(a entry) bool { return a.service == e.service }) {
			out = append(out, e)
		}
	}
	return out
}

// reason says who listens where.
func (l Listener) reason() string {
	who := "the kernel or an unknown program"
	if len(l.Programs) > 0 {
		who = shown(strings.Join(l.Programs, ", "))
	}
	if slices.Contains(l.Addresses, netip.IPv6Unspecified()) {
		return who + " listens on every address"
	}
	var where []string
	for _, a := range l.Addresses {
		if a.IsUnspecified() {
			where = append(where, "every IPv4 address")
			continue
		}
		where = append(where, a.String())
	}
	return who + " listens on " + fewOf(where)
}

// fewOf lists some words, and how many more there are.
func fewOf(words []string) string {
	const most = 4
	if len(words) > most {
		words = append(words[:most-1], fmt.Sprintf("%d more", len(words)-most+1))
	}
	return strings.Join(words, ", ")
}

// together names listeners by the built-in services that they make up, and by
// protocol and port otherwise.
func together(all []Listener) []entry {
	var out []entry
	used := map[string]bool{}
	at := map[string]Listener{}
	for _, l := range all {
		at[text(l.Protocol, l.Port)] = l
	}
	for _, l := range all {
		if used[text(l.Protocol, l.Port)] {
			continue
		}
		name, parts := text(l.Protocol, l.Port), []string{text(l.Protocol, l.Port)}
		for _, s := range bySize() {
			complete := slices.Contains(s.parts, name)
			for _, p := range s.parts {
				other, ok := at[p]
				complete = complete && ok && !used[p] && slices.Equal(other.Programs, l.Programs)
			}
			if complete {
				parts, name = s.parts, s.name
				break
			}
		}
		for _, p := range parts {
			used[p] = true
		}
		out = append(out, entry{name, l.reason()})
	}
	return out
}

func text(protocol string, port uint16) string { return fmt.Sprintf("%s/%d", protocol, port) }

// serviceName is the built-in name of what is one port alone.
func serviceName(protocol string, port uint16) string {
	name := text(protocol, port)
	for _, s := range bySize() {
		if len(s.parts) == 1 && s.parts[0] == name {
			return s.name
		}
	}
	return name
}

type named struct {
	name  string
	parts []string // "tcp/53"
}

// bySize is the built-in services that consist of single ports, the larger
// ones first.
func bySize() []named {
	protocols := map[uint8]string{6: "tcp", 17: "udp"}
	var out []named
	for _, s := range policy.Builtin() {
		n := named{name: s.Name}
		for _, m := range s.Matches {
			for _, p := range m.Ports {
				if p.From != p.To || protocols[m.Protocol] == "" {
					n.parts = nil
					break
				}
				n.parts = append(n.parts, text(protocols[m.Protocol], p.From))
			}
			if len(m.Ports) == 0 {
				n.parts = nil
				break
			}
		}
		if len(n.parts) > 0 && wholly(s, len(n.parts)) {
			out = append(out, n)
		}
	}
	sorting.StableBy(out, func(a, b named) int { return cmp.Compare(len(b.parts), len(a.parts)) })
	return out
}

// wholly says whether the parts are all that a service matches.
func wholly(s *policy.Service, parts int) bool {
	n := 0
	for _, m := range s.Matches {
		if m.Any || len(m.Ports) == 0 {
			return false
		}
		n += len(m.Ports)
	}
	return n == parts
}

// published is the ports that other tools lead on, once each.
func (w *writer) published() []entry {
	var out []entry
	for _, p := range w.Facts.Published {
		if p.Port == 0 || p.Protocol != "tcp" && p.Protocol != "udp" {
			continue
		}
		e := entry{service: serviceName(p.Protocol, p.Port)}
		if p.To.Addr().IsValid() {
			e.reason = " at " + p.To.Addr().String()
		}
		if !slices.ContainsFunc(out, func(o entry) bool { return o.service == e.service }) {
			out = append(out, e)
		}
	}
	return out
}

func (w *writer) isPublished(l Listener) bool {
	for _, p := range w.Facts.Published {
		if p.Protocol == l.Protocol && p.Port == l.Port {
			return true
		}
	}
	return false
}

package starter

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/sorting"
	"sluice/internal/system/host"
)

// Policy writes the first policy; the same situation gives the same bytes.
func Policy(s Situation) []byte {
	w := &writer{Situation: s}
	w.line("# The first policy of this host, written by \"sluice init\" from what listens on it and who is")
	open := "Only ssh is"
	switch {
	case len(w.SSHPorts) == 0:
		open = "Nothing is"
	case len(w.tunnels()) > 0:
		open = "Only ssh and its tunnels are"
	}
	w.line("# logged in. %s open: remove the \"# \" before each service that others should reach.", open)
	w.line("#   sluice check FILE                  find errors in it")
	w.line("#   sluice plan FILE                   show what it would change")
	w.line("#   sluice apply FILE --confirm 60s    load it, and roll back unless you confirm in time")
	w.line("version: 1")
	w.line("log: netlink # sluice-agent.service keeps what is dropped, \"sluice log\" shows it")
	w.zones()
	w.sets()
	w.input()
	w.forward()
	w.expect()
	return w.out.Bytes()
}

type writer struct {
	Situation
	out bytes.Buffer
}

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(&w.out, format+"\n", args...)
}

// others is the interfaces that routing sees beside those of the default route.
func (w *writer) others() []host.Interface {
	var out []host.Interface
	for _, i := range w.Facts.Interfaces {
		if i.Name != "lo" && i.Master == "" && i.Up && len(i.Addresses) > 0 && !slices.Contains(w.Facts.DefaultRoute, i.Name) && writable(i.Name) {
			out = append(out, i)
		}
	}
	return out
}

func (w *writer) zones() {
	others := w.others()
	if len(w.Facts.DefaultRoute) == 0 && len(others) == 0 {
		return
	}
	w.line("")
	indent := "  # "
	if len(w.Facts.DefaultRoute) > 0 {
		w.line("zones:")
		w.line("  wan: { interfaces: [default-route] } # currently %s", shown(strings.Join(w.Facts.DefaultRoute, ", ")))
	} else {
		w.line("# zones: # this host has no default route now")
		indent = "#   "
	}
	for n, i := range others {
		var networks []string
		for _, a := range i.Addresses {
			if !a.Addr().IsLinkLocalUnicast() {
				networks = append(networks, a.Masked().String())
			}
		}
		kind := ""
		if i.Kind != "" && i.Kind != "device" {
			kind = ", a " + shown(i.Kind)
		}
		w.line("%sside%d: { interfaces: [%q] } # %s%s", indent, n+1, i.Name, orNothing(strings.Join(networks, ", ")), kind)
	}
}

func orNothing(text string) string {
	if text == "" {
		return "no network"
	}
	return text
}

func (w *writer) sets() {
	peers := w.peers()
	if len(peers) == 0 {
		return
	}
	w.line("")
	w.line("sets:")
	w.line("  admins: [%s] # logged in over ssh when this was written", quotedList(peers))
}

// peers is who is logged in, but from the host itself.
func (w *writer) peers() []netip.Addr {
	var all []netip.Addr
	for _, p := range w.Facts.SSHClients {
		if a := p.Remote.Addr(); !p.Unproved && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			all = append(all, a)
		}
	}
	return sorting.Unique(all, netip.Addr.Compare)
}

func quotedList(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		if a.Is6() {
			texts = append(texts, fmt.Sprintf("%q", a))
		} else {
			texts = append(texts, a.String())
		}
	}
	return strings.Join(texts, ", ")
}

func (w *writer) input() {
	w.line("")
	if len(w.peers()) > 0 {
		w.line("# never-ban: [admins] # none of your bans can lock them out")
		w.line("")
	}
	w.line("input:")
	w.line("  default: drop")
	w.line("  rules:")
	w.ssh()
	for _, e := range w.tunnels() {
		if !slices.ContainsFunc(w.SSHPorts, func(p uint16) bool { return e.service == serviceName("tcp", p) }) {
			w.line("    - allow %s # %s", e.service, e.reason)
		}
	}
	for _, o := range w.Facts.OuterFlows {
		if o.Unknown != "" {
			w.line("    # %s is logged in through %s, but the packets that carry the tunnel are not known: %s.", o.Peer, shown(o.Tunnel), shown(o.Unknown))
			w.line("    # Add a rule for the tunnel here.")
		}
	}
	w.line("    # - allow icmp echo-request limit 20/second # ping; the ICMP that the network needs always passes")
	open, unsure, loopback, clients := w.sorted()
	for _, e := range open {
		w.line("    # - allow %s # %s", e.service, e.reason)
	}
	if len(unsure) > 0 {
		w.line("    # The kernel gives such ports to clients, and the replies to clients need no rule.")
		w.line("    # A server or a VPN on such a port is cut off without one:")
		for _, e := range unsure {
			w.line("    # - allow %s # %s", e.service, e.reason)
		}
	}
	if len(loopback) > 0 {
		w.line("    # These listen only on loopback, which is always allowed:")
		for _, e := range loopback {
			w.line("    #   %s, %s", e.service, e.reason)
		}
	}
	if len(clients) > 0 {
		w.line("    # These need no rule, since replies to their requests always pass:")
		for _, e := range clients {
			w.line("    #   %s, %s", e.service, e.reason)
		}
	}
	w.askers()
}

// askers names who would get no answers if tracking were bypassed at the port.
func (w *writer) askers() {
	if len(w.Facts.Askers) == 0 {
		return
	}
	w.line("    # These send requests from a port of their own. While tracking is on, the replies need no rule;")
	w.line("    # if \"tracking: bypass\" names the port, a rule must allow them:")
	for _, a := range w.Facts.Askers {
		var whom []string
		for _, p := range a.Peers {
			whom = append(whom, p.Addr().String())
		}
		who := shown(a.Name)
		if whom = slices.Compact(whom); len(whom) > 0 {
			who += " sends to " + fewOf(whom)
		}
		w.line("    #   %s, %s", serviceName(a.Protocol, a.Port), who)
	}
}

func (w *writer) ssh() {
	if len(w.SSHPorts) == 0 {
		w.line("    # - allow ssh # no ssh server listens, and nobody is logged in over ssh")
		return
	}
	admins := len(w.peers()) > 0
	for _, port := range w.SSHPorts {
		service := serviceName("tcp", port)
		reason := "nothing listens there now, but somebody is logged in through it"
		if i := slices.IndexFunc(w.Listeners, func(l Listener) bool { return l.Protocol == "tcp" && l.Port == port }); i >= 0 {
			reason = w.Listeners[i].reason()
		}
		w.line("    - allow %s # %s", service, reason)
		if admins {
			w.line("    # - allow %s from admins # instead of the line above, to allow nobody else", service)
		}
	}
}

// expect shows what can be proved of the policy.
func (w *writer) expect() {
	if len(w.peers()) == 0 || len(w.SSHPorts) == 0 {
		return
	}
	w.line("")
	w.line("# expect: # proved for every packet before each apply, which fails if it does not hold")
	for _, port := range w.SSHPorts {
		w.line("#   - allow %s from admins", serviceName("tcp", port))
	}
}

// forward explains why the section is left out.
func (w *writer) forward() {
	w.line("")
	w.line("# There is no section \"output\": what this host sends is not filtered.")
	switch {
	case len(w.Facts.Published) > 0:
		w.line("# There is no section \"forward\": packets through this host are not filtered, and the ports that")
		w.line("# other tools publish stay open to everybody. This closes all that it does not allow:")
		w.line("# forward:")
		w.line("#   default: drop")
		w.line("#   rules:")
		for n := range w.others() {
			w.line("#     - allow any from side%d # hosts behind it connect to others", n+1)
		}
		for _, p := range w.published() {
			w.line("#     - allow published %s # published by another tool%s", p.service, p.reason)
		}
	case w.Facts.Forwarding4 || w.Facts.Forwarding6:
		w.line("# There is no section \"forward\": this host forwards packets, and they are not filtered.")
	default:
		w.line("# There is no section \"forward\": this host does not forward packets.")
	}
	for _, line := range w.Facts.Unread {
		w.line("# Could not be read: %s", shown(line))
	}
}

// writable says whether a name can be in a policy as an interface.
func writable(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"\*`, r) })
}

// shown makes a text of the system fit for a comment of one line.
func shown(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f {
			return '?'
		}
		return r
	}, text)
}

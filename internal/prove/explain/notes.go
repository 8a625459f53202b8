package explain

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// notes are what may happen to a packet beside the policy.
func (e *Followed) notes() []string {
	notes := []string{}
	add := func(text string) {
		if text != "" {
			notes = append(notes, text)
		}
	}
	add(e.untracked())
	add(e.noInterface())
	add(e.otherRewriting())
	add(e.banned())
	if e.Path.Verdict != policy.Allow || e.Banned() {
		return notes
	}
	add(e.notForwarded())
	add(e.otherInterface())
	add(e.foreignChains())
	if state := e.Path.Packet.State; state == packet.Established || state == packet.Related {
		first := e.Packet
		first.State = packet.New
		if begun := reference.Follow(e.Resolved, first, e.Way); first.Tuple() != begun.Packet.Tuple() {
			add("a connection keeps the rewriting that it began with, which is not shown here: explain its first packet")
		}
	}
	return notes
}

// untracked says that the packet cannot have the state that was asked about.
func (e *Followed) untracked() string {
	asked := e.Packet
	asked.State = ""
	if said := e.Packet.State; said == "" || said == packet.Untracked ||
		reference.Follow(e.Resolved, asked, e.Way).Packet.State != packet.Untracked {
		return ""
	}
	state := e.Words.Name(State)
	return fmt.Sprintf("connection tracking never sees this packet, whatever %s says: omit %s", state, state)
}

// otherRewriting says that what the packet becomes depends on the way that it goes.
func (e *Followed) otherRewriting() string {
	var becomes []string
	for _, w := range e.ways {
		if text := Ends(w.path.Packet); w.path.Verdict == policy.Allow && !slices.Contains(becomes, text) {
			becomes = append(becomes, text)
		}
	}
	if len(becomes) < 2 {
		return ""
	}
	return "depending on its route, it becomes a packet " + strings.Join(becomes, ", or ")
}

// noInterface says that the host has no interface of a name that was said.
func (e *Followed) noInterface() string {
	facts := &e.Resolved.Facts
	for _, name := range []string{e.Packet.In, e.Packet.Out} {
		is := func(i host.Interface) bool { return i.Name == name }
		if name != "" && name != "lo" && facts.Known && !slices.ContainsFunc(facts.Interfaces, is) {
			return "this host has no interface " + name + " at the moment"
		}
	}
	return ""
}

// otherInterface says that routing leads the packet elsewhere than was said.
func (e *Followed) otherInterface() string {
	r := e.Path.Route
	if e.Packet.Out == "" || r.Leads != host.Onward || slices.Contains(r.Out, e.Packet.Out) {
		return ""
	}
	return fmt.Sprintf("by the routes of this host, the packet leaves by %s, not by %s", strings.Join(r.Out, " or "), e.Packet.Out)
}

// notForwarded says that the host forwards no packet at all.
func (e *Followed) notForwarded() string {
	facts := &e.Resolved.Facts
	name, on := "net.ipv4.ip_forward", facts.Forwarding4
	if e.Packet.Source.Is6() {
		name, on = "net.ipv6.conf.all.forwarding", facts.Forwarding6
	}
	if e.Path.Hook != policy.Forward || !facts.Known || on {
		return ""
	}
	return "this host forwards nothing, whatever the policy says: " + name + " is 0"
}

// foreignChains names the chains of other tools that see the packet too.
func (e *Followed) foreignChains() string {
	hooks := map[policy.Hook][]string{
		policy.Input: {"prerouting", "input"}, policy.Forward: {"prerouting", "forward", "postrouting"}, policy.Output: {"output", "postrouting"},
	}[e.Path.Hook]
	family := map[int]string{4: "ip", 6: "ip6"}[familyOf(e.Packet.Source)]
	var names []string
	for _, c := range e.Resolved.Facts.ForeignChains {
		if c.Drops && slices.Contains(hooks, c.Hook) && (c.Family == "inet" || c.Family == family) {
			names = append(names, fmt.Sprintf("%s of table %s %s (%s)", c.Name, c.Family, c.Table, c.Hook))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "chains of other tools see the packet too, and may still drop it: " + strings.Join(names, ", ")
}

package cli

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/packet"
	"sluice/internal/engine/apply"
	"sluice/internal/language/bans"
	"sluice/internal/language/policy"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// notes are what may become of a packet beside the policy.
func (e *explained) notes() []string {
	notes := []string{}
	add := func(text string) {
		if text != "" {
			notes = append(notes, text)
		}
	}
	add(e.untracked())
	add(e.noInterface())
	add(e.otherRewriting())
	if e.path.Verdict != policy.Allow {
		return notes
	}
	add(e.notForwarded())
	add(e.otherInterface())
	add(e.bannedByCommand())
	add(e.foreignChains())
	if state := e.path.Packet.State; state == packet.Established || state == packet.Related {
		first := e.packet
		first.State = packet.New
		if begun := reference.Follow(e.resolved, first, e.way); !sameTuple(first, begun.Packet) {
			add("a connection keeps the rewriting that it began with, which is not shown here: ask for its first packet")
		}
	}
	return notes
}

// untracked says that the packet cannot have the state that was asked about.
func (e *explained) untracked() string {
	asked := e.packet
	asked.State = ""
	if said := e.packet.State; said == "" || said == packet.Untracked ||
		reference.Follow(e.resolved, asked, e.way).Packet.State != packet.Untracked {
		return ""
	}
	return "connection tracking never sees this packet, whatever --state says: ask without --state"
}

// otherRewriting says that what the packet becomes depends on the way that it goes.
func (e *explained) otherRewriting() string {
	var becomes []string
	for _, w := range e.ways {
		if text := endsText(w.path.Packet); w.path.Verdict == policy.Allow && !slices.Contains(becomes, text) {
			becomes = append(becomes, text)
		}
	}
	if len(becomes) < 2 {
		return ""
	}
	return "by the way that it goes, it becomes a packet " + strings.Join(becomes, ", or ")
}

// noInterface says that the host has no interface of a name that was said.
func (e *explained) noInterface() string {
	for _, name := range []string{e.packet.In, e.packet.Out} {
		is := func(i host.Interface) bool { return i.Name == name }
		if name != "" && name != "lo" && e.facts.Known && !slices.ContainsFunc(e.facts.Interfaces, is) {
			return "this host has no interface " + name + " now"
		}
	}
	return ""
}

// otherInterface says that routing leads the packet elsewhere than was said.
func (e *explained) otherInterface() string {
	r := e.path.Route
	if e.packet.Out == "" || r.Leads != host.Onward || slices.Contains(r.Out, e.packet.Out) {
		return ""
	}
	return fmt.Sprintf("the routes of this host lead the packet out by %s, not by %s", strings.Join(r.Out, " or "), e.packet.Out)
}

// notForwarded says that the host forwards no packet at all.
func (e *explained) notForwarded() string {
	name, on := "net.ipv4.ip_forward", e.facts.Forwarding4
	if e.packet.Source.Is6() {
		name, on = "net.ipv6.conf.all.forwarding", e.facts.Forwarding6
	}
	if e.path.Hook != policy.Forward || !e.facts.Known || on {
		return ""
	}
	return "this host forwards nothing, whatever the policy says: " + name + " is 0"
}

// bannedByCommand says that this host drops the packet by a ban that is not in
// the policy. Bans that cannot be read are left out: not everybody may.
func (e *explained) bannedByCommand() string {
	if e.elsewhere || e.path.Stage == "loopback" {
		return ""
	}
	base, err := filepath.Abs(e.options.stateDir)
	if err != nil {
		return ""
	}
	dir, err := apply.Dir(base, e.options.netns)
	if err != nil {
		return ""
	}
	list, err := bans.Open(dir).Read()
	if err != nil {
		return ""
	}
	p := e.path.Packet
	ends := []netip.Addr{e.packet.Source, p.Destination}
	switch e.path.Hook {
	case policy.Input:
		ends = ends[:1]
	case policy.Output:
		ends = ends[1:]
	}
	for _, ban := range bans.Live(list.Bans, time.Now()) {
		for _, a := range ends {
			if !holdsAddress(ban, a) || reference.NeverBanned(e.resolved, a) {
				continue
			}
			text := fmt.Sprintf("%s is banned by command (%s)", a, ban.What)
			if ban.Reason != "" {
				text += ", for " + ban.Reason
			}
			return text + ": with any policy loaded that has rules, this host drops the packet, until sluice unban " + ban.What.String()
		}
	}
	return ""
}

// untilBan is what a packet passes up to a ban by command, which is asked where those of
// the policy are.
func (e *explained) untilBan(reason string) (steps []reference.Step) {
	for _, s := range e.path.Steps {
		if s.Hook == string(e.path.Hook) && !slices.Contains([]string{"tracking", "nat", "routing", "rewrite", "loopback", "ban"}, s.Stage) {
			break
		}
		steps = append(steps, s)
	}
	why, _, _ := strings.Cut(reason, ": ")
	return append(steps, reference.Step{Hook: string(e.path.Hook), Stage: "ban", Reason: why, Decides: true})
}

func holdsAddress(ban bans.Ban, a netip.Addr) bool {
	return ban.What.From.Is4() == a.Is4() && ban.What.From.Compare(a) <= 0 && a.Compare(ban.What.To) <= 0
}

// foreignChains names the chains of other tools that see the packet too.
func (e *explained) foreignChains() string {
	hooks := map[policy.Hook][]string{
		policy.Input: {"prerouting", "input"}, policy.Forward: {"prerouting", "forward", "postrouting"}, policy.Output: {"output", "postrouting"},
	}[e.path.Hook]
	family := map[int]string{4: "ip", 6: "ip6"}[familyOf(e.packet.Source)]
	var names []string
	for _, c := range e.facts.ForeignChains {
		if c.Drops && slices.Contains(hooks, c.Hook) && (c.Family == "inet" || c.Family == family) {
			names = append(names, fmt.Sprintf("%s of table %s %s (%s)", c.Name, c.Family, c.Table, c.Hook))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "chains of other tools see the packet too, and may still drop it: " + strings.Join(names, ", ")
}

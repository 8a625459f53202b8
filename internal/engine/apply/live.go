package apply

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/link"
	"sluice/internal/system/kernel/socket"
)

// LiveFlow is a connection that exists and that other sets concern.
type LiveFlow struct {
	Protocol string `json:"protocol"` // "tcp", "udp", or a number
	From     string `json:"from"`     // address and port
	To       string `json:"to"`
	// Cut says that an end of it is banned, so that it ends; else only a new
	// connection like it would be refused.
	Cut bool   `json:"cut"`
	By  string `json:"by,omitempty"` // the rule or default that refuses it
}

// String is one line.
func (f LiveFlow) String() string {
	text := fmt.Sprintf("%s %s to %s: ", f.Protocol, f.From, f.To)
	if f.Cut {
		return text + "cut, since one end is banned"
	}
	return text + "would not be allowed again, by " + f.By
}

// maxFlows bounds how many live flows are named.
const maxFlows = 1000

// concerned lists the live flows that the old program accepts and the new one
// refuses: tracked ones and, of those that are not, the host's own.
func (s *session) concerned(old, new *program.Program) ([]LiveFlow, error) {
	c := concern{old: old, new: new, changed: changedAddresses(old, new), seen: map[string]bool{}, routing: link.NewRouting()}
	if c.changed.IsEmpty() {
		return nil, nil
	}
	c.banned = bannedBy(new).Difference(bannedBy(old))
	var err error
	if c.local, err = localAddresses(); err != nil {
		return nil, err
	}
	flows, err := conntrack.List()
	if err != nil {
		return nil, err
	}
	for _, e := range flows {
		c.tracked(e)
	}
	sockets, err := socket.TCP()
	if err != nil {
		return nil, err
	}
	listening := map[uint16]bool{}
	for _, k := range sockets {
		if k.State == socket.Listen {
			listening[k.Local.Port()] = true
		}
	}
	for _, k := range sockets {
		if k.State == socket.Established {
			c.socket(k, listening[k.Local.Port()])
		}
	}
	return c.out, nil
}

type concern struct {
	old, new *program.Program
	changed  addrset.Set // addresses that are in other sets now
	banned   addrset.Set // that were not
	local    map[netip.Addr]bool
	routing  *link.Routing
	seen     map[string]bool
	out      []LiveFlow
}

// changedAddresses is what came to sets and went from them.
func changedAddresses(old, new *program.Program) addrset.Set {
	var out addrset.Set
	add := func(a, b *program.Set) {
		var before, after addrset.Set
		if a != nil {
			before = addressesOf(a)
		}
		if b != nil {
			after = addressesOf(b)
		}
		out = out.Union(after.Difference(before)).Union(before.Difference(after))
	}
	for i := range new.Sets {
		add(old.Set(new.Sets[i].ID), &new.Sets[i])
	}
	for i := range old.Sets {
		if new.Set(old.Sets[i].ID) == nil {
			add(&old.Sets[i], nil)
		}
	}
	return out
}

// bannedBy is what a policy bans, wherever that is asked.
func bannedBy(p *program.Program) addrset.Set {
	return bannedIn(p, program.StageBan, program.StageBanFlows)
}

func (c *concern) tracked(e conntrack.Entry) {
	ends := []netip.Addr{e.Original.Source, e.Original.Destination, e.Reply.Source, e.Reply.Destination}
	key := fmt.Sprint(e.Protocol, netip.AddrPortFrom(e.Original.Source, e.Original.SourcePort), netip.AddrPortFrom(e.Original.Destination, e.Original.DestinationPort))
	mirror := fmt.Sprint(e.Protocol, netip.AddrPortFrom(e.Original.Destination, e.Original.DestinationPort), netip.AddrPortFrom(e.Original.Source, e.Original.SourcePort))
	c.seen[key], c.seen[mirror] = true, true
	if e.State.Ended() || !c.touches(ends...) {
		return
	}
	first, way := firstPacket(e, c.local)
	c.judge(first, way, ofBanned(e, c.banned, c.local))
}

func (c *concern) touches(ends ...netip.Addr) bool {
	for _, a := range ends {
		if a.IsValid() && c.changed.Contains(a) && !c.local[a] {
			return true
		}
	}
	return false
}

// socket is for connections of the host's own that are not tracked.
func (c *concern) socket(k socket.Socket, serves bool) {
	local, remote := netip.AddrPortFrom(k.Local.Addr().Unmap(), k.Local.Port()), netip.AddrPortFrom(k.Remote.Addr().Unmap(), k.Remote.Port())
	if c.seen[fmt.Sprint(uint8(packet.TCP), local, remote)] || !c.touches(remote.Addr()) {
		return
	}
	p := packet.Packet{
		Source: local.Addr(), SourcePort: local.Port(), Destination: remote.Addr(), Port: remote.Port(),
		Protocol: packet.TCP, Flags: packet.SYN, Owner: -1, SourceLocal: packet.Yes, DestinationLocal: packet.No,
	}
	way := reach.Out
	if serves {
		way = reach.In
		p.Source, p.Destination, p.SourcePort, p.Port = p.Destination, p.Source, p.Port, p.SourcePort
		p.SourceLocal, p.DestinationLocal = packet.No, packet.Yes
	}
	c.judge(p, way, c.banned.Contains(remote.Addr()))
}

func (c *concern) judge(first packet.Packet, way reach.Way, cut bool) {
	if len(c.out) == maxFlows {
		return
	}
	addDevices(c.routing, &first, way)
	after := reach.Evaluate(c.new, first, way)
	refuses := after.Certain && after.Verdict != program.Accept
	if !cut {
		before := reach.Evaluate(c.old, first, way)
		if !refuses || before.Certain && before.Verdict != program.Accept {
			return
		}
	}
	f := LiveFlow{
		Protocol: protocolName(first.Protocol), Cut: cut,
		From: netip.AddrPortFrom(first.Source, first.SourcePort).String(),
		To:   netip.AddrPortFrom(first.Destination, first.Port).String(),
	}
	if refuses {
		f.By = after.Describe()
	}
	c.out = append(c.out, f)
}

// networks6 counts the networks of 64 bits that a set has IPv6 addresses of, as
// far as 64 bits count.
func networks6(s addrset.Set) uint64 {
	var out, last uint64
	network := func(a netip.Addr) uint64 {
		all := a.As16()
		return binary.BigEndian.Uint64(all[:8])
	}
	for r := range s.Only6().Each() {
		from, to := network(r.From), network(r.To)
		n := to - from
		if out == 0 || from != last {
			if n < math.MaxUint64 {
				n++
			}
		}
		if out > math.MaxUint64-n {
			return math.MaxUint64
		}
		out, last = out+n, to
	}
	return out
}

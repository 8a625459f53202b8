package host

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/link"
	"sluice/internal/system/kernel/socket"
	"sluice/internal/system/kernel/wireguard"
	"sluice/internal/system/kernel/xfrm"
)

// Begins says which packet of an outer flow has to be let through as the first one,
// so that the tunnel comes back when its state is forgotten.
type Begins string

// The ways in which outer flows begin.
const (
	// FromOutside: the other end sends first, or may at any time.
	FromOutside Begins = "outside"
	// FromHere: the host opens a connection again when it ends.
	FromHere Begins = "here"
	// FromEither: the host sends by itself, so that what it is answered belongs to a
	// known flow; a first packet from outside is as good.
	FromEither Begins = "either"
)

// OuterFlow is a flow that carries the packets of somebody who manages the host
// through a tunnel. It is plain data, and comparable.
type OuterFlow struct {
	Peer      netip.Addr     `json:"peer"`               // who is logged in through the tunnel
	Tunnel    string         `json:"tunnel"`             // its device, or "IPsec"
	Protocol  uint8          `json:"protocol,omitempty"` // IANA
	Remote    netip.AddrPort `json:"remote,omitzero"`    // an invalid address may be any; port 0: not known, or none
	Local     netip.AddrPort `json:"local,omitzero"`
	Interface string         `json:"interface,omitempty"` // that its packets come in by; "" is not known
	Begins    Begins         `json:"begins,omitempty"`
	Unknown   string         `json:"unknown,omitempty"` // why nothing of the above is known
}

// readOuterFlows finds what carries the packets of those who are logged in.
func (f *Facts) readOuterFlows() {
	var err error
	if f.OuterFlows, err = outerFlows(f.SSHClients); err != nil {
		f.unread("tunnels of ssh peers", err)
	}
}

// outerFlows finds the flows that carry the packets of ssh peers, where these come
// through tunnels of this host; those of tunnels inside of tunnels too. They are
// sorted, and none is given twice.
func outerFlows(peers []SSHClient) ([]OuterFlow, error) {
	if len(peers) == 0 {
		return nil, nil
	}
	f, err := newOuterFinder()
	if err != nil || !f.tunnels() {
		return nil, err
	}
	return f.ofPeers(peers)
}

// OuterFlowsOf is outerFlows of everybody who is logged in at this moment, those
// flows alone that come from addresses that are asked of; own is as of Describe.
// Processes are looked at only where there are tunnels.
func OuterFlowsOf(asked func(netip.Addr) bool, own *SSHClient) ([]OuterFlow, error) {
	f, err := newOuterFinder()
	if err != nil || !f.tunnels() {
		return nil, err
	}
	peers, err := SSHClientsOf(func(netip.Addr) bool { return true })
	if err != nil {
		return nil, err
	}
	if own != nil {
		peers = append(peers, *own)
	}
	flows, err := f.ofPeers(peers)
	return slices.DeleteFunc(flows, func(o OuterFlow) bool {
		a := o.Remote.Addr()
		return !a.IsValid() || !asked(a)
	}), err
}

// Tunnels says whether the host has anything that packets could come inside of: links, or
// IPsec policies.
func Tunnels() (bool, error) {
	f, err := newOuterFinder()
	return err == nil && f.tunnels(), err
}

func (f *outerFinder) ofPeers(peers []SSHClient) ([]OuterFlow, error) {
	for _, p := range peers {
		a := p.Remote.Addr()
		if !a.IsValid() || f.own(a) {
			continue
		}
		f.peer = a
		over := flow{protocol: protocolTCP, remote: p.Remote, local: p.Local}
		device, _, err := link.Way(over.answer(0))
		if err != nil {
			continue // the guard says that the interface is not known
		}
		f.follow(over, device)
	}
	return sorting.Unique(f.out, compareOuter), f.err
}

func compareOuter(a, b OuterFlow) int {
	text := func(o OuterFlow) string {
		return fmt.Sprint(o.Peer, o.Tunnel, o.Protocol, o.Remote, o.Local, o.Interface, o.Begins, o.Unknown)
	}
	return slices.Compare([]byte(text(a)), []byte(text(b)))
}

// flow is a flow as this host sees it.
type flow struct {
	protocol      uint8
	remote, local netip.AddrPort
}

// answer is what the host sends in it, bearing a mark.
func (f flow) answer(mark uint32) link.Lookup {
	return link.Lookup{
		Source: f.local.Addr(), Destination: f.remote.Addr(), Mark: mark,
		Protocol: f.protocol, SourcePort: f.local.Port(), Port: f.remote.Port(), User: -1,
	}
}

// Protocols of outer packets, IANA.
const (
	protocolIPv4 = 4
	protocolTCP  = 6
	protocolUDP  = 17
	protocolIPv6 = 41
)

// outerFinder follows tunnels. What the kernel is asked is asked once.
type outerFinder struct {
	devices   map[string]link.Device
	policies  []xfrm.Policy
	states    []xfrm.State
	wireguard []wireguard.Device
	udp, tcp  []socket.Socket
	entries   []conntrack.Entry
	asked     map[string]bool

	ownAddresses map[netip.Addr]bool
	addresses    map[string][]netip.Addr // by device
	ways         []string                // devices of the default routes; all others where there are none

	peer netip.Addr
	seen map[OuterFlow]bool
	out  []OuterFlow
	err  error // the first of what could not be read
}

func newOuterFinder() (*outerFinder, error) {
	devices, err := link.Devices()
	if err != nil {
		return nil, err
	}
	f := &outerFinder{devices: map[string]link.Device{}, asked: map[string]bool{}, seen: map[OuterFlow]bool{}}
	for _, d := range devices {
		f.devices[d.Name] = d
	}
	if f.policies, err = xfrm.PoliciesIn(); err != nil {
		return nil, err
	}
	return f, nil
}

// plain are the kinds of devices whose packets are inside of no IP packet of this
// host; layered are those whose packets go on by the device that they are made on,
// or by their ports. Any other kind is a tunnel.
var (
	plain   = []string{"device", "veth", "dummy", "ifb", "netkit", "wwan", "rmnet", "vcan", "can", "nlmon", "ipoib", "vrf"}
	layered = []string{"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec", "bridge", "bond", "team", "hsr", "batadv"}
)

// tunnels says whether there is anything at all that packets could come inside of.
func (f *outerFinder) tunnels() bool {
	if len(f.policies) > 0 {
		return true
	}
	for _, d := range f.devices {
		if !slices.Contains(plain, d.Kind) && !slices.Contains(layered, d.Kind) {
			return true
		}
	}
	return false
}

// once asks the kernel the first time.
func (f *outerFinder) once(what string, ask func() error) {
	if f.asked[what] {
		return
	}
	f.asked[what] = true
	if err := ask(); err != nil && f.err == nil {
		f.err = err
	}
}

func (f *outerFinder) own(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	f.once("own addresses", f.readOwn)
	return f.ownAddresses[a]
}

// add notes an outer flow, and follows it where it is inside of a tunnel itself.
func (f *outerFinder) add(tunnel string, o flow, begins Begins, mark uint32) {
	out := OuterFlow{Peer: f.peer, Tunnel: tunnel, Protocol: o.protocol, Remote: o.remote, Local: o.local, Begins: begins}
	if !o.remote.Addr().IsValid() {
		f.fromAnybody(out)
		return
	}
	device, source, err := link.Way(o.answer(mark))
	if err == nil && device != tunnel {
		out.Interface = device
	}
	if !o.local.Addr().IsValid() || o.local.Addr().IsUnspecified() {
		out.Local = netip.AddrPortFrom(source, o.local.Port())
	}
	if f.seen[out] {
		return
	}
	f.seen[out] = true
	f.out = append(f.out, out)
	if out.Interface != "" {
		f.follow(flow{o.protocol, out.Remote, out.Local}, out.Interface)
	}
}

// fromAnybody notes a flow whose other end is not known: it comes to an address of
// the devices of the default routes.
func (f *outerFinder) fromAnybody(o OuterFlow) {
	f.once("own addresses", f.readOwn)
	if a := o.Local.Addr(); a.IsValid() && !a.IsUnspecified() {
		for name, has := range f.addresses {
			if slices.Contains(has, a) {
				o.Interface = name
			}
		}
		f.note(o)
		return
	}
	wanted4 := !o.Local.Addr().IsValid() || o.Local.Addr().Is4()
	wanted6 := !o.Local.Addr().IsValid() || o.Local.Addr().Is6()
	found := false
	for _, name := range f.ways {
		done := map[bool]bool{}
		for _, a := range f.addresses[name] {
			if is6 := a.Is6(); a.IsLinkLocalUnicast() || done[is6] || is6 && !wanted6 || !is6 && !wanted4 {
				continue
			}
			done[a.Is6()], found = true, true
			at := o
			at.Interface, at.Local = name, netip.AddrPortFrom(a, o.Local.Port())
			f.note(at)
		}
	}
	if !found {
		f.unknown(o.Tunnel, "who is at its other end is not known")
	}
}

func (f *outerFinder) note(o OuterFlow) {
	if !f.seen[o] {
		f.seen[o] = true
		f.out = append(f.out, o)
	}
}

// unknown notes a tunnel whose outer flow is not known.
func (f *outerFinder) unknown(tunnel, why string) {
	f.note(OuterFlow{Peer: f.peer, Tunnel: tunnel, Unknown: why})
}

// began says who began a flow, as the connection table has it: where the host did,
// its program sends again by itself.
func (f *outerFinder) began(o flow, otherwise Begins) Begins {
	f.once("connection table", f.readEntries)
	for _, e := range f.entries {
		switch {
		case e.Protocol != o.protocol:
		case e.Original.Source == o.remote.Addr() && e.Original.SourcePort == o.remote.Port() && e.Reply.Source == o.local.Addr():
			return FromOutside
		case e.Original.Destination == o.remote.Addr() && e.Original.DestinationPort == o.remote.Port() && e.Original.Source == o.local.Addr():
			return FromEither
		}
	}
	return otherwise
}

// String reads as "wg0 of 10.8.0.2: UDP from 203.0.113.9:51820 to 198.51.100.1:51820".
func (o OuterFlow) String() string {
	if o.Unknown != "" {
		return fmt.Sprintf("%s of %s: not known: %s", o.Tunnel, o.Peer, o.Unknown)
	}
	return fmt.Sprintf("%s of %s: %s", o.Tunnel, o.Peer, o.Packets())
}

// Packets names the packets of the flow that come in.
func (o OuterFlow) Packets() string {
	from := "anybody"
	if o.Remote.Addr().IsValid() {
		from = endText(o.Remote)
	}
	return fmt.Sprintf("%s from %s to %s", protocolName(o.Protocol), from, endText(o.Local))
}

func endText(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}

func protocolName(n uint8) string {
	names := map[uint8]string{protocolIPv4: "IP in IP", protocolTCP: "TCP", protocolUDP: "UDP", protocolIPv6: "IPv6 in IP", 47: "GRE", 50: "ESP", 51: "AH"}
	if name := names[n]; name != "" {
		return name
	}
	return fmt.Sprintf("protocol %d", n)
}

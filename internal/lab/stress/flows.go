package stress

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/engine"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// perKind is how many flows are drawn of each kind at most: all together stay
// far below the connection table's usual size.
const perKind = 300

// flow is one packet that opens a connection.
type flow struct {
	kind     kind
	protocol uint8
	from, to netip.AddrPort
}

// drawFlows draws flows of every kind that the two policies have, by the judge
// that shares nothing with the compiler. Kinds that they have not come out empty.
func drawFlows(p pair, data string, facts host.Facts, seed uint64) ([]flow, error) {
	var resolved [2]*resolve.Resolved
	from := engine.Sources{Data: data}
	for i, file := range p.files {
		p, err := policy.Load(file)
		if err != nil {
			return nil, err
		}
		if resolved[i], err = from.Resolve(context.Background(), p, facts); err != nil {
			return nil, err
		}
	}
	random := rand.New(rand.NewPCG(seed, 1))
	var out []flow
	for h := range hooks {
		for _, f := range families {
			have := map[class]int{}
			for _, a := range candidates(resolved, f, seed) {
				fl := flow{protocol: packet.UDP}
				if h != output && random.IntN(2) == 0 {
					fl.protocol = packet.TCP
				}
				c := fl.place(h, a, resolved)
				if have[c]++; have[c] <= perKind {
					fl.kind = kind{h, f, c}
					fl.from = netip.AddrPortFrom(fl.from.Addr(), fl.kind.port())
					out = append(out, fl)
				}
			}
		}
	}
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out, nil
}

// candidates are addresses elsewhere: of the countries of either policy, of what
// either bans, and of anywhere.
func candidates(resolved [2]*resolve.Resolved, f family, seed uint64) (out []netip.Addr) {
	which := addrset.IPv4
	if f == 6 {
		which = addrset.IPv6
	}
	served := [2]addrset.Set{resolved[0].Sets["served"].Addresses, resolved[1].Sets["served"].Addresses}
	shared := served[0].Intersect(served[1])
	from := []addrset.Set{shared, served[0], served[1], addrset.All()}
	for i, r := range resolved {
		from = append(from, r.Sets["banned"].Addresses.Intersect(shared), r.Sets["banned"].Addresses.Intersect(served[i]))
	}
	for i, s := range from {
		if f == 4 && s.Len4() == 0 || f == 6 && s.Len6() == 0 {
			continue
		}
		for _, a := range measure.ByAddress(s, which, perKind, seed+uint64(i)) {
			if !a.IsPrivate() && a.IsGlobalUnicast() && !ours.Contains(a) {
				out = append(out, a)
			}
		}
	}
	return out
}

// ours are the lab's own networks.
var ours = addrset.FromPrefixes(
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("10.77.0.0/24"),
	netip.MustParsePrefix("2001:db8:1::/64"), netip.MustParsePrefix("2001:db8:77::/64"),
)

// place makes a flow from, or of output to, an address elsewhere, and says which
// policies allow it.
func (fl *flow) place(h hook, elsewhere netip.Addr, resolved [2]*resolve.Resolved) class {
	own, target := netip.MustParseAddr(hostV4), netip.MustParseAddr(insideV4)
	if elsewhere.Is6() {
		own, target = netip.MustParseAddr(hostV6), netip.MustParseAddr(insideV6)
	}
	p := packet.Packet{
		In: wan, Source: elsewhere, Destination: own, Protocol: fl.protocol, Port: flowPort, SourcePort: firstPort,
		State: packet.New, Owner: -1, HopLimit: 64, DestinationLocal: packet.Yes, SourceLocal: packet.No,
	}
	if fl.protocol == packet.TCP {
		p.Flags = packet.SYN
	}
	at := policy.Input
	switch h {
	case forward:
		p.Out, p.Destination, p.DestinationLocal = lan, target, packet.No
		at = policy.Forward
	case output:
		p.In, p.Out, p.Source, p.Destination = "", wan, own, elsewhere
		p.SourceLocal, p.DestinationLocal, p.Owner = packet.Yes, packet.No, 0
		at = policy.Output
	}
	fl.from, fl.to = netip.AddrPortFrom(p.Source, 0), netip.AddrPortFrom(p.Destination, flowPort)
	var allowed [2]bool
	for i, r := range resolved {
		allowed[i] = reference.Judge(r, p, at).Action == policy.Allow
	}
	switch {
	case allowed[0] && allowed[1]:
		return both
	case allowed[0]:
		return first
	case allowed[1]:
		return second
	}
	return neither
}

// packet is the flow on the wire.
func (fl *flow) packet() []byte {
	if fl.protocol == packet.TCP {
		return testnet.SYN(fl.from, fl.to, 1400)
	}
	return testnet.UDP(fl.from, fl.to, []byte("flow")...)
}

// demand says that flows of every class are there in both families on a way in,
// so that nothing is shown by their absence.
func demand(flows []flow) error {
	have := map[kind]int{}
	for _, f := range flows {
		have[f.kind]++
	}
	for _, k := range kinds() {
		if k.hook != output && have[k] == 0 {
			return fmt.Errorf("no flow of %s, IPv%d, that %s was drawn", k.hook, k.family, k.class)
		}
	}
	return nil
}

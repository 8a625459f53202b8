package applybench

import (
	"math/rand/v2"
	"net/netip"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/reference"
)

func generator(seed, round uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, round)) }

// pick draws n ranges, or all there are.
func pick(random *rand.Rand, from []addrset.Range, n int) addrset.Set {
	var b addrset.Builder
	for _, i := range random.Perm(len(from))[:min(n, len(from))] {
		b.AddRange(from[i])
	}
	return b.Set()
}

// class says what old and new state do with a flow.
type class int

const (
	allowed     class = iota // new, and both allow it
	established              // of a known connection, which both allow though it could not be opened
	refused                  // new, and neither allows it
	classes
)

func (c class) String() string { return [...]string{"allowed", "established", "refused"}[c] }

// flow is one packet.
type flow struct {
	class    class
	family   int // 4 or 6
	protocol uint8
	from, to netip.AddrPort
}

// perClass is how many flows are drawn of a class and family at most. They are few
// enough for every connection table.
const perClass = 200

// sourcePort tells a flow's class to the watch.
func (c class) sourcePort() uint16 { return 21000 + uint16(c) }

// packet is the flow on the wire.
func (f *flow) packet() []byte {
	switch {
	case f.class == established:
		return testnet.TCP(f.from, f.to, "A")
	case f.protocol == packet.TCP:
		return testnet.SYN(f.from, f.to, 1400)
	}
	return testnet.UDP(f.from, f.to, []byte("flow")...)
}

// drawFlows draws flows to the host of every class, by the judge that shares nothing
// with the compiler. Those whose rule counts what it lets in are left out: what
// happens to them depends on the flood.
func drawFlows(of []*state, device string, seed uint64) []flow {
	first := of[0].resolved
	ports, counted := services(first)
	random := generator(seed, 0)
	var out []flow
	for _, own := range []netip.Addr{hostV4, hostV6} {
		f := 4
		if own.Is6() {
			f = 6
		}
		have := map[class]int{}
		sources := sources(first, f, seed)
		random.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
		for _, a := range sources {
			port := ports[random.IntN(len(ports))]
			fl := flow{family: f, protocol: port.protocol}
			p := packet.Packet{
				In: device, Source: a, Destination: own, Protocol: port.protocol, Port: port.number, SourcePort: allowed.sourcePort(),
				State: packet.New, Owner: -1, HopLimit: 64, DestinationLocal: packet.Yes, SourceLocal: packet.No,
			}
			if port.protocol == packet.TCP {
				p.Flags = packet.SYN
			}
			yes, no, limited := judge(of, p, counted)
			switch {
			case limited:
				continue
			case yes:
				fl.class = allowed
			case no && have[established] < have[refused] && port.protocol == packet.TCP:
				p.State, p.Flags = packet.Established, packet.ACK
				if yes, _, _ := judge(of, p, counted); !yes {
					continue
				}
				fl.class = established
			case no:
				fl.class = refused
			default:
				continue
			}
			if have[fl.class]++; have[fl.class] <= perClass {
				fl.from, fl.to = netip.AddrPortFrom(a, fl.class.sourcePort()), netip.AddrPortFrom(own, port.number)
				out = append(out, fl)
			}
		}
	}
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// judge says whether every state allows a packet, and whether every one refuses it.
func judge(of []*state, p packet.Packet, counted map[string]bool) (yes, no, limited bool) {
	yes, no = true, true
	for _, s := range of {
		a := reference.Judge(s.resolved, p, policy.Input)
		yes, no = yes && a.Action == policy.Allow, no && a.Action != policy.Allow
		limited = limited || counted[a.Why]
	}
	return yes, no, limited
}

// port is one of a protocol.
type port struct {
	protocol uint8
	number   uint16
}

// services are the ports that the rules of input speak of, and one that none is
// likely to; counted are the texts of the rules whose verdict depends on a count.
func services(r *resolve.Resolved) (ports []port, counted map[string]bool) {
	counted = map[string]bool{}
	ports = []port{{packet.UDP, 39}, {packet.TCP, 39}}
	if r.Policy.Input == nil {
		return ports, counted
	}
	for _, rule := range r.Policy.Input.Rules {
		if rule.Limit != nil || rule.Max != nil {
			counted[rule.Text] = true
		}
		for _, s := range rule.Services {
			for _, m := range s.Matches {
				if m.Protocol != packet.TCP && m.Protocol != packet.UDP {
					continue
				}
				for _, p := range m.Ports {
					ports = append(ports, port{m.Protocol, p.From})
				}
			}
		}
	}
	return ports, counted
}

// sources are addresses elsewhere: of every set and zone, of every address that a
// rule names, and of anywhere.
func sources(r *resolve.Resolved, f int, seed uint64) (out []netip.Addr) {
	family := addrset.IPv4
	if f == 6 {
		family = addrset.IPv6
	}
	add := func(s addrset.Set) {
		s = measure.Usable(s).Difference(own)
		if f == 4 && s.Len4() > 0 || f == 6 && s.Len6() > 0 {
			seed++
			out = append(out, measure.ByAddress(s, family, perClass*4, seed)...)
		}
	}
	for _, set := range r.Policy.Sets {
		add(r.Sets[set.Name].Addresses)
	}
	for _, z := range r.Policy.Zones {
		add(r.Zones[z.Name].Networks)
	}
	if r.Policy.Input != nil {
		for _, rule := range r.Policy.Input.Rules {
			if rule.From == nil {
				continue
			}
			for _, item := range rule.From.Items {
				if item.Name == "" {
					add(addrset.Of(item.Literal))
				}
			}
		}
	}
	add(addrset.All())
	return out
}

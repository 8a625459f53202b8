package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/importer"
	"sluice/internal/program"
	"sluice/internal/prove/check"
	"sluice/internal/prove/reach"
)

var natHairpin = Check{
	ID:    "nat-hairpin",
	What:  "a service published by DNAT cannot be reached from the server's own network, or from the host itself",
	Least: check.Remark,
	Why: `A client in the server's own network connects to the public address: DNAT sends the packet back
into that network, and the server answers the client directly, from an address that the client
did not connect to. It works if the source is rewritten as well, or if bridged frames pass
through connection tracking. From the host itself, 127.0.0.1 needs route_localnet and a
rewritten source. The doctor evaluates this for each port that rules rewrite.`,
	Fix: `Masquerade packets that go from that network back into it; or use a name that resolves to the
inside address there; or do not rewrite packets from inside.`,
	Undo: "Delete that rule.",
	look: func(s *Seen, say func(Finding)) {
		for _, r := range s.Rules {
			for _, family := range []int{4, 6} {
				if !meets(r, family) {
					continue
				}
				for _, of := range published(r, program.Prerouting) {
					s.hairpin(r, family, of, say)
				}
			}
			if meets(r, 4) {
				for _, of := range published(r, program.Output) {
					s.hairpinOwn(r, of, say)
				}
			}
		}
	},
}

// hairpin asks for a service from beside the server that it is led to.
func (s *Seen) hairpin(r *importer.Ruleset, family int, of service, say func(Finding)) {
	p, ok := s.fromInternet(family)
	if !ok {
		return
	}
	of.begin(&p)
	out, end, _ := s.forwarded(r, p)
	if out == nil || out.Kind == "bridge" && s.setting(map[int]string{4: "net.bridge.bridge-nf-call-iptables", 6: "net.bridge.bridge-nf-call-ip6tables"}[family]) == "1" {
		return
	}
	p.In, p.Source = out.Name, s.beside(out, end.Destination)
	if !p.Source.IsValid() {
		return
	}
	again, end, passes := s.forwarded(r, p)
	if again == nil || again.Index != out.Index || !passes || end.SNAT {
		return
	}
	say(Finding{
		Text: fmt.Sprintf("%s at %s cannot be reached from the network of its server, %s", of, p.Destination, out.Name),
		Evidence: []Evidence{
			found(toolOf(r), "%s from %s to %s in %s: %s sends it to %s, out by %s, and no rule rewrites its source: %s answers %s directly",
				of, p.Source, p.Destination, out.Name, rewriter(r, p), netip.AddrPortFrom(end.Destination, end.Port), out.Name, end.Destination, p.Source),
		},
		Fix: []string{
			fmt.Sprintf(`nft: iifname %q oifname %q masquerade, in a chain of type nat hook postrouting`, out.Name, out.Name),
			fmt.Sprintf("iptables: -t nat -A POSTROUTING -o %s -m conntrack --ctstate DNAT --ctorigdst %s -j MASQUERADE", out.Name, p.Destination),
		},
	})
}

// hairpinOwn asks for a service from the host itself, at 127.0.0.1.
func (s *Seen) hairpinOwn(r *importer.Ruleset, of service, say func(Finding)) {
	local := loopbackOf(netip.IPv4Unspecified())
	p := packet.Packet{Source: local, Destination: local, Out: "lo", SourceLocal: packet.Yes, DestinationLocal: packet.Yes}
	of.begin(&p)
	got := reach.Evaluate(r.Program, p, packet.Out).Packet
	if !got.DNAT || got.DestinationLocal == packet.Yes || s.own(got.Destination) || got.Destination.IsLoopback() {
		return
	}
	out := s.routed(got)
	if out == nil {
		return
	}
	setting := "net.ipv4.conf." + slashed(out.Name) + ".route_localnet"
	why := found("sysctl "+setting, "0: the kernel sends nothing from 127.0.0.1 out by %s", out.Name)
	fix := "sysctl -w " + setting + "=1, and masquerade packets from 127.0.0.0/8 that go out there"
	if s.setting("net.ipv4.conf.all.route_localnet") == "1" || s.setting(setting) == "1" {
		if slices.ContainsFunc(s.Rules, func(other *importer.Ruleset) bool {
			q := p
			if other != r {
				q = got // as r has left it
			}
			q.Out = out.Name
			return meets(other, 4) && acting(other.Program, q, packet.Out, rewritesSource) != nil
		}) {
			return
		}
		why, fix = found(toolOf(r), "no rule rewrites the source 127.0.0.1 of packets that go out by %s", out.Name), "masquerade packets from 127.0.0.0/8 that go out by "+out.Name
	}
	by := acting(r.Program, p, packet.Out, rewritesDestination)
	say(Finding{
		Text:     fmt.Sprintf("%s at 127.0.0.1 cannot be reached from the host itself", of),
		Evidence: []Evidence{found(toolOf(r), "%s from 127.0.0.1 to 127.0.0.1: %s sends it to %s, out by %s", of, byText(r, reach.Result{Rule: by}), netip.AddrPortFrom(got.Destination, got.Port), out.Name), why},
		Fix:      []string{fix, "or exclude 127.0.0.0/8 from the rule: ! -d 127.0.0.0/8"},
	})
}

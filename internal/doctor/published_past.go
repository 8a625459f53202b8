package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/check"
	"sluice/internal/prove/reach"
)

var publishedPast = Check{
	ID:    "published-past",
	What:  "a container's port is open to the internet although the host's rules close it",
	Least: check.Warning,
	Why: `"docker run -p 8080:80" adds a DNAT rule, and accepts behind it. Such packets are forwarded and
never reach the input hook, so a port that ufw or firewalld closes there stays open. For each
port that a prerouting rule rewrites to an address behind a bridge of containers, the doctor
evaluates a new connection from the internet. It reports it if the input rules are certain to
drop it and every ruleset is certain to let it through to the container.`,
	Fix: `Publish on an address that the internet does not reach (127.0.0.1:8080:80), or drop in
DOCKER-USER, the chain that Docker leaves to you.`,
	Undo: "Delete that rule.",
	look: func(s *Seen, say func(Finding)) {
		for _, r := range s.Rules {
			var open []Evidence
			var user bool
			var ports []string
			for _, of := range published(r, program.Prerouting) {
				for _, family := range []int{4, 6} {
					p, ok := s.fromInternet(family)
					if !ok || !meets(r, family) {
						continue
					}
					of.begin(&p)
					closed := s.closedToHost(p)
					if closed == "" {
						continue
					}
					out, end, passes := s.forwarded(r, p)
					if out == nil || !passes || !s.holdsContainers(out) {
						continue
					}
					if !slices.Contains(ports, of.String()) {
						ports = append(ports, of.String())
					}
					if len(open) < mostTop {
						open = append(open, found(toolOf(r), "%s from %s to %s in %s: to the host itself it is dropped by %s; %s sends it to %s, and all rules let it out by %s",
							of, p.Source, p.Destination, p.In, closed, rewriter(r, p), netip.AddrPortFrom(end.Destination, end.Port), out.Name))
					}
				}
			}
			if len(open) == 0 {
				continue
			}
			f := Finding{
				Text:     fmt.Sprintf("%s closed on the host but open to a container: %s", map[bool]string{true: "1 port is", false: english.Plural(len(ports), "port") + " are"}[len(ports) == 1], english.List(ports[:min(len(ports), mostTop)])),
				Evidence: open,
				Fix:      []string{"publish it on loopback only: docker run -p 127.0.0.1:PORT:PORT"},
			}
			for i := range r.Program.Chains {
				user = user || r.Program.Chains[i].Name == "filter/DOCKER-USER"
			}
			if user {
				p, _ := s.fromInternet(map[string]int{"ip": 4, "ip6": 6}[r.Family])
				rule := fmt.Sprintf("DOCKER-USER -i %s -m conntrack --ctstate NEW -j DROP", p.In)
				command := strings.TrimSuffix(toolOf(r), "-nft")
				f.Fix = append(f.Fix, command+" -I "+rule+"   # everything that is published")
				f.Undo = append(f.Undo, command+" -D "+rule)
			}
			say(f)
		}
	},
}

// closedToHost names what surely drops a packet at hook input that no rule gives another
// destination; "" is nothing.
func (s *Seen) closedToHost(p packet.Packet) string {
	for _, r := range s.Rules {
		if !meets(r, p.Family()) {
			continue
		}
		to := only(r, func(h program.Hook) bool { return h.Kind != program.Prerouting || h.Phase != program.NAT })
		if got := reach.Evaluate(to, p, packet.In); got.Certain && got.Verdict != program.Accept && got.Hook == program.Input {
			return byText(r, got)
		}
	}
	return ""
}

// holdsContainers says that a device is a bridge with a port of the kind that containers
// have.
func (s *Seen) holdsContainers(d *Device) bool {
	return d.Kind == "bridge" && slices.ContainsFunc(s.Devices, func(port Device) bool { return port.Master == d.Index && port.Kind == "veth" })
}

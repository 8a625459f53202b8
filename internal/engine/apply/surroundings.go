package apply

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/program"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/attached"
	"sluice/internal/system/kernel/ruleset"
)

// Surroundings says what on the host keeps a policy from meaning what it says:
// other tools' chains that may drop what it allows, published ports that it
// leaves open, packets that are not forwarded at all. Forward says that the
// policy has a section forward.
func Surroundings(f host.Facts, p *program.Program, forward bool) []string {
	if !f.Known {
		return nil
	}
	var out []string
	for _, c := range f.ForeignChains {
		if c.Drops {
			out = append(out, fmt.Sprintf("chain %s of table %s %s (%s, at %s) is not ours and may drop what this policy allows",
				c.Name, c.Family, c.Table, maker(c), c.Hook))
		}
		for _, e := range c.More {
			if e.Opens() {
				out = append(out, fmt.Sprintf("chain %s of table %s %s (%s, at %s) is not ours and %s",
					c.Name, c.Family, c.Table, maker(c), c.Hook, EffectText(e)))
			}
		}
	}
	for _, t := range f.Attached {
		if t.Opens() {
			out = append(out, AttachedText(t))
		}
	}
	if !forward {
		for _, port := range f.Published {
			out = append(out, fmt.Sprintf("%s stays open, by the rule of another tool: the policy has no section forward", port))
		}
	}
	if !forward && !rewrites(p) {
		return out
	}
	switch {
	case !f.Forwarding4 && !f.Forwarding6:
		out = append(out, "this host forwards nothing: net.ipv4.ip_forward and net.ipv6.conf.all.forwarding are 0")
	case !f.Forwarding4:
		out = append(out, "this host forwards no IPv4: net.ipv4.ip_forward is 0")
	}
	return out
}

// EffectText says what a foreign chain does beside dropping and rewriting: "may …".
func EffectText(e ruleset.Effect) string {
	switch e {
	case ruleset.Copies:
		return "may send copies of packets that this policy refuses"
	case ruleset.Forwards:
		return "may send packets past every chain of this policy"
	case ruleset.Offloads:
		return "may offload flows to a flowtable, which bypasses this policy and later bans"
	case ruleset.Expects:
		return "may add expected connections, which the rules of this policy then evaluate"
	case ruleset.Helps:
		return "may set connection tracking helpers; the rules of this policy evaluate what they expect"
	case ruleset.Times:
		return "may change how long tracked connections live"
	}
	return "may do something unknown"
}

// AttachedText says where something is attached beside rules, and what it may do.
func AttachedText(t attached.Thing) string {
	place := t.Device + " " + t.Hook
	named := t.Name
	if t.Program != 0 {
		named = strings.TrimSpace(fmt.Sprintf("%s (id %d)", t.Name, t.Program))
	}
	switch t.Kind {
	case attached.XDP:
		return fmt.Sprintf("XDP program %s at %s is not ours and may send packets past every chain of this policy", named, t.Device)
	case attached.TC:
		return fmt.Sprintf("tc filter %s of priority %d at %s is not ours and may send packets past every chain of this policy", named, t.Priority, place)
	case attached.TCX, attached.Netkit:
		return fmt.Sprintf("%s program %s at %s is not ours and may send packets past every chain of this policy", t.Kind, named, place)
	case attached.IPVS:
		return fmt.Sprintf("IPVS has the service %s: what input allows for it leaves by output, bypassing forward", named)
	case attached.Netfilter:
		text := fmt.Sprintf("BPF program %s at netfilter hook %s (%s, priority %d) is not ours and may drop what this policy allows",
			named, t.Hook, t.Family, t.Priority)
		if t.Anywhere {
			text += "; this kernel cannot tell whether it is of this network namespace"
		}
		return text
	case attached.Function:
	}
	return fmt.Sprintf("a kernel module is at netfilter hook %s (%s, priority %d): %s; what it does is unknown", t.Hook, t.Family, t.Priority, named)
}

func maker(c host.ForeignChain) string {
	if c.Legacy {
		return "legacy iptables"
	}
	return "nftables"
}

// rewrites says whether a program changes addresses of packets that are
// forwarded.
func rewrites(p *program.Program) bool {
	return slices.ContainsFunc(p.Chains, func(c program.Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r program.Rule) bool {
			return slices.ContainsFunc(r.Actions, func(a program.Action) bool {
				to := program.EffectOf(a).Rewrites
				return to.Field != "" && (to.Field != program.Destination || !to.Own) // what is redirected is not forwarded
			})
		})
	})
}

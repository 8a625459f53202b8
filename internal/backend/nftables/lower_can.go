package nftables

import (
	"slices"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// capabilities decides what happens to things that this kernel may lack.
// What only makes a policy faster is left out with a note unless the kernel
// has it for certain; what a policy means is refused only when the kernel
// lacks it for certain, and then by rule.
func (l *lowering) capabilities() {
	l.askLimits()
	if len(l.program.Flowtables) > 0 {
		switch l.can[backend.Flowtable] {
		case backend.Yes:
			l.offloads = true
		case backend.No:
			l.note(program.Origin{}, "accelerate: this kernel has no flowtables (CONFIG_NF_FLOW_TABLE, CONFIG_NF_FLOW_TABLE_INET); established flows take the ordinary path, with the same verdicts")
		default:
			l.note(program.Origin{}, "accelerate: could not find out whether this kernel has flowtables; established flows take the ordinary path, with the same verdicts")
		}
	}
	for i := range l.program.Chains {
		for j := range l.program.Chains[i].Rules {
			l.require(&l.program.Chains[i].Rules[j])
		}
	}
	for _, h := range l.program.Hooks {
		switch {
		case h.Kind == program.Ingress:
			l.lacks(backend.InetIngress, program.Origin{}, "chain "+h.Chain+" at ingress")
		case h.Phase == program.NAT:
			l.lacks(backend.InetNAT, program.Origin{}, "chain "+h.Chain+" of address translation")
		}
	}
}

func (l *lowering) lacks(f backend.Feature, o program.Origin, what string) {
	if l.can[f] == backend.No {
		l.refuse(o, "the kernel configuration option is "+options[f], "this kernel lacks %s, which %s needs", f, what)
	}
}

// options are where a feature comes from, for whoever builds the kernel.
var options = map[backend.Feature]string{
	backend.Flowtable:          "CONFIG_NF_FLOW_TABLE_INET",
	backend.InetIngress:        "CONFIG_NETFILTER_INGRESS",
	backend.InetNAT:            "CONFIG_NFT_NAT",
	backend.ConnectionCount:    "CONFIG_NFT_CONNLIMIT",
	backend.NATPrefix:          "CONFIG_NFT_NAT",
	backend.SetElementCounters: "CONFIG_NF_TABLES",
	backend.TCPReset:           "CONFIG_NFT_REJECT_INET",
	backend.FIB:                "CONFIG_NFT_FIB_INET",
	backend.Handshakes:         "CONFIG_NFT_SOCKET and CONFIG_CGROUP_NET_CLASSID, CONFIG_NF_CONNTRACK_LABELS",
	backend.MSSClamp:           "CONFIG_NFT_EXTHDR",
}

func (l *lowering) require(r *program.Rule) {
	for _, c := range r.Match {
		switch c.Field {
		case program.SourceType, program.DestinationType, program.DestinationHere:
			l.lacks(backend.FIB, r.Origin, "a condition on the type of an address")
		}
		if c.Field == program.Status && slices.Contains(c.Names, program.Demultiplexed) {
			l.lacks(backend.Handshakes, r.Origin, "a limit per source that counts completed connections")
		}
		if s := l.program.Set(c.Set); s != nil && s.Counters && l.can[backend.SetElementCounters] == backend.No {
			l.note(s.Origin, "set %s: this kernel keeps no counters in sets; its elements are not counted", s.ID)
		}
	}
	for _, a := range r.Actions {
		switch e := program.EffectOf(a); {
		case e.Decides == program.Reject:
			l.lacks(backend.TCPReset, r.Origin, "reject")
		case e.Gates && e.Tracks:
			l.lacks(backend.ConnectionCount, r.Origin, "a limit of connections")
		case e.Ends && e.Rewrites.From.IsValid():
			l.lacks(backend.NATPrefix, r.Origin, "a map of prefixes")
		case a == program.Action(program.ClampMSS{}):
			l.lacks(backend.MSSClamp, r.Origin, "clamp mss")
		}
	}
}

package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/sorting"
	"sluice/internal/program"
	"sluice/internal/system/kernel/drops"
	"sluice/internal/system/kernel/sampling"
)

// Taken is what packets took of the processors' time, of all network namespaces together.
type Taken struct {
	What    string  `json:"what"`           // "nftables, family inet", "connection tracking"
	Hook    string  `json:"hook,omitempty"` // of rules, where the kernel's calls show it
	Share   float64 `json:"processors"`     // 1 is a whole processor
	Samples uint64  `json:"samples"`        // that it is reckoned from
	rules   string  // of rules: the family as nft has it; "" of all else
	legacy  bool    // of rules: of iptables-legacy
}

var errNoNames = errors.New("/proc/kallsyms shows no addresses: root reads them, unless kernel.kptr_restrict is 2")

// Times are lines of what packets took, without what took little; none where all did.
func (r *Report) Times() (lines []string) {
	for _, t := range r.Taken {
		if t.Share >= littleTime {
			lines = append(lines, fmt.Sprintf("%5.1f %%  %s%s", 100*t.Share, t.What, prefixed(", hook ", t.Hook)))
		}
	}
	return lines
}

// part is what functions of the kernel belong to; a name with a star is the beginning of some.
type part struct {
	what  string
	names []string
}

// rulesets are what asks rules, in the form of part with the family in place of what.
var rulesets = []struct {
	function, what, family string
	legacy                 bool
}{
	{"nft_do_chain_ipv4", "nftables, family ip", "ip", false},
	{"nft_do_chain_ipv6", "nftables, family ip6", "ip6", false},
	{"nft_do_chain_inet", "nftables, family inet", "inet", false},
	{"nft_do_chain_inet_ingress", "nftables, family inet", "inet", false},
	{"nft_do_chain_netdev", "nftables, family netdev", "netdev", false},
	{"nft_do_chain_bridge", "nftables, family bridge", "bridge", false},
	{"nft_nat_do_chain", "nftables, nat", "nat", false},
	{"ipt_do_table", "legacy iptables", "ip", true},
	{"ip6t_do_table", "legacy ip6tables", "ip6", true},
}

// insideRules are parts that rules ask for, and that others ask for too.
var insideRules = []part{
	{"ipset", []string{"ip_set_*"}},
	{"writing packets to the log", []string{"nf_log_*"}},
	{"connection tracking", []string{"nf_conntrack_*", "__nf_conntrack_*", "nf_ct_*", "__nf_ct_*", "ipv4_conntrack_*", "ipv6_conntrack_*", "nf_confirm", "gc_worker"}},
	{"NAT", []string{"nf_nat_*", "__nf_nat_*"}},
	{"routing", []string{"fib_*", "fib6_*", "ip_route_*", "ip6_route_*", "ip6_pol_route*", "rt6_*"}},
}

// parts are all others, of which the innermost function decides.
var parts = append(slices.Clone(insideRules),
	part{"bridged frames on their way to rules (br_netfilter)", []string{"br_nf_*"}},
	part{"bridges", []string{"br_*"}},
	part{"flowtables", []string{"nf_flow_*"}},
	part{"queueing and traffic control", []string{"tcf_*", "__qdisc_run", "sch_direct_xmit", "__dev_xmit_skb"}},
	part{"BPF programs", []string{"bpf_prog_*"}},
	part{"IP and sockets", []string{
		"ip_*", "ip6_*", "ipv6_*", "__ip_*", "tcp_*", "__tcp_*", "udp_*", "__udp*", "udpv6_*", "icmp_*", "raw_*", "packet_*",
		"sock_*", "__netif_receive_skb*", "netif_receive_skb*", "process_backlog", "gro_*", "napi_gro_*", "nf_hook_slow*",
	}},
	part{"drivers of devices", []string{"__napi_poll", "napi_poll", "dev_hard_start_xmit"}},
	part{"all else of the network", []string{"net_rx_action", "net_tx_action", "__dev_queue_xmit"}},
)

// callers tell the hook by whoever asks it, of IPv4 and IPv6.
var callers = map[string]program.HookKind{
	"__netif_receive_skb_core": program.Ingress,
	"ip_rcv":                   program.Prerouting, "ip_list_rcv": program.Prerouting, "ip_sublist_rcv": program.Prerouting,
	"ipv6_rcv": program.Prerouting, "ipv6_list_rcv": program.Prerouting, "ip6_sublist_rcv": program.Prerouting,
	"ip_local_deliver": program.Input, "ip6_input": program.Input,
	"ip_forward": program.Forward, "ip6_forward": program.Forward,
	"ip_local_out": program.Output, "__ip_local_out": program.Output, "ip6_local_out": program.Output, "__ip6_local_out": program.Output, "ip6_xmit": program.Output,
	"ip_output": program.Postrouting, "ip_mc_output": program.Postrouting, "ip6_output": program.Postrouting,
}

func (p part) has(function string) bool {
	return slices.ContainsFunc(p.names, func(name string) bool {
		begin, many := strings.CutSuffix(name, "*")
		return many && strings.HasPrefix(function, begin) || function == name
	})
}

// innermost is the part of the first function that belongs to one.
func innermost(of []part, calls []string) string {
	for _, function := range calls {
		for _, p := range of {
			if p.has(function) {
				return p.what
			}
		}
	}
	return ""
}

// whose says what a stack, the innermost function first, belongs to; false: not to packets.
func whose(calls []string) (t Taken, is bool) {
	for i, function := range calls {
		for _, r := range rulesets {
			if function != r.function {
				continue
			}
			if what := innermost(insideRules, calls[:i]); what != "" {
				return Taken{What: what}, true
			}
			t = Taken{What: r.what, rules: r.family, legacy: r.legacy}
			for _, outer := range calls[i:] {
				if hook, is := callers[outer]; is {
					t.Hook = string(hook)
					break
				}
			}
			return t, true
		}
	}
	t.What = innermost(parts, calls)
	return t, t.What != ""
}

// seeTaken sums up what the processors were seen at.
func (s *Seen) seeTaken(p sampling.Profile) {
	var addresses []uint64
	for _, stack := range p.Stacks {
		if len(stack.Addresses) > 0 {
			stack.Addresses[0]++ // as the address that a call returns to
		}
		addresses = append(addresses, stack.Addresses...)
	}
	slices.Sort(addresses)
	names, err := drops.Functions(slices.Compact(addresses)...)
	if err == nil && len(names) == 0 && len(addresses) > 0 {
		err = errNoNames
	}
	if err != nil {
		s.unread("processor time by function", err)
		return
	}
	sums := map[Taken]uint64{}
	calls := []string{}
	for _, stack := range p.Stacks {
		calls = calls[:0]
		for _, a := range stack.Addresses {
			calls = append(calls, names[a])
		}
		if t, is := whose(calls); is {
			sums[t] += stack.Samples
		}
	}
	looks := p.Took.Seconds() / sampling.Period.Seconds()
	for t, n := range sums {
		t.Samples, t.Share = n, float64(n)/looks
		s.Taken = append(s.Taken, t)
	}
	sorting.By(s.Taken, func(a, b Taken) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.What, b.What), cmp.Compare(a.Hook, b.Hook), cmp.Compare(a.rules, b.rules))
	})
}

const (
	rulesMuch  = 0.1 // of a processor
	rulesPart  = 4   // and of all time that packets take, a fourth
	fewSamples = 50
	// longestAsking is how many seconds rules may take of one packet, some 100,000 of them: what
	// takes longer is of packets of other network namespaces.
	longestAsking = 0.001
	// littleTime is the share of a processor below which time is not printed.
	littleTime = 0.01
)

func prefixed(with, text string) string {
	if text == "" {
		return ""
	}
	return with + text
}

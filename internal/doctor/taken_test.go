package doctor

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/importer"
	"sluice/internal/program"
)

// TestWhose: a stack belongs to the innermost function that says whose work it is, but
// within rules to them, whatever their conditions are called.
func TestWhose(t *testing.T) {
	for calls, want := range map[string]string{
		"nft_meta_get_eval nft_do_chain nft_do_chain_inet nf_hook_slow ip_local_deliver ip_rcv_finish":        "nftables, family inet, hook input",
		"nft_do_chain nft_do_chain_ipv4 nf_hook_slow ip_forward ip_rcv net_rx_action":                         "nftables, family ip, hook forward",
		"udp_mt ipt_do_table nf_hook_slow ip_rcv __netif_receive_skb_one_core process_backlog":                "legacy iptables, hook prerouting",
		"ip6t_do_table nf_hook_slow unknown":                                                                  "legacy ip6tables",
		"hash_net4_kadt ip_set_test set_match_v4 ipt_do_table nf_hook_slow ip_rcv":                            "ipset",
		"vprintk nf_log_buf_close nf_log_ip_packet nf_log_packet nft_log_eval nft_do_chain nft_do_chain_inet": "writing packets to the log",
		"__nf_conntrack_find_get nf_conntrack_in ipv4_conntrack_in nf_hook_slow ip_rcv":                       "connection tracking",
		"nf_nat_inet_fn nf_nat_ipv4_pre_routing nf_hook_slow ip_rcv":                                          "NAT",
		"fib_table_lookup ip_route_input_slow ip_rcv_finish":                                                  "routing",
		"br_nf_pre_routing br_handle_frame __netif_receive_skb_core":                                          "bridged frames on their way to rules (br_netfilter)",
		"tcp_v4_rcv ip_protocol_deliver_rcu br_nf_pre_routing_finish br_nf_pre_routing":                       "IP and sockets",
		"virtnet_poll __napi_poll net_rx_action":                                                              "drivers of devices",
		"gc_worker process_one_work worker_thread":                                                            "connection tracking",
		"ext4_file_write_iter vfs_write":                                                                      "",
		"":                                                                                                    "",
	} {
		got, is := whose(strings.Fields(calls))
		text := got.What + prefixed(", hook ", got.Hook)
		if text != want || is != (want != "") {
			t.Errorf("%s: %q, want %q", calls, text, want)
		}
	}
}

// TestRulesOfOthers: what rules of other network namespaces take is not laid to those here,
// which have few packets to ask.
func TestRulesOfOthers(t *testing.T) {
	for packets, want := range map[uint64]int{5: 0, 5000: 1} {
		s := &Seen{
			Window: time.Second, Devices: []Device{{Packets: packets}},
			Taken: []Taken{{What: "nftables, family inet", Hook: "input", Share: 0.3, Samples: 300, rules: "inet"}},
			Rules: []*importer.Ruleset{{Tool: "nft", Family: "inet", Table: "t", Program: &program.Program{Hooks: []program.Hook{{Kind: program.Input, Chain: "c"}}}}},
		}
		found := 0
		rulesBusy.look(s, func(Finding) { found++ })
		if found != want {
			t.Errorf("%d packets: %d findings, want %d", packets, found, want)
		}
	}
}

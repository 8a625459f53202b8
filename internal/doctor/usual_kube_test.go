package doctor_test

import (
	"fmt"
	"strings"
	"testing"
)

// A node of Kubernetes has pods behind the bridge br0, and services that are named by
// number: each has an address of the cluster, a port of the node, and both pods.
const services = 30

// pods are two containers that answer at port 80, with the node's bridge as Kubernetes wants
// it.
func (b *broken) pods() {
	b.t.Helper()
	b.besides("1").ServeTCP("198.51.100.3:80")
}

// kubeIptables is what kube-proxy writes in its mode iptables, in its shape.
func kubeIptables() string {
	var nat, filter strings.Builder
	chains := []string{"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"}
	rule := func(to *strings.Builder, format string, args ...any) { fmt.Fprintf(to, "-A "+format+"\n", args...) }
	rule(&nat, `PREROUTING -m comment --comment "service portals" -j KUBE-SERVICES`)
	rule(&nat, `OUTPUT -m comment --comment "service portals" -j KUBE-SERVICES`)
	rule(&nat, `POSTROUTING -m comment --comment "postrouting rules" -j KUBE-POSTROUTING`)
	rule(&nat, "KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000")
	rule(&nat, "KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN")
	rule(&nat, "KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0")
	rule(&nat, "KUBE-POSTROUTING -j MASQUERADE --random-fully")
	for i := range services {
		name := fmt.Sprintf("%016X", i)
		chains = append(chains, "KUBE-SVC-"+name, "KUBE-EXT-"+name)
		rule(&nat, `KUBE-SERVICES -d 203.0.113.%d/32 -p tcp -m comment --comment "shop/web-%d cluster IP" -m tcp --dport 80 -j KUBE-SVC-%s`, i+1, i, name)
		rule(&nat, `KUBE-NODEPORTS -p tcp -m comment --comment "shop/web-%d" -m tcp --dport %d -j KUBE-EXT-%s`, i, 30000+i, name)
		rule(&nat, `KUBE-EXT-%s -m comment --comment "masquerade traffic for shop/web-%d external destinations" -j KUBE-MARK-MASQ`, name, i)
		rule(&nat, "KUBE-EXT-%s -j KUBE-SVC-%s", name, name)
		rule(&nat, "KUBE-SVC-%s ! -s 198.51.100.0/24 -d 203.0.113.%d/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ", name, i+1)
		for pod, chance := range []string{"-m statistic --mode random --probability 0.50000000000 ", ""} {
			end := fmt.Sprintf("KUBE-SEP-%015X%d", i, pod)
			chains = append(chains, end)
			rule(&nat, `KUBE-SVC-%s -m comment --comment "shop/web-%d -> 198.51.100.%d:80" %s-j %s`, name, i, pod+2, chance, end)
			rule(&nat, "%s -s 198.51.100.%d/32 -j KUBE-MARK-MASQ", end, pod+2)
			rule(&nat, "%s -p tcp -m tcp -j DNAT --to-destination 198.51.100.%d:80", end, pod+2)
		}
	}
	rule(&nat, "KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS")
	for _, hook := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		rule(&filter, "%s -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL", hook)
	}
	rule(&filter, "INPUT -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES")
	rule(&filter, "INPUT -j KUBE-FIREWALL")
	rule(&filter, "FORWARD -j KUBE-FORWARD")
	rule(&filter, "FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES")
	rule(&filter, "OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES")
	rule(&filter, "OUTPUT -j KUBE-FIREWALL")
	rule(&filter, "KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP")
	rule(&filter, "KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP")
	rule(&filter, "KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT")
	rule(&filter, "KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	rule(&filter, `KUBE-SERVICES -d 203.0.113.200/32 -p tcp -m comment --comment "shop/idle has no endpoints" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable`)
	text := "*nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n"
	for _, c := range chains {
		text += ":" + c + " - [0:0]\n"
	}
	text += nat.String() + "COMMIT\n*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
	for _, c := range []string{"PROXY-FIREWALL", "EXTERNAL-SERVICES", "FIREWALL", "FORWARD", "SERVICES", "KUBELET-CANARY"} {
		text += ":KUBE-" + c + " - [0:0]\n"
	}
	return text + filter.String() + "COMMIT\n"
}

// kubeNft is what it writes in its mode nftables, in its shape.
func kubeNft() string {
	var ips, ports, clusters, chains []string
	for i := range services {
		service := fmt.Sprintf("service-%d", i)
		clusters = append(clusters, fmt.Sprintf("203.0.113.%d", i+1))
		ips = append(ips, fmt.Sprintf("203.0.113.%d . tcp . 80 : goto %s", i+1, service))
		ports = append(ports, fmt.Sprintf("tcp . %d : goto external-%d", 30000+i, i))
		chains = append(chains,
			fmt.Sprintf("chain external-%d { jump mark-for-masquerade; goto %s; }", i, service),
			fmt.Sprintf("chain %s { ip daddr 203.0.113.%d tcp dport 80 ip saddr != 198.51.100.0/24 jump mark-for-masquerade; numgen random mod 2 vmap { 0 : goto endpoint-%d-2, 1 : goto endpoint-%d-3 }; }", service, i+1, i, i))
		for _, pod := range []int{2, 3} {
			chains = append(chains, fmt.Sprintf("chain endpoint-%d-%d { ip saddr 198.51.100.%d jump mark-for-masquerade; meta l4proto tcp dnat to 198.51.100.%d:80; }", i, pod, pod, pod))
		}
	}
	return `table ip kube-proxy {
	comment "rules for services"
	set cluster-ips { type ipv4_addr; elements = { ` + strings.Join(clusters, ", ") + ` }; }
	set nodeport-ips { type ipv4_addr; elements = { 192.0.2.1 }; }
	map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 203.0.113.200 . tcp . 80 : goto reject-chain }; }
	map no-endpoint-nodeports { type inet_proto . inet_service : verdict; }
	map firewall-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
	map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; elements = { ` + strings.Join(ips, ", ") + ` }; }
	map service-nodeports { type inet_proto . inet_service : verdict; elements = { ` + strings.Join(ports, ", ") + ` }; }
	chain reject-chain { reject; }
	chain mark-for-masquerade { meta mark set meta mark or 0x4000; }
	chain masquerading { meta mark and 0x4000 == 0 return; meta mark set meta mark xor 0x4000; masquerade fully-random; }
	` + strings.Join(chains, "\n") + `
	chain services { ip daddr . meta l4proto . th dport vmap @service-ips; ip daddr != 127.0.0.0/8 ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports; }
	chain cluster-ips-check { ip daddr @cluster-ips reject; }
	chain firewall-check { ip daddr . meta l4proto . th dport vmap @firewall-ips; }
	chain service-endpoints-check { ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }
	chain nodeport-endpoints-check { ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports; }
	chain filter-prerouting { type filter hook prerouting priority -110; ct state new jump firewall-check; }
	chain filter-input { type filter hook input priority -110; ct state new jump nodeport-endpoints-check; ct state new jump service-endpoints-check; }
	chain filter-forward { type filter hook forward priority -110; ct state new jump service-endpoints-check; ct state new jump cluster-ips-check; }
	chain filter-output { type filter hook output priority -110; ct state new jump service-endpoints-check; ct state new jump firewall-check; }
	chain filter-output-post-dnat { type filter hook output priority -90; ct state new jump cluster-ips-check; }
	chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
	chain nat-output { type nat hook output priority -100; jump services; }
	chain nat-postrouting { type nat hook postrouting priority 100; jump masquerading; }
}`
}

// TestKubernetes: a node with the rules of kube-proxy, through which services answer.
func TestKubernetes(t *testing.T) {
	for _, mode := range append([]string{"nft"}, tools...) {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := newBroken(t)
			b.pods()
			b.host.Sysctl("net.ipv4.conf.all.route_localnet", map[bool]string{true: "0", false: "1"}[mode == "nft"])
			if mode == "nft" {
				b.host.Nft(kubeNft())
			} else {
				b.tables(mode, 4, kubeIptables())
			}
			for range 4 { // either pod
				b.reaches(b.client, "192.0.2.1:30007", true)
				b.reaches(b.host, "203.0.113.8:80", true)
			}
			noRuleIll(t, b)
		})
	}
}

// libvirtIptables are the rules of libvirt's default network, of its backend iptables, in
// its shape.
const libvirtIptables = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:LIBVIRT_FWI - [0:0]
:LIBVIRT_FWO - [0:0]
:LIBVIRT_FWX - [0:0]
:LIBVIRT_INP - [0:0]
:LIBVIRT_OUT - [0:0]
-A INPUT -j LIBVIRT_INP
-A FORWARD -j LIBVIRT_FWX
-A FORWARD -j LIBVIRT_FWI
-A FORWARD -j LIBVIRT_FWO
-A OUTPUT -j LIBVIRT_OUT
-A LIBVIRT_FWI -d LAN -o br0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A LIBVIRT_FWI -o br0 -j REJECT
-A LIBVIRT_FWO -s LAN -i br0 -j ACCEPT
-A LIBVIRT_FWO -i br0 -j REJECT
-A LIBVIRT_FWX -i br0 -o br0 -j ACCEPT
-A LIBVIRT_INP -i br0 -p udp -m udp --dport 53 -j ACCEPT
-A LIBVIRT_INP -i br0 -p tcp -m tcp --dport 53 -j ACCEPT
-A LIBVIRT_INP -i br0 -p udp -m udp --dport 67 -j ACCEPT
-A LIBVIRT_INP -i br0 -p tcp -m tcp --dport 67 -j ACCEPT
-A LIBVIRT_OUT -o br0 -p udp -m udp --dport 53 -j ACCEPT
-A LIBVIRT_OUT -o br0 -p tcp -m tcp --dport 53 -j ACCEPT
-A LIBVIRT_OUT -o br0 -p udp -m udp --dport 68 -j ACCEPT
-A LIBVIRT_OUT -o br0 -p tcp -m tcp --dport 68 -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:LIBVIRT_PRT - [0:0]
-A POSTROUTING -j LIBVIRT_PRT
-A LIBVIRT_PRT -s LAN -d MULTICAST -j RETURN
-A LIBVIRT_PRT -s LAN ! -d LAN -p tcp -j MASQUERADE --to-ports 1024-65535
-A LIBVIRT_PRT -s LAN ! -d LAN -p udp -j MASQUERADE --to-ports 1024-65535
-A LIBVIRT_PRT -s LAN ! -d LAN -j MASQUERADE
COMMIT
`

// libvirtNft are those of its backend nftables.
const libvirtNft = `table FAMILY libvirt_network {
	chain forward { type filter hook forward priority 0; policy accept; counter jump guest_cross; counter jump guest_input; counter jump guest_output; }
	chain guest_output { ADDRESS saddr LAN iif "br0" counter accept; iif "br0" counter reject; }
	chain guest_input { oif "br0" ADDRESS daddr LAN ct state related,established counter accept; oif "br0" counter reject; }
	chain guest_cross { iif "br0" oif "br0" counter accept; }
	chain guest_nat { type nat hook postrouting priority 100; policy accept;
		ADDRESS saddr LAN ADDRESS daddr MULTICAST counter return
		meta l4proto tcp ADDRESS saddr LAN ADDRESS daddr != LAN counter masquerade to :1024-65535
		meta l4proto udp ADDRESS saddr LAN ADDRESS daddr != LAN counter masquerade to :1024-65535
		ADDRESS saddr LAN ADDRESS daddr != LAN counter masquerade
	}
}`

// TestLibvirt: a host of virtual machines with libvirt's default network.
func TestLibvirt(t *testing.T) {
	for _, tool := range append([]string{"nft"}, tools...) {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			b := newBroken(t)
			guest := b.running()
			for family, multicast := range map[int]string{4: "224.0.0.0/24", 6: "ff02::/16"} {
				if tool == "nft" {
					b.host.Nft(nftOf(family, strings.ReplaceAll(libvirtNft, "MULTICAST", multicast)))
				} else {
					b.tables(tool, family, by(family, strings.ReplaceAll(libvirtIptables, "MULTICAST", multicast)))
				}
			}
			b.client.ServeTCP("192.0.2.2:80")
			b.reaches(guest, "192.0.2.2:80", true)
			noRuleIll(t, b)
		})
	}
}

// TestFreshDebian: its /etc/nftables.conf has three empty chains, and nothing else is loaded.
func TestFreshDebian(t *testing.T) {
	b := newBroken(t)
	b.reachable()
	b.host.Nft("table inet filter { chain input { type filter hook input priority 0; }; chain forward { type filter hook forward priority 0; }; chain output { type filter hook output priority 0; }; }")
	noRuleIll(t, b)
}

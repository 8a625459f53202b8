package replica_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/base/testseed"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/nft"
	"sluice/internal/system/kernel/replica"
)

// output runs a program where the thread is.
func output(t *testing.T, words ...string) string {
	t.Helper()
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(words, " "), err, out)
	}
	return string(out)
}

// within runs a program in a namespace.
func within(t *testing.T, do func(func() error) error, words ...string) (out string) {
	t.Helper()
	if err := do(func() error { out = output(t, words...); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func load(t *testing.T, n *testnet.Namespace, rules string) {
	t.Helper()
	err := n.Do(func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %.2000s", err, out)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// copyOf copies a namespace.
func copyOf(t *testing.T, n *testnet.Namespace) *replica.Copy {
	t.Helper()
	var c *replica.Copy
	err := n.Do(func() (err error) {
		c, err = replica.Make(context.Background(), nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func host(t *testing.T) *testnet.Namespace {
	net := testnet.New(t)
	h, other := net.Unnamed("host"), net.Unnamed("other")
	net.Join(testnet.End{In: h, Device: "eth0", Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}}, testnet.End{In: other, Device: "eth0"})
	net.Join(testnet.End{In: h, Device: "lan0.5", Addresses: []string{"10.0.0.1/24"}}, testnet.End{In: other, Device: "eth1"})
	return h
}

// rules of many kinds, without sets that have no name: those get one in the copy.
const rules = `
table inet filter {
	comment "a table"
	counter seen { comment "what was seen"; packets 7 bytes 9 }
	quota some { over 10 mbytes }
	limit slow { rate 20/second burst 20 packets }
	ct timeout short {
		protocol udp
		l3proto ip
		policy = { unreplied : 5, replied : 7 }
	}
	set plain { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.2 } }
	set ports { type inet_service; flags interval; elements = { 1-3, 5, 1024-65535 } }
	set pairs { type ipv4_addr . inet_service; elements = { 192.0.2.1 . 80 } }
	set wide { type ipv4_addr . inet_service; flags interval; elements = { 192.0.2.0/24 . 80-90 } }
	set counted { type ipv6_addr; counter; elements = { 2001:db8::1 counter packets 3 bytes 4 comment "one" } }
	set sources { type ipv4_addr; size 100; flags dynamic,timeout; timeout 1m; }
	set busy { type ipv4_addr; size 10; flags dynamic; }
	set open { type ipv4_addr; flags interval; elements = { 0.0.0.0-9.255.255.255, 224.0.0.0-255.255.255.255 } }
	map names { type ipv4_addr : counter; elements = { 192.0.2.9 : "seen" } }
	map nets { type ipv4_addr : interval ipv4_addr; flags interval; elements = { 192.0.2.16/28 : 198.51.100.16/28 } }
	chain ssh { }
	chain input { type filter hook input priority filter; policy drop; }
	chain early { type filter hook prerouting priority raw; policy accept; }
	chain pre { type nat hook prerouting priority dstnat; policy accept; }
	map where { type inet_service : verdict; elements = { 22 : jump ssh, 80 : accept, * : drop } }
	chain post { type nat hook postrouting priority srcnat; policy accept; }
}
table ip6 six {
	chain b { }
	chain a { type filter hook forward priority 10; policy accept; }
}
table netdev early {
	chain in { type filter hook ingress device "eth0" priority -500; policy accept; }
}
table inet asleep {
	flags dormant
	chain x { type filter hook input priority 0; policy drop; }
}
`

// single are rules that a kernel may lack the parts for.
var single = []string{
	`inet filter ssh ct state established counter name "seen" accept`,
	`inet filter ssh limit name "slow" accept`,
	`inet filter input iif "lo" accept comment "loopback"`,
	`inet filter input iifname "lan*" ct status dnat accept`,
	`inet filter input tcp dport @ports add @sources { ip saddr limit rate 6/minute burst 6 packets } accept`,
	`inet filter input ip saddr @plain ip daddr . tcp dport @wide meta mark set 0x00000001`,
	`inet filter input log prefix "seen: " level info`,
	`inet filter input log prefix "seen: " group 5 snaplen 100`,
	`ip6 six a tcp flags syn / syn,rst tcp option maxseg size set rt mtu`,
	`inet filter input reset tcp option sack-perm`,
	`inet filter input tcp option maxseg size 500-600 ip dscp set cs1`,
	`inet filter input ip saddr & 0.0.0.255 == 0.0.0.7 reject with icmp admin-prohibited`,
	`inet filter input meta l4proto tcp reject with tcp reset`,
	`inet filter input reject`,
	`inet filter input fib daddr . iif type local meta skuid 1000 accept`,
	`inet filter input quota name "some" drop`,
	`inet filter input tcp dport vmap @where`,
	`inet filter input limit rate over 1 mbytes/second drop`,
	`inet filter input ct count over 20 drop`,
	`inet filter input ct original ip daddr 192.0.2.1 ct direction reply ct mark set meta mark`,
	`inet filter input add @busy { ip saddr ct count over 20 } drop`,
	`inet filter input update @sources { ip saddr timeout 5s } accept`,
	`inet filter input delete @sources { ip saddr } accept`,
	`inet filter input numgen random mod 10 < 3 meta priority set 1:2`,
	`inet filter input jhash ip saddr mod 4 == 1 meta mark set jhash ip saddr mod 8 seed 0x1 offset 2`,
	`inet filter input queue flags bypass to 3`,
	`inet filter input tcp dport 80 synproxy mss 1460 wscale 7 timestamp sack-perm`,
	`inet filter early udp dport 53 notrack`,
	`inet filter early udp dport 69 ct zone set 7`,
	`inet filter early ct timeout set "short"`,
	`inet filter early tcp dport 80 tproxy ip to 127.0.0.1:8080`,
	`inet filter early socket transparent 1 accept`,
	`inet filter pre tcp dport 8080 dnat ip to 10.0.0.5:80`,
	`inet filter pre tcp dport 8443 redirect to :443`,
	`inet filter pre ip daddr @plain dnat ip prefix to ip daddr map @nets`,
	`inet filter post oifname "eth0" masquerade random,persistent`,
	`inet filter post snat ip to 192.0.2.1-192.0.2.9:1024-2048 fully-random`,
	`ip6 six a ip6 nexthdr ipv6-icmp icmpv6 type echo-request jump b`,
	`ip6 six a counter goto b`,
	`ip6 six b exthdr frag exists drop`,
	`ip6 six b return`,
	`netdev early in ip saddr 198.51.100.7 drop`,
	`netdev early in vlan id 7 fwd to "eth0"`,
}

func TestRulesetIsTheSame(t *testing.T) {
	testnet.Require(t, testnet.Nftables, testnet.NftNAT, testnet.NetdevIngr)
	h := host(t)
	load(t, h, rules)
	taken := 0
	for _, rule := range single {
		err := h.Do(func() error { return exec.Command("nft", "add rule "+rule).Run() })
		if err == nil {
			taken++
		} else {
			t.Logf("this kernel or nft does not take %s", rule)
		}
	}
	if taken < len(single)/2 {
		t.Errorf("of %d rules only %d were taken", len(single), taken)
	}
	before := within(t, h.Do, "nft", "-a", "list", "ruleset")
	c := copyOf(t, h)
	if diff := cmp.Diff(within(t, h.Do, "nft", "list", "ruleset"), within(t, c.Space.Do, "nft", "list", "ruleset")); diff != "" {
		t.Errorf("the copy differs (-host +copy):\n%s", diff)
	}
	if after := within(t, h.Do, "nft", "-a", "list", "ruleset"); after != before {
		t.Errorf("the host changed:\n%s", cmp.Diff(before, after))
	}
}

// Rules with sets that have no name are found again by their handles.
func TestRulesArePaired(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	h := host(t)
	load(t, h, `table inet t {
		chain a { tcp dport { 1, 2 } accept; tcp dport { 7-9 } drop; }
		chain b { type filter hook input priority 5; tcp dport vmap { 22 : jump a, 80 : drop }; counter; }
	}`)
	load(t, h, "insert rule inet t a udp dport 9 drop")
	c := copyOf(t, h)
	handle := regexp.MustCompile(`(?m)^\t\t(.*) # handle (\d+)$`)
	number := func(text string) (handles []string) {
		for _, m := range handle.FindAllStringSubmatch(text, -1) {
			handles = append(handles, m[2])
		}
		return handles
	}
	want := number(within(t, h.Do, "nft", "-a", "list", "ruleset"))
	var got []string
	at := ""
	for line := range strings.Lines(within(t, c.Space.Do, "nft", "-a", "list", "ruleset")) {
		if name, is := strings.CutPrefix(line, "\tchain "); is {
			at, _, _ = strings.Cut(name, " ")
		}
		if m := handle.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			var n uint64
			fmt.Sscan(m[2], &n)
			got = append(got, fmt.Sprint(c.Rules.Original(replica.Place{Family: 1, Table: "t", Chain: at, Handle: n})))
		}
	}
	if !slices.Equal(got, want) || len(want) != 5 {
		t.Errorf("rules of the copy stand for %v, want %v", got, want)
	}
	i := slices.IndexFunc(c.Rules.Chains, func(c nft.Chain) bool { return c.Name == "b" })
	if b := c.Rules.Chains[i]; !b.Base || b.NAT || b.Hook != 1 || b.Priority != 5 {
		t.Errorf("chain b is %+v", b)
	}
}

// Intervals that touch, single addresses, the first and the last address.
func TestIntervalsAreTheSame(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	h := host(t)
	g := testseed.Rand(t)
	var b strings.Builder
	b.WriteString("table inet t {\n")
	for i := range 20 {
		fmt.Fprintf(&b, "set s%d { type inet_service; flags interval; elements = { ", i)
		bounds := []int{0, 65536}
		for range 2 + g.IntN(400) {
			bounds = append(bounds, g.IntN(65537), g.IntN(300))
		}
		slices.Sort(bounds)
		bounds = slices.Compact(bounds)
		for j := g.IntN(2); j+1 < len(bounds); j++ {
			if g.IntN(3) > 0 {
				fmt.Fprintf(&b, "%d-%d, ", bounds[j], bounds[j+1]-1)
			}
		}
		b.WriteString("65535 } }\n")
	}
	b.WriteString("}\n")
	text := strings.ReplaceAll(b.String(), "65535 } }", "} }")
	load(t, h, text)
	c := copyOf(t, h)
	if diff := cmp.Diff(within(t, h.Do, "nft", "list", "ruleset"), within(t, c.Space.Do, "nft", "list", "ruleset")); diff != "" {
		t.Errorf("the copy differs (-host +copy):\n%s", diff)
	}
}

// A large set takes more than one transaction.
func TestLargeSet(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	h := host(t)
	var b strings.Builder
	b.WriteString("table inet t { set s { type ipv4_addr; flags interval; elements = { ")
	for i := range 15000 {
		fmt.Fprintf(&b, "10.%d.%d.0-10.%d.%d.99, ", i>>8, i&255, i>>8, i&255)
	}
	b.WriteString("} }\n}\n")
	load(t, h, b.String())
	c := copyOf(t, h)
	if within(t, h.Do, "nft", "list", "ruleset") != within(t, c.Space.Do, "nft", "list", "ruleset") {
		t.Error("the copy of a large set differs")
	}
}

func TestNetworkIsTheSame(t *testing.T) {
	h := host(t)
	h.Address("eth0", "fe80::77/64")
	for _, words := range [][]string{
		{"ip", "addr", "add", "192.0.2.77/32", "dev", "lo"},
		{"ip", "route", "add", "default", "via", "192.0.2.254"},
		{"ip", "route", "add", "198.51.100.0/24", "via", "10.0.0.9", "table", "100", "metric", "7"},
		{"ip", "route", "add", "blackhole", "203.0.113.0/24"},
		{"ip", "route", "add", "203.0.113.128/25", "nexthop", "via", "192.0.2.3", "weight", "2", "nexthop", "via", "10.0.0.3"},
		{"ip", "-6", "route", "add", "default", "via", "2001:db8::fe"},
		{"ip", "-6", "route", "add", "2001:db8:9::/48", "via", "fe80::1", "dev", "lan0.5"},
		{"ip", "rule", "add", "from", "10.0.0.0/24", "lookup", "100", "pref", "50"},
		{"ip", "rule", "add", "not", "fwmark", "5", "iif", "eth0", "lookup", "main", "pref", "60"},
		{"ip", "-6", "rule", "add", "to", "2001:db8:9::/48", "prohibit", "pref", "70"},
		{"ip", "rule", "del", "pref", "32767"},
		{"sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv4.conf.eth0.rp_filter=2", "net.ipv6.conf.all.forwarding=1"},
		{"sysctl", "-q", "-w", "net.ipv4.conf.lan0/5.rp_filter=1"},
	} {
		within(t, h.Do, words...)
	}
	c := copyOf(t, h)
	if len(c.Notes) > 0 {
		t.Errorf("notes: %v", c.Notes)
	}
	// What only a copy has: the other end's number, no neighbours, and no lifetimes.
	plain := regexp.MustCompile(`(?m)@\S+|,NOARP| link-netns\S* \S+| noprefixroute| nodad|(?:qdisc|qlen) \S+|^\s+valid_lft.*\n`)
	for _, what := range [][]string{
		{"ip", "addr"},
		{"ip", "route", "show", "table", "all"},
		{"ip", "-6", "route", "show", "table", "all"},
		{"ip", "rule"},
		{"ip", "-6", "rule"},
		{"sh", "-c", "cd /proc/sys/net && head -n 1 ipv4/ip_forward ipv4/conf/*/rp_filter ipv6/conf/*/forwarding ipv4/conf/*/route_localnet"},
	} {
		want := sorted(plain.ReplaceAllString(within(t, h.Do, what...), ""))
		got := sorted(plain.ReplaceAllString(within(t, c.Space.Do, what...), ""))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s differs (-host +copy):\n%s", strings.Join(what, " "), diff)
		}
	}
	if l, there := c.Link("eth0"); !there || !l.Up {
		t.Errorf("eth0 is %+v, %v", l, there)
	}
}

// The kernel makes the local routes of IPv6 addresses a moment after the addresses; a copy
// without them takes what is for the host for something to forward.
func TestLocalRoutesAreThereAtOnce(t *testing.T) {
	net := testnet.New(t)
	h, other := net.Unnamed("host"), net.Unnamed("other")
	addresses := make([]string, 200)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("2001:db8::1:%x/64", i)
	}
	net.Join(testnet.End{In: h, Device: "eth0", Addresses: addresses}, testnet.End{In: other, Device: "eth0"})
	h.Forward()
	c := copyOf(t, h)
	count := func(do func(func() error) error) (n int) {
		if err := do(func() error {
			routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
			n = len(routes)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got, want := count(c.Space.Do), count(h.Do); got != want {
		t.Errorf("%d local routes, the host has %d", got, want)
	}
}

// sorted puts lines in order: those of a device's addresses and of equal routes come
// in the order in which they were made.
func sorted(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	slices.Sort(lines)
	return lines
}

// Extensions of iptables cannot be printed by every nft, and are copied anyway.
func TestIPTablesOverNftables(t *testing.T) {
	testnet.Require(t, testnet.Program("iptables-nft"), testnet.Program("iptables-nft-save"))
	h := host(t)
	for _, rule := range []string{
		"-A INPUT -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -m recent --set --name ssh",
		"-A INPUT -p udp -m multiport --dports 53,67 -j ACCEPT",
		"-A INPUT ! -p tcp -m comment --comment else -j DROP",
		"-t nat -A POSTROUTING -o eth0 -j MASQUERADE",
		"-t nat -A PREROUTING -p tcp --dport 80 -j DNAT --to-destination 10.0.0.5:8080",
		"-t mangle -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu",
	} {
		if err := h.Do(func() error { return exec.Command("iptables-nft", strings.Fields(rule)...).Run() }); err != nil {
			t.Logf("this kernel does not take %s", rule)
		}
	}
	want := within(t, h.Do, "iptables-nft-save")
	testnet.Require(t, testnet.Probed("rules of iptables-nft", func() error {
		if !strings.Contains(want, "-A ") {
			return errors.New("the kernel takes none")
		}
		return nil
	}))
	c := copyOf(t, h)
	remarks := regexp.MustCompile(`(?m)^#.*\n|\[\d+:\d+\]`)
	if diff := cmp.Diff(remarks.ReplaceAllString(want, ""), remarks.ReplaceAllString(within(t, c.Space.Do, "iptables-nft-save"), "")); diff != "" {
		t.Errorf("the copy differs (-host +copy):\n%s", diff)
	}
}

func TestLegacyTables(t *testing.T) {
	testnet.Require(t, testnet.IPTablesLegacy("filter"))
	h := host(t)
	within(t, h.Do, "iptables-legacy", "-A", "INPUT", "-p", "tcp", "--dport", "22", "-j", "ACCEPT")
	within(t, h.Do, "iptables-legacy", "-P", "FORWARD", "DROP")
	c := copyOf(t, h)
	if !c.Legacy {
		t.Error("the copy has no legacy tables")
	}
	remarks := regexp.MustCompile(`(?m)^#.*\n|\[\d+:\d+\]`)
	want := remarks.ReplaceAllString(within(t, h.Do, "iptables-legacy-save"), "")
	if got := remarks.ReplaceAllString(within(t, c.Space.Do, "iptables-legacy-save"), ""); got != want {
		t.Errorf("the copy differs (-host +copy):\n%s", cmp.Diff(want, got))
	}
}

// A copy has no name, and nothing of it is left.
func TestNothingIsLeft(t *testing.T) {
	h := host(t)
	names, _ := filepath.Glob("/run/netns/*")
	c := copyOf(t, h)
	during, _ := filepath.Glob("/run/netns/*")
	slices.Sort(names)
	if len(during) > len(names)+2 { // other tests make some at the same time
		t.Logf("names before %v, during %v", names, during)
	}
	if err := c.Space.Do(func() error {
		if found := output(t, "ip", "netns", "identify"); strings.TrimSpace(found) != "" {
			return fmt.Errorf("the copy has the name %s", found)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

package doctor_test

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
)

// illness is a check, with hosts to build.
type illness struct {
	check      string
	ill, alike func(b *broken)
}

func (test illness) try(t *testing.T) {
	t.Parallel()
	test.inTurn(t)
}

// inTurn is try for what no other test may be beside.
func (test illness) inTurn(t *testing.T) {
	// The healthy one first: some illnesses are the machine's.
	alike := newBroken(t)
	test.alike(alike)
	for looks := 1; ; looks++ {
		found, _ := alike.examine(test.check, time.Second)
		if len(found) == 0 {
			break
		}
		// The processors are sampled for all namespaces, those of other tests too.
		if test.check != "rules-busy" || looks == 20 {
			t.Fatalf("a healthy host: %+v", found)
		}
	}
	ill := newBroken(t)
	test.ill(ill)
	// What only comes with the load is waited for.
	for deadline := time.Now().Add(time.Minute); ; {
		found, all := ill.examine(test.check, time.Second)
		if len(found) > 0 {
			t.Log(found[0].Text)
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not found; what is: %+v", all)
		}
	}
}

// rules is try for what needs no window.
func (test illness) rules(t *testing.T) {
	t.Parallel()
	alike, ill := newBroken(t), newBroken(t)
	test.alike(alike)
	if found, _ := alike.examine(test.check, time.Millisecond); len(found) > 0 {
		t.Errorf("a healthy host: %+v", found)
	}
	test.ill(ill)
	found, all := ill.examine(test.check, time.Millisecond)
	if len(found) == 0 {
		t.Fatalf("not found; what is: %+v", all)
	}
	t.Log(found[0].Text)
}

// tools load a ruleset of iptables: over nftables and legacy.
var tools = []string{"iptables-nft", "iptables-legacy"}

// tables loads what iptables-restore reads, for one family.
func (b *broken) tables(tool string, family int, text string) {
	b.t.Helper()
	if tool == "iptables-legacy" {
		testnet.Require(b.t, testnet.IPTablesLegacy("filter"), testnet.IPTablesLegacy("nat"))
	}
	if out, err := b.host.RunInput(text, command(tool, family)+"-restore"); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
}

// command is a tool for one family.
func command(tool string, family int) string {
	if family == 6 {
		return strings.Replace(tool, "iptables", "ip6tables", 1)
	}
	return tool
}

// container is a host behind a bridge of this one.
func (b *broken) container() *testnet.Namespace {
	b.t.Helper()
	b.reachable()
	b.host.Forward()
	box := b.net.Unnamed("box")
	port, _ := b.net.Join(testnet.End{In: b.host, Device: "veth0"}, testnet.End{In: box, Device: "eth0", Addresses: []string{"198.51.100.2/24", "2001:db8:1::2/64"}})
	b.host.Bridge("br0", []string{"198.51.100.1/24", "2001:db8:1::1/64"}, port)
	box.Route("default4", "198.51.100.1")
	box.Route("default6", "2001:db8:1::1")
	return box
}

// by writes the addresses of a family into a text: HOST, BOX and LAN.
func by(family int, text string) string {
	if family == 6 {
		return strings.NewReplacer("BOX", "2001:db8:1::2", "TO", "[2001:db8:1::2]", "HOST", "2001:db8::1", "LAN", "2001:db8:1::/64").Replace(text)
	}
	return strings.NewReplacer("BOX", "198.51.100.2", "TO", "198.51.100.2", "HOST", "192.0.2.1", "LAN", "198.51.100.0/24").Replace(text)
}

// publishes is what Docker writes for a port, and a host that lets ssh in alone.
const publishes = `*nat
:PREROUTING ACCEPT [0:0]
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A DOCKER ! -i br0 -p tcp -m tcp --dport 8081 -j DNAT --to-destination TO:80
COMMIT
*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p tcp --dport 22 -j ACCEPT
-A FORWARD -j DOCKER-USER
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o br0 -j DOCKER
-A DOCKER -d BOX ! -i br0 -o br0 -p tcp -m tcp --dport 80 -j ACCEPT
COMMIT
`

// publishesNft is the same, by a table of each family.
const publishesNft = `table FAMILY nat { chain prerouting { type nat hook prerouting priority -100; fib daddr type local tcp dport 8081 dnat to TO:80; }; }
	table inet filter {
		chain input { type filter hook input priority 0; policy drop; ct state established,related accept; tcp dport 22 accept; }
		chain forward { type filter hook forward priority 0; policy drop; ct state established,related accept; oifname "br0" CONDITION accept; }
	}`

func nftOf(family int, text string) string {
	return by(family, strings.NewReplacer("FAMILY", map[int]string{4: "ip", 6: "ip6"}[family], "ADDRESS", map[int]string{4: "ip", 6: "ip6"}[family]).Replace(text))
}

// TestRuleIllnesses: those of rules, by each tool and in both families.
func TestRuleIllnesses(t *testing.T) {
	var all []illness
	for _, family := range []int{4, 6} {
		for _, tool := range tools {
			all = append(all, illness{
				"published-past",
				func(b *broken) { b.container(); b.tables(tool, family, by(family, publishes)) },
				func(b *broken) { // the host keeps the internet from its containers
					b.container()
					b.tables(tool, family, by(family, strings.Replace(publishes, "-A FORWARD -j DOCKER-USER", "-A DOCKER-USER -i eth0 -j DROP\n-A FORWARD -j DOCKER-USER", 1)))
				},
			})
		}
		all = append(all, illness{
			"published-past",
			func(b *broken) {
				b.container()
				b.host.Nft(nftOf(family, strings.Replace(publishesNft, "CONDITION", "", 1)))
			},
			func(b *broken) { // a router, with no container
				b.container()
				b.host.MustRun("ip", "link", "set", "veth0", "nomaster")
				b.host.Nft(nftOf(family, strings.Replace(publishesNft, "CONDITION", "", 1)))
			},
		})
	}
	all = append(all, natIllnesses()...)
	all = append(all, chainIllnesses()...)
	all = append(all, setIllnesses()...)
	tried := map[string]bool{}
	for i, test := range all {
		if !testing.Short() || i%9 == 0 || !tried[test.check] {
			tried[test.check] = true
			t.Run(test.check, test.rules)
		}
	}
}

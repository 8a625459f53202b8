package stories

import (
	"fmt"
	"net/netip"
	"strings"
)

// What the story has.
const (
	storyBans     = 650
	storyServices = 100
	servicePorts  = 10   // of each address
	storyShare    = 55.0 // per cent of a core in its rules
	storyRemedy   = 2.0  // and with ipset
)

// Subjects of the story.
const (
	legacyRules    = "the story's rules, iptables-legacy"
	nftRuleset     = "the story's rules, iptables-nft"
	ipsetRemedy    = "the story's remedy, ipset"
	ipsetRemedyNft = "the story's remedy, ipset with iptables-nft"
	ipsetFilter    = "the remedy, and a filter with state behind it"
)

// partnerAddress is the other load balancer's, which is elected where adverts of this one fail.
var partnerAddress = netip.AddrFrom4([4]byte{198, 51, 100, 160})

// bannedAddress is the address of ban i.
func bannedAddress(i int) netip.Addr {
	network := [][3]byte{{192, 0, 2}, {203, 0, 113}, {198, 51, 100}}[i/250]
	first := byte(1)
	if i/250 == 2 {
		first = 2 // the load balancer's own is the one before
	}
	return netip.AddrFrom4([4]byte{network[0], network[1], network[2], first + byte(i%250)})
}

// serviceAddress is an address of the load balancer and a port that it serves there:
// ten addresses, ten ports.
func serviceAddress(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(201 + i/servicePorts)}), uint16(8000+i%servicePorts))
}

// bannedFile is what the policy's banned.txt has.
func bannedFile() string {
	var b strings.Builder
	for i := range storyBans {
		fmt.Fprintln(&b, bannedAddress(i))
	}
	return b.String()
}

// loadBalancer is the policy of the answer.
func loadBalancer() string {
	var listeners []string
	for i := range storyServices {
		a := serviceAddress(i)
		listeners = append(listeners, fmt.Sprintf("%q", fmt.Sprintf("%s tcp/%d", a.Addr(), a.Port())))
	}
	return fmt.Sprintf(`version: 1
sets:
  banned: { file: banned.txt, counters: true } # %d addresses
  listeners: { endpoints: [%s] }
  partner: [%s]
services:
  web: tcp/8000-8009
ban: [banned]
tracking:
  bypass: [web to listeners]
input:
  default: drop
  rules:
    - allow web
    - allow vrrp from partner
output:
  default: allow
`, storyBans, folded(listeners), partnerAddress)
}

// folded joins the items of a YAML list, some on a line.
func folded(items []string) string {
	var b strings.Builder
	for i, item := range items {
		switch {
		case i == 0:
		case i%4 == 0:
			b.WriteString(",\n    ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(item)
	}
	return b.String()
}

// linearRules is what the story's host had.
func linearRules() string {
	var b strings.Builder
	b.WriteString("*raw\n")
	for i := range storyBans {
		fmt.Fprintf(&b, "-A PREROUTING -s %s -j DROP\n", bannedAddress(i))
	}
	for i := range storyServices {
		a := serviceAddress(i)
		fmt.Fprintf(&b, "-A PREROUTING -d %s -p tcp --dport %d -j CT --notrack\n", a.Addr(), a.Port())
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// ipsetSets are those that setRules ask: what the story's rules became.
func ipsetSets() string {
	var b strings.Builder
	fmt.Fprintf(&b, "create banned hash:ip hashsize 1024\ncreate services hash:ip,port hashsize 256\n")
	for i := range storyBans {
		fmt.Fprintf(&b, "add banned %s\n", bannedAddress(i))
	}
	for i := range storyServices {
		a := serviceAddress(i)
		fmt.Fprintf(&b, "add services %s,tcp:%d\n", a.Addr(), a.Port())
	}
	return b.String()
}

const (
	setRules = `*raw
-A PREROUTING -m set --match-set banned src -j DROP
-A PREROUTING -m set --match-set services dst,dst -j CT --notrack
COMMIT
`
	// filterRules do what Sluice's policy does besides: whoever is not asked for is
	// dropped, and what the host itself began is answered.
	filterRules = `*filter
:INPUT DROP [0:0]
-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
-A INPUT -i lo -j ACCEPT
-A INPUT -m conntrack --ctstate INVALID -j DROP
-A INPUT -p tcp --dport 8000:8009 -j ACCEPT
COMMIT
`
	// leftAlone keeps every packet out of connection tracking, whose hooks are there
	// when a rule asks for a state.
	leftAlone     = "table ip left { chain raw { type filter hook prerouting priority raw; notrack; }; }\n"
	leftAloneByCT = leftAlone + "table ip asked { chain forward { type filter hook forward priority 0; ct state new; }; }\n"
)

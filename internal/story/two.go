package story

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"sluice/internal/addrset"
	"sluice/internal/figures"
	"sluice/internal/measure"
	"sluice/internal/samples"
	"sluice/internal/testnet"
)

var two = Story{
	Number: 2,
	Title:  "A flood of SYNs meets 750 rules",
	Incident: "A busy load balancer kept no connection state. Every packet walked some 650 bans and some 100 NOTRACK rules, none of which " +
		"ended its way: an iptables rule with NOTRACK lets the packet go on to the next one. A flood of SYNs took the site down; 55 % of a core " +
		"went to rules. With ipset it was 2 %, and the counters of each banned address were lost.",
	Needs: []testnet.Feature{
		testnet.IPTablesLegacy("raw"), testnet.Program("iptables-nft-restore"), testnet.Program("ipset"), measure.LiveFrames,
	},
	Run: playTwo,
}

// What the story has.
const (
	storyBans     = 650
	storyServices = 100
	storyShare    = 55.0 // per cent of a core in its rules
	storyRemedy   = 2.0  // and with ipset
)

// Subjects of the story.
const (
	legacyRules = "the story's rules, iptables-legacy"
	nftRuleset  = "the story's rules, iptables-nft"
	ipsetRemedy = "the story's remedy, ipset"
)

// bannedAddress is the address of ban i; nobody who floods has it by chance.
func bannedAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 0, 2 + byte(i/250), 1 + byte(i%250)})
}

// serviceAddress is an address of the load balancer and the port that it serves there.
func serviceAddress(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(100 + i)}), uint16(8000+i))
}

// loadBalancer is the policy of the answer.
func loadBalancer() string {
	var bans, listeners []string
	for i := range storyBans {
		bans = append(bans, bannedAddress(i).String())
	}
	for i := range storyServices {
		a := serviceAddress(i)
		listeners = append(listeners, fmt.Sprintf("%q", fmt.Sprintf("%s tcp/%d", a.Addr(), a.Port())))
	}
	return fmt.Sprintf(`version: 1
sets:
  banned: { addresses: [%s], counters: true }
  listeners: { endpoints: [%s] }
services:
  web: tcp/8000-8099
ban: [banned]
tracking:
  bypass: [web to listeners]
input:
  default: drop
  rules:
    - allow web
output:
  default: allow
`, folded(bans), folded(listeners))
}

// folded joins the items of a YAML list, some on a line.
func folded(items []string) string {
	var b strings.Builder
	for i, item := range items {
		switch {
		case i == 0:
		case i%8 == 0:
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

// ipsetRules is what it became: the sets, and the rules that ask them.
func ipsetRules() (sets, rules string) {
	var b strings.Builder
	fmt.Fprintf(&b, "create banned hash:ip hashsize 1024\ncreate services hash:ip,port hashsize 256\n")
	for i := range storyBans {
		fmt.Fprintf(&b, "add banned %s\n", bannedAddress(i))
	}
	for i := range storyServices {
		a := serviceAddress(i)
		fmt.Fprintf(&b, "add services %s,tcp:%d\n", a.Addr(), a.Port())
	}
	return b.String(), "*raw\n-A PREROUTING -m set --match-set banned src -j DROP\n" +
		"-A PREROUTING -m set --match-set services dst,dst -j CT --notrack\nCOMMIT\n"
}

func playTwo(ctx context.Context, s *Stage) error {
	answer, err := s.Answer("load-balancer.yaml", "Sluice's answer", loadBalancer())
	if err != nil {
		return err
	}
	restore := func(program, rules string) func(*measure.Lab) error {
		return func(l *measure.Lab) error { _, err := l.Namespace.RunInput(rules, program); return err }
	}
	sets, setRules := ipsetRules()
	linear := linearRules()
	apply := func(l *measure.Lab) error { _, err := s.Apply(ctx, l.Namespace, answer); return err }
	again := ", again"
	subjects := []struct {
		name string
		load func(*measure.Lab) error
	}{
		{noRules, func(*measure.Lab) error { return nil }},
		{legacyRules, restore("iptables-legacy-restore", linear)},
		{nftRuleset, restore("iptables-nft-restore", linear)},
		{ipsetRemedy, func(l *measure.Lab) error {
			if _, err := l.Namespace.RunInput(sets, "ipset", "restore"); err != nil {
				return err
			}
			_, err := l.Namespace.RunInput(setRules, "iptables-legacy-restore")
			return err
		}},
		{sluiceSubject, apply},
		{sluiceSubject + again, apply},
	}
	labs := make([]*measure.Lab, len(subjects))
	for i, v := range subjects {
		if labs[i], err = measure.NewLab(s.Net, fmt.Sprintf("balancer%d", i)); err != nil {
			return err
		}
		for j := range storyServices {
			if err := labs[i].Own(serviceAddress(j).Addr()); err != nil {
				return err
			}
		}
		if err := v.load(labs[i]); err != nil {
			return fmt.Errorf("load %s: %w", v.name, err)
		}
	}

	floods, err := s.floods()
	if err != nil {
		return err
	}
	var cells []measure.Cell
	for i := range floods {
		defer floods[i].source.Close()
		for j, v := range subjects {
			survives := measure.All
			if floods[i].banned && v.name != noRules {
				survives = measure.None
			}
			cells = append(cells, measure.Cell{Name: floods[i].name + "; " + v.name, Lab: labs[j], Source: floods[i].source, Survives: survives})
		}
	}
	rounds := 41
	if s.Short {
		rounds = 7
	}
	s.Say("a flood of SYNs, %d rounds", rounds)
	result, err := measure.Compare(ctx, measure.Plan{Rounds: rounds, Packets: 1 << 15}, cells)
	if err != nil {
		return err
	}
	section := s.Section("flood", "What a SYN of the flood pays for the rules",
		"SYNs from 65,536 sources to the services in turn. Sluice's whole policy is asked, behind it a SYN that is not for a service is dropped; the story's rules keep "+
			"packets out of tracking and stop those of banned addresses, and do nothing else.")
	added := func(f flood, subject string) samples.Series {
		return result.Added(f.name+"; "+subject, f.name+"; "+noRules)
	}
	for _, f := range floods {
		for _, v := range subjects[1 : len(subjects)-1] {
			a := added(f, v.name)
			section.Add(figures.Figure{Case: f.name, Subject: v.name, Quantity: "added per packet", Unit: "ns", Samples: a})
		}
	}
	strangers := floods[0]
	for _, v := range subjects[1 : len(subjects)-1] {
		whole := result.NS(strangers.name + "; " + v.name)
		section.Add(figures.Figure{Case: strangers.name, Subject: v.name, Quantity: "part of a packet's time that is spent in rules", Unit: "%", Samples: percent(added(strangers, v.name).Per(whole), 100)})
	}
	same := added(strangers, sluiceSubject+again).Per(added(strangers, sluiceSubject))
	for _, before := range []string{legacyRules, nftRuleset} {
		section.Add(figures.Figure{Case: "at a flood of which " + before + " take 55 %", Subject: ipsetRemedy, Quantity: "share of a core in rules", Unit: "%", Samples: percent(added(strangers, ipsetRemedy).Per(added(strangers, before)), storyShare)})
		ratio := added(strangers, sluiceSubject).Per(added(strangers, before))
		section.Add(figures.Figure{Case: "at a flood of which " + before + " take 55 %", Subject: sluiceSubject, Quantity: "share of a core in rules", Unit: "%", Samples: percent(ratio, storyShare)})
		s.Goal(figures.AtMost("Sluice against "+before+", added per packet (the story's 55 % to 2 %)", "×", storyRemedy/storyShare, ratio, same))
	}
	s.Found(fmt.Sprintf("Each packet is compared with %d rules, whatever it is: none of the NOTRACK rules ends its way.", storyBans+storyServices), s.walked(labs[1])...)
	if err := s.counters(labs[4]); err != nil {
		return err
	}
	s.Honest("The story's 55 %% and 2 %% are shares of a core on its own machine, under its own flood; here the same is said as a ratio of the time that rules add to a packet. With iptables-legacy a rule that does not match takes two to three nanoseconds, with iptables-nft, which is what “iptables” means on Debian, some twenty.")
	return nil
}

// percent of a whole that is at per cent where the ratio is one.
func percent(ratio samples.Series, at float64) samples.Series {
	out := make(samples.Series, len(ratio))
	for i, r := range ratio {
		out[i] = at * r
	}
	return out
}

// flood is one kind of packets.
type flood struct {
	name   string
	banned bool
	source *measure.Source
}

func (s *Stage) floods() ([]flood, error) {
	var strangers, banned []measure.Flow
	for i, from := range measure.ByAddress(addrset.All(), addrset.IPv4, measure.Sources, s.Seed) {
		strangers = append(strangers, measure.Flow{From: netip.AddrPortFrom(from, measure.SourcePort), To: serviceAddress(i % storyServices)})
		banned = append(banned, measure.Flow{From: netip.AddrPortFrom(bannedAddress(i%storyBans), measure.SourcePort), To: serviceAddress(i % storyServices)})
	}
	out := []flood{{name: "SYN from an address that is not banned"}, {name: "SYN from a banned address", banned: true}}
	for i, flows := range [][]measure.Flow{strangers, banned} {
		source, err := measure.Load(measure.Traffic{Flags: "S", Flows: flows})
		if err != nil {
			return nil, err
		}
		out[i].source = source
	}
	return out, nil
}

// walked is the evidence: how often the first and the last of the rules were asked.
func (s *Stage) walked(l *measure.Lab) []string {
	out, err := l.Namespace.Run("iptables-legacy", "-t", "raw", "-L", "PREROUTING", "-n", "-v", "-x")
	if err != nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) < 4 {
		return nil
	}
	return []string{
		"iptables -t raw -L PREROUTING -n -v -x has " + fmt.Sprint(len(lines)-2) + " rules, and packets that the last of them matched:",
		strings.Join(strings.Fields(lines[len(lines)-1]), " "),
	}
}

// counters shows that each banned address is still counted apart.
func (s *Stage) counters(l *measure.Lab) error {
	out, err := l.Namespace.Run("nft", "list", "set", "inet", "sluice", "ban.banned_v4_counted")
	if err != nil {
		return fmt.Errorf("read the counters of the bans: %w", err)
	}
	counted := strings.Count(out, "counter packets ") - strings.Count(out, "counter packets 0 ")
	section := s.Section("counters", "Counters of each banned address", "nft list set inet sluice ban.banned_v4_counted: packets and bytes of each banned address, which the story lost with ipset.")
	section.Add(figures.Figure{Case: "banned addresses with packets of their own", Subject: sluiceSubject, Quantity: "addresses", Unit: "addresses", More: true, Samples: samples.Series{float64(counted)}})
	s.Goal(figures.AtLeast("banned addresses that are counted apart", "", storyBans, samples.Series{float64(counted)}, nil))
	return nil
}

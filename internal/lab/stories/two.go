package stories

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
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
	Programs: []string{"iptables-legacy-restore", "iptables-nft-restore", "ipset"},
	Run:      playTwo,
}

// again marks a subject that is measured twice, for A/A.
const again = ", again"

// Subjects that tell what a part of the cost is made of.
const (
	withoutTracking = "every packet kept out of tracking, by nothing else"
	withTracking    = "the same, where connection tracking is at work"
)

func (s *Stage) balancers(ctx context.Context, answer string) []measure.Subject {
	restore := func(program string, rules ...string) func(*measure.Lab) error {
		return func(l *measure.Lab) error {
			for _, r := range rules {
				if _, err := l.Namespace.RunInput(r, program); err != nil {
					return err
				}
			}
			return nil
		}
	}
	bySet := func(program string, rules ...string) func(*measure.Lab) error {
		return func(l *measure.Lab) error {
			if _, err := l.Namespace.RunInput(ipsetSets(), "ipset", "restore"); err != nil {
				return err
			}
			return restore(program, rules...)(l)
		}
	}
	apply := func(l *measure.Lab) error { _, err := s.Apply(ctx, l.Namespace, answer); return err }
	const legacy, nft = "iptables-legacy-restore", "iptables-nft-restore"
	return []measure.Subject{
		{Name: noRules, Open: true},
		{Name: legacyRules, Load: restore(legacy, linearRules())},
		{Name: nftRuleset, Load: restore(nft, linearRules())},
		{Name: ipsetRemedy, Load: bySet(legacy, setRules)},
		{Name: ipsetRemedyNft, Load: bySet(nft, setRules)},
		{Name: ipsetFilter, Load: bySet(legacy, setRules, filterRules)},
		{Name: withoutTracking, Open: true, Load: func(l *measure.Lab) error { return l.Nft(leftAlone) }},
		{Name: withTracking, Open: true, Load: func(l *measure.Lab) error { return l.Nft(leftAloneByCT) }},
		{Name: sluiceSubject, Load: apply},
		{Name: sluiceSubject + again, Load: apply},
	}
}

func playTwo(ctx context.Context, s *Stage) error {
	if _, err := s.write("banned.txt", bannedFile()); err != nil {
		return err
	}
	answer, err := s.Answer("load-balancer.yaml", "Sluice's answer", loadBalancer())
	if err != nil {
		return err
	}
	balancers, err := measure.Enter(s.balancers(ctx, answer), func(label string) (*measure.Lab, error) {
		l, err := measure.NewLab(s.Net, label)
		for j := 0; err == nil && j < storyServices; j += servicePorts {
			err = l.Own(serviceAddress(j).Addr())
		}
		return l, err
	}, nil)
	if err != nil {
		return err
	}
	labs := map[string]*measure.Lab{}
	for _, b := range balancers {
		labs[b.Name] = b.Lab
	}
	floods := s.floods()
	f, err := s.flood(ctx, balancers, floods)
	if err != nil {
		return err
	}
	f.tell(s)
	if err := s.walked(ctx, labs[legacyRules], floods[0].Traffic); err != nil {
		return err
	}
	if err := s.countedApart(labs[sluiceSubject]); err != nil {
		return err
	}
	if err := s.adverts(ctx, answer); err != nil {
		return err
	}
	s.Honest("The story's 55 %% and 2 %% are shares of a core, of a machine and a flood that are not told in full: which processor and kernel, how many packets a second, and whether " +
		"the host's answers to SYNs and its other traffic walked the same rules (as they do where NOTRACK is in the OUTPUT chain too). Here it is what the rules add to one SYN on its way in; " +
		"its answer is not part of it. The share of a core is what that makes at the flood of which the linear rules take the story's 55 %%.")
	s.Honest("The story's ratio of 27 is not a property of ipset: beside linear rules of iptables-legacy, its remedy itself reaches less here. Rules that stand one behind the other in memory are read quickly where " +
		"nothing else uses the processor's caches, as in this measurement; on a busy host they are not. With iptables-nft, which is what “iptables” means on Debian since 2019, a rule takes two to four times as long.")
	s.Honest("Sluice's figure has more in it than those of the story's rules and of its remedy, which keep packets out of tracking, stop those of banned addresses, and do nothing else: the whole policy is asked, "+
		"with a default of drop, state for all other traffic, and a counter for every banned address. “%s” is the remedy with that beside it, without the counters and without IPv6.", ipsetFilter)
	return nil
}

// floods of SYNs that strangers and banned addresses send to the services in turn.
func (s *Stage) floods() []measure.Case {
	var bans []netip.Prefix
	for i := range storyBans {
		bans = append(bans, netip.PrefixFrom(bannedAddress(i), 32))
	}
	var strangers, banned []measure.Flow
	for i, from := range measure.ByAddress(addrset.All().Difference(addrset.FromPrefixes(bans...)), addrset.IPv4, measure.Sources, s.Seed) {
		strangers = append(strangers, measure.Flow{From: netip.AddrPortFrom(from, measure.SourcePort), To: serviceAddress(i % storyServices)})
		banned = append(banned, measure.Flow{From: netip.AddrPortFrom(bannedAddress(i%storyBans), measure.SourcePort), To: serviceAddress(i % storyServices)})
	}
	return []measure.Case{
		{Name: "SYN from an address that is not banned", Traffic: measure.Traffic{Flags: "S", Flows: strangers}, Survives: measure.All},
		{Name: "SYN from a banned address", Traffic: measure.Traffic{Flags: "S", Flows: banned}, Survives: measure.None},
	}
}

// flooded is what was measured: by name of a flood and of a way to write the rules.
type flooded struct {
	result *measure.Result
	names  []string // of the floods
}

func (s *Stage) flood(ctx context.Context, balancers []measure.Subject, floods []measure.Case) (*flooded, error) {
	out := &flooded{}
	for _, f := range floods {
		out.names = append(out.names, f.Name)
	}
	cells, done, err := measure.Beside(balancers, floods)
	defer done()
	if err != nil {
		return nil, err
	}
	rounds := s.packetRounds(41)
	s.Say("a flood of SYNs, %d rounds", rounds)
	out.result, err = measure.Compare(ctx, measure.Plan{Rounds: rounds, Packets: 1 << 15}, cells)
	return out, err
}

func (f *flooded) added(flood, subject string) stats.Series {
	return f.result.AddedMean(subject, noRules, flood)
}

func (f *flooded) tell(s *Stage) {
	unit := s.each()
	section := s.Section("flood", "What a SYN of the flood pays for the rules",
		"SYNs from 65,536 sources to the services in turn, each compared with the same SYN where there are no rules. A banned one may cost less than without rules: it is dropped before the rest of its way.")
	compared := []string{legacyRules, nftRuleset, ipsetRemedy, ipsetRemedyNft, ipsetFilter, sluiceSubject}
	for _, name := range f.names {
		for _, subject := range compared {
			section.Add(figures.Figure{Case: name, Subject: subject, Quantity: "added per packet", Unit: unit, Samples: f.added(name, subject)})
		}
	}
	strangers := f.names[0]
	for _, subject := range compared {
		whole := f.result.NS(measure.Of(subject, strangers))
		section.Add(figures.Figure{
			Case: strangers, Subject: subject, Quantity: "part of a packet's time that is spent in rules", Unit: "%",
			Samples: percent(f.added(strangers, subject).Per(whole), 100),
		})
	}
	section = s.Section("tracking", "Of it, connection tracking",
		"A host whose rules ask for the state of anything has connection tracking's hooks for everything: also a packet that is kept out of it passes them. The story's rules and its remedy ask for no state; Sluice's policy and the filter behind the remedy do.")
	hooks := f.result.AddedMean(withTracking, withoutTracking, strangers)
	section.Add(figures.Figure{Case: strangers, Subject: "hooks of connection tracking", Quantity: "added per packet", Unit: unit, Samples: hooks})
	section.Add(figures.Figure{Case: strangers, Subject: sluiceSubject + ", without them", Quantity: "added per packet", Unit: unit, Samples: f.added(strangers, sluiceSubject).Minus(hooks)})

	section = s.Section("share", "Share of a core in rules", "At the flood of which the story's rules take 55 % of a core.")
	same := f.added(strangers, sluiceSubject+again).Per(f.added(strangers, sluiceSubject))
	for _, before := range []string{legacyRules, nftRuleset} {
		linear, named := f.added(strangers, before), before+", take 55 %"
		if !s.Counted() {
			section.Add(figures.Figure{Case: named, Subject: "the flood", Quantity: "SYNs", Unit: "1/s", More: true, Samples: rateAt(linear, storyShare)})
		}
		for _, subject := range []string{ipsetRemedy, ipsetRemedyNft, ipsetFilter, sluiceSubject} {
			section.Add(figures.Figure{Case: named, Subject: subject, Quantity: "share of a core in rules", Unit: "%", Samples: shareAt(f.added(strangers, subject), linear)})
		}
		s.Goal(figures.AtMost("Sluice against "+before+", added per packet (the story's 55 % to 2 %)", "×", storyRemedy/storyShare, f.added(strangers, sluiceSubject).Per(linear), same))
	}
	for _, of := range []string{ipsetRemedy, ipsetFilter} {
		section.Add(figures.Figure{Case: "against " + of, Subject: sluiceSubject, Quantity: "added per packet, as a ratio", Unit: "×", Samples: f.added(strangers, sluiceSubject).Per(f.added(strangers, of))})
	}
}

// shareAt is the share of a core, per cent, that goes to rules which add so much to a
// packet, at the flood of which linear ones take the story's share.
func shareAt(added, linear stats.Series) stats.Series {
	return percent(added.Per(linear), storyShare)
}

// rateAt is at how many packets a second so many ns for each are a share of a core, per
// cent.
func rateAt(ns stats.Series, share float64) stats.Series {
	out := make(stats.Series, len(ns))
	for i, each := range ns {
		out[i] = share / 100 * 1e9 / each
	}
	return out
}

// percent of a whole that is at per cent where the ratio is one.
func percent(ratio stats.Series, at float64) stats.Series {
	out := make(stats.Series, len(ratio))
	for i, r := range ratio {
		out[i] = at * r
	}
	return out
}

// walked is the evidence: a rule is put behind all others, and every SYN comes to it,
// although one of the NOTRACK rules was about it.
func (s *Stage) walked(ctx context.Context, l *measure.Lab, strangers measure.Traffic) error {
	const packets = 1024
	source, err := measure.Load(strangers)
	if err != nil {
		return err
	}
	defer source.Close()
	for _, args := range [][]string{{"-A", "PREROUTING"}, {"-Z", "PREROUTING"}} {
		if _, err := l.Namespace.Run("iptables-legacy", append([]string{"-t", "raw"}, args...)...); err != nil {
			return err
		}
	}
	if _, err := l.Inject(ctx, source, packets); err != nil {
		return err
	}
	out, err := l.Namespace.Run("iptables-legacy", "-t", "raw", "-L", "PREROUTING", "-n", "-v", "-x")
	if err != nil {
		return err
	}
	rules, err := listedRules(out)
	if err != nil || len(rules) != storyBans+storyServices+1 {
		return fmt.Errorf("iptables lists %d rules: %w", len(rules), err)
	}
	var kept uint64
	for _, r := range rules {
		if r.target == "CT" {
			kept += r.packets
		}
	}
	last := rules[len(rules)-1]
	s.Found(fmt.Sprintf("Each packet is compared with %d rules, whatever it is: none of the NOTRACK rules ends its way.", len(rules)-1),
		"one rule more was put behind them, and packets were sent that nobody has banned; iptables -t raw -L PREROUTING -n -v -x:",
		fmt.Sprintf("%d packets met a NOTRACK rule that was about them", kept),
		fmt.Sprintf("%d packets came to the rule behind all %d", last.packets, len(rules)-1))
	if kept == 0 || kept != last.packets {
		return fmt.Errorf("%d packets met a NOTRACK rule, and %d came to the last one", kept, last.packets)
	}
	// In a namespace without the rules that measure.
	host := s.Net.Namespace("diagnosed")
	if out, err = l.Namespace.Run("iptables-legacy-save", "-t", "raw"); err == nil {
		_, err = host.RunInput(out, "iptables-legacy-restore")
	}
	if err != nil {
		return err
	}
	said, err := s.diagnose(ctx, host, "linear-rules")
	if err != nil {
		return err
	}
	s.Found("The doctor, which knows nothing of the story:", said...)
	return nil
}

// listedRule is a line of iptables -L -n -v -x; a rule without a target has none.
type listedRule struct {
	packets uint64
	target  string
}

// listedRules reads what iptables -L -n -v -x says of one chain: a line for the chain,
// the names of the columns, and a line for each rule.
func listedRules(out string) ([]listedRule, error) {
	var rules []listedRule
	for i, line := range strings.Split(strings.TrimRight(out, "\n"), "\n") {
		if i < 2 {
			continue
		}
		words := strings.Fields(line)
		if len(words) < 3 {
			return nil, fmt.Errorf("no rule: %q", line)
		}
		packets, err := strconv.ParseUint(words[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("no number of packets: %q", line)
		}
		r := listedRule{packets: packets, target: words[2]}
		// Protocol and options follow the target: "all -- * *", or numbers for protocols.
		if len(words) > 3 && words[3] == "--" {
			r.target = ""
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// countedApart shows that each banned address has a counter of its own.
func (s *Stage) countedApart(l *measure.Lab) error {
	out, err := l.Namespace.Run("nft", "list", "table", "inet", "sluice")
	if err != nil {
		return fmt.Errorf("read the counters of the bans: %w", err)
	}
	counted := countedAddresses(out)
	section := s.Section("counters", "Counters of each banned address",
		"The story lost them with ipset. nft list table inet sluice has packets and bytes of each banned address; for instance:")
	for _, a := range slices.SortedFunc(maps.Keys(counted), netip.Addr.Compare)[:min(3, len(counted))] {
		section.Text = append(section.Text, fmt.Sprintf("– %s: %d packets", a, counted[a]))
	}
	n := stats.Series{float64(len(counted))}
	section.Add(figures.Figure{Case: "banned addresses with packets of their own", Subject: sluiceSubject, Quantity: "addresses", Unit: "addresses", More: true, Samples: n})
	s.Goal(figures.AtLeast("banned addresses that are counted apart", "", storyBans, n, nil))
	return nil
}

var countedElement = regexp.MustCompile(`([0-9.]+) counter packets ([0-9]+) bytes`)

// countedAddresses are the elements of sets, as nft lists them, whose counters have
// counted something.
func countedAddresses(listed string) map[netip.Addr]uint64 {
	out := map[netip.Addr]uint64{}
	for _, m := range countedElement.FindAllStringSubmatch(listed, -1) {
		a, err := netip.ParseAddr(m[1])
		n, _ := strconv.ParseUint(m[2], 10, 64)
		if err == nil && n > 0 {
			out[a] += n
		}
	}
	return out
}

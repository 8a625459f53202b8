package kernelbench

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/peers"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
	"sluice/internal/lab/timed"
	"sluice/internal/language/policy"
)

// gateway bans, and lets one service through: its one gap says whether by a flowtable.
const gateway = `version: 1
zones:
  wan: {interfaces: [eth0]}
  lan: {interfaces: [eth1]}
sets:
  banned: {file: banned.txt}
ban: [banned]
forward:
  default: drop
  accelerate: %t
  rules:
    - allow https from wan to lan
`

// flowtable puts the known connections of any ruleset beside it into a flowtable.
const flowtable = `table inet fast {
	flowtable f { hook ingress priority 0; devices = { eth0, eth1 }; }
	chain known {
		type filter hook forward priority 100;
		ct state established meta l4proto { tcp, udp } flow add @f
	}
}
`

// flows are known connections; their packets come in turn.
const flows = 256

// way is one layout with or without a flowtable, in a lab of its own.
type way struct {
	layout string
	fast   bool
	lab    *measure.Lab
}

func (w way) name() string {
	if w.fast {
		return w.layout + ", flowtable"
	}
	return w.layout
}

const bareLayout = "no rules"

// forwardPeers are the layouts of the bans that every packet passes.
var forwardPeers = []string{"nftables-set", "ipset (iptables-legacy)", "nftables-linear", "iptables-linear (iptables-legacy)"}

// forward measures packets of known connections through a host.
func (b *bench) forward() error { return testnet.Within("kernel", b.forwardIn) }

func (b *bench) forwardIn(net *testnet.Net) error {
	flowtables := testnet.Flowtable.Ask() == nil
	if !flowtables {
		b.report.Warnings = append(b.report.Warnings, fmt.Sprintf("kernel %s has no flowtables: Sluice falls back to the classic path, others cannot be loaded", b.kernel))
	}
	ways, err := b.ways(net)
	if err != nil {
		return err
	}
	s := figures.Section{Name: "forward", Title: fmt.Sprintf("Forwarded packets of known connections, %d bans, by layout", bans), Text: []string{
		fmt.Sprintf("%d TCP connections each; the classic path against a flowtable. By a flowtable no packet passes the forward hook: that was counted.", flows),
	}}
	for _, family := range []addrset.Family{addrset.IPv4, addrset.IPv6} {
		if err := b.forwardFamily(&s, ways, family, flowtables); err != nil {
			return fmt.Errorf("IPv%d: %w", family, err)
		}
	}
	b.report.Sections = append(b.report.Sections, s)
	return nil
}

// ways loads every layout twice.
func (b *bench) ways(net *testnet.Net) ([]way, error) {
	if err := b.banList(); err != nil {
		return nil, err
	}
	ways := []way{{layout: bareLayout}}
	for _, layout := range slices.Concat([]string{"sluice"}, forwardPeers) {
		ways = append(ways, way{layout: layout}, way{layout: layout, fast: true})
	}
	kept := ways[:0]
	for i, w := range ways {
		var err error
		if w.lab, err = measure.NewForwardLab(net, fmt.Sprintf("way%d", i)); err != nil {
			return nil, err
		}
		b.Say("forward: loading %s", w.name())
		if err := b.load(w); err != nil {
			if w.layout == "sluice" || b.Err() != nil {
				return nil, fmt.Errorf("load %s: %w", w.name(), err)
			}
			b.report.Warnings = append(b.report.Warnings, fmt.Sprintf("kernel %s: %s is left out: %v", b.kernel, w.name(), err))
			continue
		}
		kept = append(kept, w)
	}
	return kept, nil
}

func (b *bench) load(w way) error {
	switch w.layout {
	case bareLayout:
		return nil
	case "sluice":
		file, err := b.file("gateway.yaml", fmt.Sprintf(gateway, w.fast))
		if err != nil {
			return err
		}
		return b.apply(file, w.lab)
	}
	found, err := peers.Named(w.layout)
	if err != nil {
		return err
	}
	if err := found[0].Load(b, w.lab.Namespace, meaningOfGateway()); err != nil {
		return err
	}
	if w.fast {
		return w.lab.Nft(flowtable)
	}
	return nil
}

// meaningOfGateway is what the policy says.
func meaningOfGateway() peers.Meaning {
	var set addrset.Builder
	for _, a := range banned() {
		set.AddPrefix(netip.PrefixFrom(a, a.BitLen()))
	}
	return peers.Meaning{Banned: set.Set(), Forwards: true, Forward: &peers.Section{
		Default: policy.Drop,
		Rules: []peers.Rule{{
			Text: "allow https from wan to lan", Action: policy.Allow, In: []string{"eth0"}, Out: []string{"eth1"},
			Ways: []peers.Way{{Protocol: 6, Ports: []policy.PortRange{{From: 443, To: 443}}}},
		}},
	}}
}

// apply loads a policy as a user does.
func (b *bench) apply(file string, l *measure.Lab) error {
	_, err := timed.Run(b, timed.Program{Name: b.Binary, Args: []string{
		"apply", file, "--no-confirm", "--no-expect", "--force", "--netns", l.Namespace.Name(), "--state-dir", b.dir + "/state-" + l.Namespace.Name(),
	}})
	return err
}

// traffic is the middle of known connections from outside to a host behind.
func traffic(f addrset.Family) measure.Traffic {
	from := netip.MustParseAddr("203.0.113.7")
	if f == addrset.IPv6 {
		from = netip.MustParseAddr("2001:db8:5::7")
	}
	t := measure.Traffic{Flags: "A", Through: true}
	for i := range flows {
		t.Flows = append(t.Flows, measure.Flow{From: netip.AddrPortFrom(from, uint16(10000+i)), To: measure.Behind(f, 443)})
	}
	return t
}

func (b *bench) forwardFamily(s *figures.Section, ways []way, f addrset.Family, flowtables bool) error {
	t := traffic(f)
	source, err := measure.Load(t)
	if err != nil {
		return err
	}
	defer source.Close()
	var cells []measure.Cell
	for _, w := range ways {
		if _, err := w.lab.Establish(b, t, measure.Available()); err != nil {
			return err
		}
		cells = append(cells, measure.Cell{Name: w.name(), Lab: w.lab, Source: source, Survives: measure.All})
	}
	r, err := measure.Compare(b, measure.Plan{Rounds: rounds, Packets: packets, Exactly: true}, cells)
	if err != nil {
		return err
	}
	for _, w := range ways {
		quantity := fmt.Sprintf("IPv%d, whole way through the stack", f)
		s.Add(figures.Figure{Case: w.name(), Subject: b.kernel, Quantity: quantity, Unit: b.unit, Samples: r.NS(w.name())})
	}
	for _, w := range ways {
		if !w.fast {
			continue
		}
		slow := way{layout: w.layout}.name()
		if !slices.Contains(r.Cells, slow) {
			continue
		}
		s.Add(figures.Figure{
			Case: w.layout, Subject: b.kernel, Quantity: fmt.Sprintf("IPv%d, a packet by the flowtable against the classic path", f), Unit: "×",
			Samples: r.NS(w.name()).Per(r.NS(slow)),
		})
	}
	for _, w := range ways {
		passed, err := b.passForward(w.lab, source)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name(), err)
		}
		want := proofPackets
		if w.fast && flowtables {
			want = 0
		}
		if passed != want {
			return fmt.Errorf("%s: %d of %d packets passed the forward hook, %d should", w.name(), passed, proofPackets, want)
		}
		s.Add(figures.Figure{
			Case: w.name(), Subject: b.kernel, Quantity: forwardHook(f), Unit: "packets",
			Samples: stats.Series{float64(passed)},
		})
	}
	return nil
}

// proofPackets are sent to count which way they go: whole turns of all flows.
const proofPackets = 4 * flows

func forwardHook(f addrset.Family) string {
	return fmt.Sprintf("IPv%d, of %d packets, through the forward hook", f, proofPackets)
}

// witness counts at the forward hook.
const witness = `table inet witness {
	counter passed { }
	chain forward { type filter hook forward priority -400; counter name passed; }
}
`

// passForward counts, apart from what is timed, how many packets pass the forward
// hook while all of them come through.
func (b *bench) passForward(l *measure.Lab, source *measure.Source) (int, error) {
	if err := l.Nft(witness); err != nil {
		return 0, err
	}
	run, err := l.Inject(b, source, proofPackets)
	if err != nil {
		return 0, err
	}
	if run.Survived != run.Packets {
		return 0, fmt.Errorf("%d of %d packets came through", run.Survived, run.Packets)
	}
	counted, err := l.Namespace.Counters("inet witness")
	if err != nil {
		return 0, err
	}
	return int(counted["passed"]), l.Nft("delete table inet witness\n")
}

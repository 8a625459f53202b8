package diagnose

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"sluice/internal/doctor"
	"sluice/internal/importer/loaded"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/ruleset"
)

// Measured is a base chain, with what the doctor estimates of it and what it costs.
type Measured struct {
	doctor.ChainCost
	KnownNS *stats.Estimate `json:"known-measured-ns,omitempty"`
	NewNS   *stats.Estimate `json:"new-measured-ns,omitempty"`
	Left    string          `json:"left-out,omitempty"` // why something was not measured
}

// MeasureOptions say how to measure.
type MeasureOptions struct {
	Rounds int
	Say    func(format string, args ...any) // nil: nobody is told
}

// emptied is the cell in which no base chain has a rule.
const emptied = "emptied"

// tracked has the connection table at work in every lab alike, whichever chain asks for it.
const tracked = "table inet sluice_lab { chain c { type filter hook prerouting priority 299; ct state invalid; }; }\n"

// Measure measures what the rules of each base chain add to a packet: those that the
// network namespace of this process has loaded are loaded in namespaces of its own, one
// with the rules of no base chain and one for each with the rules of that alone. The
// packets are those of doctor.Costs.
func Measure(ctx context.Context, o MeasureOptions) ([]Measured, error) {
	texts, errs := ruleset.Texts(ctx, host.OwnTables...)
	rulesets, more := loaded.Read(ctx, host.OwnTables...)
	if err := errors.Join(append(errs, more...)...); err != nil {
		return nil, err
	}
	m := measurement{texts: texts, chains: []Measured{}, o: o}
	for _, c := range doctor.Costs(rulesets) {
		m.chains = append(m.chains, Measured{ChainCost: c})
	}
	return m.chains, testnet.Within("doctor", func(net *testnet.Net) error { return m.run(ctx, net) })
}

type measurement struct {
	texts  []ruleset.Text
	chains []Measured
	o      MeasureOptions
	bare   *measure.Lab
	labs   []*measure.Lab // as chains; nil: it is left out
}

func (m *measurement) run(ctx context.Context, net *testnet.Net) (err error) {
	if len(m.chains) == 0 {
		return nil
	}
	if m.bare, err = m.lab(ctx, net, "emptied", nil); err != nil {
		return err
	}
	m.labs = make([]*measure.Lab, len(m.chains))
	for i := range m.chains {
		c := &m.chains[i]
		switch {
		case c.Hook == program.Output:
			c.Left = "packets of the host's own are not sent"
			continue
		case m.apart(c):
			c.Left = "iptables prints the rest of its table"
			continue
		}
		if m.labs[i], err = m.lab(ctx, net, "chain"+strconv.Itoa(i), c); err != nil {
			return err
		}
	}
	for _, known := range []bool{true, false} {
		for _, through := range []bool{false, true} {
			for _, family := range []int{4, 6} {
				if err := m.packets(ctx, known, through, family); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// lab loads all rulesets, and takes the rules out of all base chains but one.
func (m *measurement) lab(ctx context.Context, net *testnet.Net, label string, keep *Measured) (*measure.Lab, error) {
	l, err := measure.NewForwardLab(net, label)
	if err != nil {
		return nil, err
	}
	run := func(input, name string, args ...string) error {
		_, err := l.Namespace.RunContext(ctx, input, name, args...)
		return err
	}
	for _, t := range m.texts {
		tool := []string{"nft", "-f", "-"}
		switch {
		case t.Tool == "ipset":
			tool = []string{"ipset", "restore"}
		case t.Tool == "nft" && (t.Shared || bytes.HasPrefix(t.Text, []byte("table netdev "))):
			// Chains beside those that iptables prints are left out, and so is what wants
			// devices of the host.
			continue
		case t.Tool != "nft":
			tool = []string{program4or6(t.Tool, t.Family) + "-restore"}
		}
		if err := run(string(t.Text), tool[0], tool[1:]...); err != nil {
			return nil, fmt.Errorf("load the rules of %s: %w", t.Tool, err)
		}
	}
	for i := range m.chains {
		c := &m.chains[i]
		if c == keep || m.apart(c) {
			continue
		}
		if c.Tool == "nft" {
			of := c.Family + " " + c.Table + " " + c.Chain
			err = run("flush chain "+of+"\nadd chain "+of+" { policy accept; }\n", "nft", "-f", "-")
		} else {
			tool := program4or6(c.Tool, c.FamilyOf())
			err = errors.Join(run("", tool, "-w", "-t", c.Table, "-F", c.Chain), run("", tool, "-w", "-t", c.Table, "-P", c.Chain, "ACCEPT"))
		}
		if err != nil {
			return nil, fmt.Errorf("empty %s: %w", c.Text(), err)
		}
	}
	return l, l.Nft(tracked)
}

// apart says that a chain is one of nft's in a table of iptables, which is not loaded.
func (m *measurement) apart(c *Measured) bool {
	return c.Tool == "nft" && slices.ContainsFunc(m.texts, func(t ruleset.Text) bool {
		return t.Tool == "nft" && t.Shared && bytes.HasPrefix(t.Text, []byte("table "+c.Family+" "+c.Table+" "))
	})
}

// program4or6 is the program of a tool, "iptables-nft", for a family.
func program4or6(tool string, family int) string {
	if family == 6 {
		return "ip6" + tool[len("ip"):]
	}
	return tool
}

// packets measures the chains that a kind of packet passes.
func (m *measurement) packets(ctx context.Context, known, through bool, family int) error {
	var of []int
	for i := range m.chains {
		c := &m.chains[i]
		forwarded := c.Hook == program.Forward || c.Hook == program.Postrouting
		if m.labs[i] != nil && c.FamilyOf() == family && forwarded == through {
			of = append(of, i)
		}
	}
	if len(of) == 0 {
		return nil
	}
	to := doctor.CostTo[family]
	if through {
		to = doctor.CostThrough[family]
	}
	flow := measure.Flow{From: netip.AddrPortFrom(doctor.CostFrom[family], doctor.CostFromPort), To: netip.AddrPortFrom(to, doctor.CostToPort)}
	traffic := measure.Traffic{Flags: "S", Flows: []measure.Flow{flow}}
	if known {
		traffic.Flags = "A"
	}
	source, err := measure.Load(traffic)
	if err != nil {
		return err
	}
	defer source.Close()
	connect := func(l *measure.Lab) error {
		if !known {
			return nil
		}
		return l.Connect(flow.From.Addr(), flow.From.Port(), flow.To)
	}
	if err := connect(m.bare); err != nil {
		return err
	}
	cells := []measure.Cell{{Name: emptied, Lab: m.bare, Source: source, Survives: measure.All}}
	for _, i := range of {
		if err := connect(m.labs[i]); err != nil {
			return err
		}
		run, err := m.labs[i].Inject(ctx, source, 1024)
		if err != nil {
			return err
		}
		cell := measure.Cell{Name: strconv.Itoa(i), Lab: m.labs[i], Source: source, Survives: measure.All}
		switch run.Survived {
		case run.Packets:
		case 0:
			cell.Survives = measure.None
		default:
			m.chains[i].Left, m.labs[i] = "it lets some packets pass and others not, as a limit does", nil
			continue
		}
		cells = append(cells, cell)
	}
	m.say("%d chains, packets of IPv%d", len(cells)-1, family)
	result, err := measure.Compare(ctx, measure.Plan{Rounds: m.o.Rounds, Packets: 1 << 13}, cells)
	if err != nil {
		return err
	}
	for _, cell := range cells[1:] {
		i, _ := strconv.Atoi(cell.Name)
		added := result.Added(cell.Name, emptied).Estimate()
		if known {
			m.chains[i].KnownNS = &added
		} else {
			m.chains[i].NewNS = &added
		}
	}
	return nil
}

func (m *measurement) say(format string, args ...any) {
	if m.o.Say != nil {
		m.o.Say(format, args...)
	}
}

package kernelbench

import (
	"fmt"
	"net/netip"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/testnet"
	"sluice/internal/lab/timed"
)

// limitedPolicy lets some ports in and through, with a limit or without, and two
// services beside them.
const limitedPolicy = `version: 1
input:
  default: drop
  rules:
    - allow [%[1]s]%[2]s
    - allow [tcp/443, udp/53]
forward:
  default: drop
  rules:
    - allow [%[1]s]%[2]s
    - allow [tcp/443, udp/53]
`

// unlimitedRow is the row of the policy without a limit, which the others are compared with.
const unlimitedRow = "no limit"

// once is where that policy is loaded a single time.
const once = "once"

// limitedPolicies are the rows of the section.
var limitedPolicies = []struct{ row, ports, limit string }{
	{unlimitedRow, "tcp/22", ""},
	{"one limited port", "tcp/22", perSource},
	{"two limited ports", "tcp/22, tcp/2222", perSource},
	{"three limited ports", "tcp/22, tcp/2222, tcp/8022", perSource},
}

const perSource = " limit 10/minute per source"

// copies is how often a policy is loaded, each time as a table of its own: an accept
// ends one base chain, and the packet goes on to the next. What differs by less than
// what a packet of the stack varies by is so made large enough to be seen.
const copies = 33

// otherServices are flows that no limit is about.
var otherServices = []struct {
	name, flags string
	port        uint16
}{{"TCP", "A", 443}, {"UDP", "", 53}}

// limits measures what established packets of other services pay where a policy
// counts handshakes.
func (b *bench) limits() error { return testnet.Within("limits", b.limitsIn) }

func (b *bench) limitsIn(net *testnet.Net) error {
	var subjects []measure.Subject
	for i, p := range limitedPolicies {
		rules, err := b.compiled(fmt.Sprintf("limits-%d.yaml", i), fmt.Sprintf(limitedPolicy, p.ports, p.limit))
		if err != nil {
			return err
		}
		if p.row == unlimitedRow {
			subjects = append(subjects, measure.Subject{Name: once, Load: func(l *measure.Lab) error { return loadCopies(l, rules, 1) }})
		}
		subjects = append(subjects, measure.Subject{Name: p.row, Load: func(l *measure.Lab) error { return loadCopies(l, rules, copies) }})
	}
	subjects, err := measure.Enter(subjects, func(label string) (*measure.Lab, error) { return measure.NewForwardLab(net, label) }, nil)
	if err != nil {
		return err
	}
	s := figures.Section{Name: "limits", Title: "Established packets of other services, where limits count handshakes", Text: []string{
		fmt.Sprintf("Of %q what one policy's base chain takes from a packet; of the others what it takes more. Each policy is loaded %d times, and what it takes is divided by that.", unlimitedRow, copies),
	}}
	for _, family := range []addrset.Family{addrset.IPv4, addrset.IPv6} {
		for _, service := range otherServices {
			for _, hook := range []string{"input", "forward"} {
				t := measure.Traffic{Flags: service.flags, Through: true}
				to := measure.Target(family, service.port)
				if hook == "forward" {
					to = measure.Behind(family, service.port)
				}
				from := traffic(family).Flows[0].From.Addr()
				for i := range flows {
					t.Flows = append(t.Flows, measure.Flow{From: netip.AddrPortFrom(from, uint16(10000+i)), To: to})
				}
				if err := b.otherService(&s, fmt.Sprintf("IPv%d, %s, %s", family, service.name, hook), t, subjects); err != nil {
					return fmt.Errorf("IPv%d, %s, %s: %w", family, service.name, hook, err)
				}
			}
		}
	}
	b.report.Sections = append(b.report.Sections, s)
	return nil
}

// compiled is a policy as rules.
func (b *bench) compiled(name, text string) (string, error) {
	file, err := b.file(name, text)
	if err != nil {
		return "", err
	}
	ran, err := timed.Run(b, timed.Program{Name: b.Binary, Args: []string{"compile", file}})
	return ran.Output, err
}

// loadCopies loads rules several times.
func loadCopies(l *measure.Lab, rules string, times int) error {
	const table = "\ntable inet sluice {\n"
	if strings.Count(rules, table) != 1 {
		return fmt.Errorf("the rules are not one table sluice:\n%s", rules)
	}
	for i := range times {
		if err := l.Nft(strings.Replace(rules, table, fmt.Sprintf("\ntable inet sluice%d {\n", i), 1)); err != nil {
			return err
		}
	}
	return nil
}

// otherService measures one traffic under every policy.
func (b *bench) otherService(s *figures.Section, name string, t measure.Traffic, subjects []measure.Subject) error {
	cells, done, err := measure.Beside(subjects, []measure.Case{{Name: name, Traffic: t, Survives: measure.All}})
	defer done()
	if err != nil {
		return err
	}
	for _, c := range cells {
		n, err := c.Lab.Establish(b, t, measure.Available())
		if err != nil {
			return err
		}
		if n != len(t.Flows) {
			return fmt.Errorf("%s: %d of %d connections are known", c.Name, n, len(t.Flows))
		}
	}
	r, err := measure.Compare(b, measure.Plan{Rounds: rounds, Packets: packets, Exactly: true}, cells)
	if err != nil {
		return err
	}
	for _, p := range limitedPolicies {
		more, tables := r.AddedMean(p.row, unlimitedRow, name), copies
		if p.row == unlimitedRow {
			more, tables = r.AddedMean(p.row, once, name), copies-1
		}
		for i := range more {
			more[i] /= float64(tables)
		}
		s.Add(figures.Figure{Case: p.row, Subject: b.kernel, Quantity: name, Unit: b.unit, Samples: more})
	}
	return nil
}

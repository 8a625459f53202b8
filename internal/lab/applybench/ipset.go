package applybench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/lab/peers"
	"sluice/internal/lab/timed"
)

// swapped is ipset with iptables: the set that has changed is filled under another
// name, swapped with the one that rules ask, and destroyed.
type swapped struct {
	lab     *lab
	peer    peers.Peer
	flavour string // of iptables: "legacy", "nft"
	now     []ipset
	steps   []timed.Program
}

// ipset is the lines of one set: create, then add.
type ipset struct {
	name  string
	lines []string
}

// ipsetPeer is the flavour of ipset with iptables that this machine has.
func ipsetPeer() (p peers.Peer, flavour string, err error) {
	all, err := peers.Named("ipset")
	if err != nil {
		return p, "", err
	}
	for _, p := range all {
		if err = p.Missing(); err == nil {
			flavour = "nft"
			if strings.Contains(p.Name, "legacy") {
				flavour = "legacy"
			}
			return p, flavour, nil
		}
	}
	return p, "", err
}

// parts of the text of a peer, by the program that reads them.
func parts(text string) map[string]string {
	out := map[string]string{}
	for rest := strings.TrimPrefix(text, "# "); rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, "\n# ")
		reader, body, _ := strings.Cut(part, "\n")
		if rest != "" {
			body += "\n"
		}
		out[reader] = body
	}
	return out
}

// ipsets takes a text for ipset restore apart.
func ipsets(text string) (out []ipset) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		i := slices.IndexFunc(out, func(s ipset) bool { return s.name == fields[1] })
		if i < 0 {
			i = len(out)
			out = append(out, ipset{name: fields[1]})
		}
		out[i].lines = append(out[i].lines, line)
	}
	return out
}

// swap is what ipset restore reads to bring a set in place of the one of its name.
func (s ipset) swap() string {
	const beside = "sluice-bench-new"
	var b strings.Builder
	for _, line := range s.lines {
		fields := strings.Fields(line)
		fields[1] = beside
		b.WriteString(strings.Join(fields, " ") + "\n")
	}
	fmt.Fprintf(&b, "swap %s %s\ndestroy %s\n", beside, s.name, beside)
	return b.String()
}

func (s *swapped) empty(context.Context) error {
	s.now = nil
	nothing := "*raw\n:PREROUTING ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n"
	for _, program := range []string{"iptables-", "ip6tables-"} {
		if _, err := s.lab.host.RunInput(nothing, program+s.flavour+"-restore"); err != nil {
			return err
		}
	}
	if s.flavour == "nft" {
		if err := s.lab.empty(); err != nil {
			return err
		}
	}
	_, err := s.lab.host.Run("ipset", "destroy")
	return err
}

func (s *swapped) prepare(_ context.Context, c change, _, to *state) error {
	p := parts(s.peer.Text(to.meaning))
	sets := ipsets(p["ipset restore"])
	s.steps = nil
	if c.from == nothing {
		for _, step := range []struct{ name, text string }{
			{"ipset", p["ipset restore"]},
			{"iptables-" + s.flavour + "-restore", p["iptables-restore"]},
			{"ip6tables-" + s.flavour + "-restore", p["ip6tables-restore"]},
		} {
			if step.text == "" {
				continue
			}
			program := timed.Program{Name: step.name, Stdin: []byte(step.text)}
			if step.name == "ipset" {
				program.Args = []string{"restore"}
			}
			s.steps = append(s.steps, program)
		}
		s.now = sets
		return nil
	}
	var text strings.Builder
	for _, next := range sets {
		i := slices.IndexFunc(s.now, func(o ipset) bool { return o.name == next.name })
		if i < 0 {
			return fmt.Errorf("the set %s is new, and no rule asks it yet", next.name)
		}
		if c.from == c.to || !slices.Equal(s.now[i].lines, next.lines) {
			text.WriteString(next.swap())
		}
	}
	s.now = sets
	s.steps = []timed.Program{{Name: "ipset", Args: []string{"restore"}, Stdin: []byte(text.String())}}
	return nil
}

func (s *swapped) make(ctx context.Context, w *work) error {
	for _, step := range s.steps {
		if err := w.run(ctx, true, step); err != nil {
			return err
		}
	}
	return nil
}

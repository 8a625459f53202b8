package peers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/lab/testnet"
)

// Peer is one way to have a meaning in the kernel.
type Peer struct {
	Name string // "iptables-linear (legacy)"
	// Group is the name that chooses it, alone or with others: "iptables-linear".
	Group string
	About string // one line
	// Private says that it runs with a configuration made for it, in a mount namespace.
	Private bool
	// File says that it is a ruleset of the user's own, whatever the policy says.
	File  bool
	needs []testnet.Feature
	// load brings it into a namespace.
	load func(ctx context.Context, n *testnet.Namespace, m Meaning, run Runner) error
	// cannot is what would change a verdict if it were left out, without what is
	// left out and changes none within its limits.
	cannot, without func(Meaning) []Refusal
	text            func(Meaning) string
}

// Needs is what the machine has to have.
func (p Peer) Needs() []testnet.Feature { return p.needs }

// Missing is why the peer cannot run on this machine; nil when it can.
func (p Peer) Missing() error {
	for _, f := range p.needs {
		if err := f.Ask(); err != nil {
			return fmt.Errorf("this machine lacks %s: %w", f.Name, err)
		}
	}
	return nil
}

// Cannot is what the peer has no words for. Where there is anything, another verdict
// would come of it, and the peer is not loaded.
func (p Peer) Cannot(m Meaning) []Refusal {
	out := slices.Clone(m.Unsaid)
	if p.cannot != nil {
		out = append(out, p.cannot(m)...)
	}
	return out
}

// Without is what the peer leaves away though the policy says it, where the verdict
// of what is measured is the same.
func (p Peer) Without(m Meaning) []Refusal {
	if p.without == nil {
		return nil
	}
	return p.without(m)
}

// Text is what the peer loads, in its own language; "" for one that is a file.
func (p Peer) Text(m Meaning) string {
	if p.text == nil {
		return ""
	}
	return p.text(m)
}

// Load brings the meaning into the kernel of a namespace where the peer has nothing
// yet. The end of the context ends the programs that do it.
func (p Peer) Load(ctx context.Context, n *testnet.Namespace, m Meaning) error {
	return p.LoadBy(ctx, n, m, func(ctx context.Context, n *testnet.Namespace, input, name string, args ...string) error {
		_, err := n.RunContext(ctx, input, name, args...)
		return err
	})
}

// Runner runs a program in a namespace to its end, with a text on its standard input.
type Runner func(ctx context.Context, n *testnet.Namespace, input, name string, args ...string) error

// LoadBy is Load by way of a runner, which may look at what the programs take. What
// runs with a configuration of its own (Private) does not pass by it.
func (p Peer) LoadBy(ctx context.Context, n *testnet.Namespace, m Meaning, run Runner) error {
	if err := p.Missing(); err != nil {
		return err
	}
	if refused := p.Cannot(m); len(refused) > 0 {
		return &CannotError{p.Name, refused}
	}
	return p.load(ctx, n, m, run)
}

// CannotError is a meaning that a peer has no words for.
type CannotError struct {
	Peer    string
	Refused []Refusal
}

func (e *CannotError) Error() string {
	lines := make([]string, len(e.Refused))
	for i, r := range e.Refused {
		lines[i] = r.String()
	}
	return e.Peer + " cannot say " + strings.Join(lines, "; ")
}

// Groups are the names that choose peers, in the order of Every.
func Groups() []string {
	var out []string
	for _, p := range Every() {
		if !slices.Contains(out, p.Group) {
			out = append(out, p.Group)
		}
	}
	return out
}

// Named gives the peers of a name: that of a group, of one peer, or of a file with a
// ruleset (FILE.nft; FILE.rules or FILE.v4 of iptables-save).
func Named(name string) ([]Peer, error) {
	var out []Peer
	for _, p := range Every() {
		if p.Group == name || p.Name == name {
			out = append(out, p)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	if fromFile(name) {
		return file(name)
	}
	return nil, fmt.Errorf("unknown peer %q\nhint: known are %s, and a file FILE.nft or FILE.rules", name, strings.Join(Groups(), ", "))
}

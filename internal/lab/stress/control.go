package stress

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/internal/lab/testnet"
)

// controlled is what the controls saw: each has to be more than nothing.
type controlled struct {
	// Lost of the packets that both policies allow, where whole texts are loaded in
	// one transaction each, sets and their users together.
	Lost     uint64 `json:"lost"`
	Together int    `json:"reloads-in-one-transaction"`
	// Leaked of the packets that neither allows, where the table is deleted and then
	// loaded.
	Leaked uint64 `json:"leaked"`
	Apart  int    `json:"reloads-after-deleting"`
	// Cut are the streams told dead while a rule drops what they send.
	Cut int `json:"streams-cut"`
	// Grown is what a file and a table that are left behind were found by.
	Grown []string `json:"grown-by-a-leak"`
}

// control does wrong on purpose, with so many reloads at most until it shows.
func (r *Run) control(ctx context.Context, n *testnet.Net, where geography, reloads int) (out *controlled, err error) {
	p, err := r.newPlace(n, setting{geography: where, untracked: sameBypass})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	out = &controlled{}
	var texts [2]string
	for i, file := range p.pair.files {
		a, err := p.hand.do(order{Do: "text", File: file})
		if err != nil {
			return nil, err
		}
		texts[i] = a.Text
	}
	const gone = "add table inet sluice\ndelete table inet sluice\n"
	for out.Lost == 0 && out.Together < reloads {
		c, err := p.during(func() error {
			return p.reload(ctx, func(i int) []string { return []string{gone + texts[i]} })
		})
		if err != nil {
			return nil, err
		}
		out.Lost, out.Together = c.lost(), out.Together+2
	}
	for out.Leaked == 0 && out.Apart < reloads {
		c, err := p.during(func() error {
			return p.reload(ctx, func(i int) []string { return []string{gone, texts[i]} })
		})
		if err != nil {
			return nil, err
		}
		out.Leaked, out.Apart = c.leaked(), out.Apart+2
	}
	if out.Cut, err = p.cutStreams(); err != nil {
		return nil, err
	}
	out.Grown, err = p.leak()
	return out, err
}

// during does something under traffic.
func (p *place) during(do func() error) (*counts, error) {
	t, err := p.startTraffic(p.flows)
	if err != nil {
		return nil, err
	}
	doErr := do()
	c, err := t.stop(progressTime)
	return c, errors.Join(doErr, err)
}

// reload loads the texts that stand for each of the two policies.
func (p *place) reload(ctx context.Context, texts func(which int) []string) error {
	for i := range p.pair.files {
		for _, text := range texts(i) {
			if _, err := p.host.RunContext(ctx, text, "nft", "-f", "-"); err != nil {
				return fmt.Errorf("reload of %s: %w", p.pair.files[i], err)
			}
		}
	}
	return nil
}

// cutStreams drops what streams of one service send, so long that TCP itself
// does not yet give up.
func (p *place) cutStreams() (int, error) {
	s, err := p.openStreams()
	if err != nil {
		return 0, err
	}
	rule := fmt.Sprintf("table inet cut { chain c { type filter hook input priority 100; tcp dport %d drop; }; }\n", services[0].streamPort())
	if _, err := p.host.RunInput(rule, "nft", "-f", "-"); err != nil {
		return 0, errors.Join(err, s.close())
	}
	dead := s.dead(time.Second)
	_, err = p.host.Run("nft", "delete", "table", "inet", "cut")
	return len(dead), errors.Join(err, s.close())
}

// leak has the hand leave something behind.
func (p *place) leak() ([]string, error) {
	before, err := p.footprint(p.hand)
	if err != nil {
		return nil, err
	}
	if _, err := p.hand.do(order{Do: "leak"}); err != nil {
		return nil, err
	}
	after, err := p.footprint(p.hand)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, g := range grown(before, after) {
		if g.Grown {
			out = append(out, g.What)
		}
	}
	_, err = p.host.Run("nft", "delete", "table", "inet", "sluice_leak")
	return out, err
}

// wrong is what the controls did not see, in words.
func (c *controlled) wrong() (out []string) {
	if c.Lost == 0 {
		out = append(out, "control: nothing was lost where sets and their users come in one transaction")
	}
	if c.Leaked == 0 {
		out = append(out, "control: nothing leaked where the table is gone for a moment")
	}
	if c.Cut == 0 {
		out = append(out, "control: no stream was told dead where a rule drops what it carries")
	}
	for _, what := range []string{"tables", "sets", elements, descriptors} {
		if !slices.Contains(c.Grown, what) {
			out = append(out, "control: "+what+" did not grow by a leak")
		}
	}
	return out
}

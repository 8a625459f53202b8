package applybench

import (
	"context"
	"fmt"

	"sluice/internal/lab/timed"
)

// refilled is nft with a file that deletes the table and loads it again, in one
// transaction.
type refilled struct {
	lab  *lab
	text []byte
}

func (n *refilled) empty(context.Context) error { return n.lab.empty() }

func (n *refilled) prepare(_ context.Context, _ change, _, to *state) error {
	rules, err := parse(to.text)
	if err == nil {
		n.text = []byte(rules.refill())
	}
	return err
}

func (n *refilled) make(ctx context.Context, w *work) error { return nft(ctx, w, n.text) }

func nft(ctx context.Context, w *work, text []byte) error {
	return w.run(ctx, true, timed.Program{Name: "nft", Args: []string{"-f", "-"}, Stdin: text})
}

// careful is nft as somebody uses it who has met what refilling does: new sets under
// new names first, then the rules, then the old sets go; one element is added alone.
type careful struct {
	lab     *lab
	version int
	suffix  string // of the sets in the kernel
	drops   string // what deletes them
	steps   []string
}

func (n *careful) empty(context.Context) error {
	n.suffix, n.drops = "", ""
	return n.lab.empty()
}

func (n *careful) prepare(_ context.Context, c change, _, to *state) error {
	rules, err := parse(to.text)
	if err != nil {
		return err
	}
	if c.to == oneMore {
		if table, set, found := rules.holder(element(elements)); found {
			n.steps = []string{fmt.Sprintf("add element %s %s%s { %s }\n", table, set, n.suffix, element(elements))}
			return nil
		}
	}
	n.version++
	n.suffix = fmt.Sprintf("_v%d", n.version)
	n.steps, n.drops = rules.steps(n.suffix, n.drops)
	return nil
}

func (n *careful) make(ctx context.Context, w *work) error {
	for _, s := range n.steps {
		if err := nft(ctx, w, []byte(s)); err != nil {
			return err
		}
	}
	return nil
}

package demo

import (
	"os"
	"path/filepath"
	"strings"
)

// letIn finds a customer in the log, lets him in by command, and lifts that again. The
// web site bypasses connection tracking, so that his answers need a way as well.
func (d *demo) letIn() error {
	d.title("A customer who is blocked calls")
	if err := d.applyLogged(); err != nil {
		return err
	}
	customer, other := d.client("United States"), d.client("Brazil")
	address := customer.v4.String()
	page := func(c *client) string { return get(c.space, c.v4, host4, patience).Outcome.String() }

	type shown struct {
		text string
		err  error
	}
	line := make(chan shown, 1)
	go func() {
		out, err := d.must("log", "--follow", "--count", "1", "--src", address)
		line <- shown{out, err}
	}()
	var found *shown
	for found == nil { // it may not read yet
		d.send(customer, example{customer.v4, host4, 80})
		select {
		case s := <-line:
			found = &s
		default:
		}
	}
	if found.err != nil {
		return found.err
	}
	d.quote("sluice log --follow --src "+address, d.shown(found.text))
	if err := d.quoteCommand("allow", address, "web", "--for", "2h", "-m", "ticket 4711"); err != nil {
		return err
	}
	d.head()
	d.check("a page, from "+address, answered, page(customer))
	d.check("tcp/22 from there", silent, d.send(customer, example{customer.v4, host4, 22}))
	d.check("a page, from Brazil", silent, page(other))
	if err := d.proved(); err != nil {
		return err
	}
	if err := d.quoteCommand("disallow", address); err != nil {
		return err
	}
	d.head()
	d.check("a page, from "+address, silent, page(customer))
	return nil
}

// applyLogged applies the policy with a log of what it drops.
func (d *demo) applyLogged() error {
	text, err := os.ReadFile(filepath.Join(d.Dir, d.policy))
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.logged(), []byte(strings.Replace(string(text), "version: 1\n", "version: 1\nlog: netlink\n", 1)), 0o600); err != nil {
		return err
	}
	_, err = d.must("apply", d.logged(), "--no-confirm")
	return err
}

// logged is the policy with a log.
func (d *demo) logged() string { return filepath.Join(d.scratch, "policy.yaml") }

// quoteCommand runs a command that has to succeed, and shows it with what it says.
func (d *demo) quoteCommand(args ...string) error {
	out, err := d.must(args...)
	if err == nil {
		words := make([]string, len(args))
		for i, a := range args {
			if words[i] = a; strings.Contains(a, " ") {
				words[i] = `"` + a + `"`
			}
		}
		d.quote("sluice "+strings.Join(words, " "), d.shown(out))
	}
	return err
}

package demo

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"sluice/internal/lab/testnet"
)

// proved shows what sluice verify says, and checks it.
func (d *demo) proved() error {
	out, status, err := d.run("verify")
	if err != nil {
		return err
	}
	d.quote("sluice verify", d.shown(out))
	seen := "proved"
	if status != 0 || !strings.HasPrefix(out, "proved: every packet gets what ") {
		seen = fmt.Sprintf("exit %d", status)
	}
	d.head()
	d.check("every packet gets what the policy says", "proved", seen)
	return nil
}

// ruleOf finds in what nft -a lists the chain and the handle of the rule that accepts a
// network of IPv4.
func ruleOf(listed, network string) (chain, handle string) {
	for line := range strings.Lines(listed) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "\tchain "):
			chain = words[1]
		case strings.HasPrefix(line, "\t\tip saddr "+network+" ") && strings.Contains(line, " accept "):
			return chain, words[len(words)-1]
		}
	}
	return "", ""
}

// witness is a packet that verify names, with what happens to it.
type witness struct {
	example
	meant, kernel string // verdicts: "accept", "drop"
}

var witnessText = regexp.MustCompile(`(?m)^packet +input: tcp from (\S+) to (\S+) in \S+, new\n` +
	`  policy +(\w+), .*\n  kernel +(\w+), `)

// witnessesOf reads what verify printed.
func witnessesOf(out string) (list []witness, err error) {
	for _, m := range witnessText.FindAllStringSubmatch(out, -1) {
		source, err1 := netip.ParseAddrPort(m[1])
		destination, err2 := netip.ParseAddrPort(m[2])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("read what verify says: %w\n%s", err, out)
		}
		list = append(list, witness{example{source.Addr(), destination.Addr(), destination.Port()}, m[3], m[4]})
	}
	return list, nil
}

// byHand takes a rule away and puts one in behind the back of Sluice: one closes
// something and one opens something. The packets that verify names are sent.
func (d *demo) byHand() error {
	d.title("Somebody changes the kernel by hand")
	rules, err := d.host.Run("nft", "-a", "-t", "list", "table", "inet", "sluice")
	if err != nil {
		return err
	}
	chain, handle := ruleOf(rules, office4.Masked().String())
	if handle == "" {
		return fmt.Errorf("no rule of the kernel asks for the office:\n%s", rules)
	}
	brazilian := d.client("Brazil")
	for _, command := range []string{
		"delete rule inet sluice " + chain + " handle " + handle,
		"insert rule inet sluice input tcp dport 22 ip saddr " + brazilian.v4.String() + " accept",
	} {
		d.quote("nft "+command, "")
		if out, err := d.host.Run("nft", command); err != nil {
			return fmt.Errorf("nft %s: %w\n%s", command, err, out)
		}
	}

	out, status, err := d.run("verify")
	if err != nil {
		return err
	}
	d.quote("sluice verify", shortened(out))
	found, err := witnessesOf(out)
	if err != nil {
		return err
	}
	source := func(w witness) *client {
		if w.Source == brazilian.v4 {
			return brazilian
		}
		return d.client("the office")
	}
	d.head()
	d.check("both changes are found", "exit 1, 2", fmt.Sprintf("exit %d, %d", status, len(found)))
	for _, w := range found {
		d.check(fmt.Sprintf("tcp/%d from %s, sent; the policy: %s", w.DestinationPort, w.Source, w.meant),
			outcomeOf(w.kernel), d.send(source(w), w.example))
	}

	if out, err = d.must("restore"); err != nil {
		return err
	}
	d.quote("sluice restore", withoutSteps(out))
	if err := d.proved(); err != nil {
		return err
	}
	for _, w := range found {
		d.check(fmt.Sprintf("tcp/%d from %s, sent again", w.DestinationPort, w.Source),
			outcomeOf(w.meant), d.send(source(w), w.example))
	}
	return nil
}

// outcomeOf is what a client sees of a verdict of the kernel.
func outcomeOf(verdict string) string {
	switch verdict {
	case "accept":
		return testnet.Answered.String()
	case "drop":
		return testnet.Silent.String()
	}
	return verdict
}

// shortened is what verify says with dots for what all packets of a kind have in
// common, which is long.
func shortened(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "":
			continue
		case strings.HasPrefix(line, "  all of "):
			line = "  ..."
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// step is a line that tells how far a command is, where it takes long.
var step = regexp.MustCompile(`(?m)^.* \(step \d+ of \d+\)\n`)

func withoutSteps(out string) string { return step.ReplaceAllString(out, "") }

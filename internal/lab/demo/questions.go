package demo

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"sluice/internal/lab/testnet"
)

// example is a packet that query and diff give for a class.
type example struct {
	Source          netip.Addr `json:"source"`
	Destination     netip.Addr `json:"destination"`
	DestinationPort uint16     `json:"port"`
}

// whoReachesSSH asks for all packets at once, and tries one of each side.
func (d *demo) whoReachesSSH() error {
	d.title("Who can reach ssh? All packets, not a sample")
	args := []string{"query", d.policy, "--allowed", "--service", "ssh"}
	out, _, err := d.run(args...)
	if err != nil {
		return err
	}
	d.quote("sluice "+strings.Join(args, " "), firstParagraph(out))
	var found struct {
		Classes []struct {
			From    struct{ Name string }
			Example example
		}
	}
	if err := d.ask(&found, args...); err != nil {
		return err
	}
	if len(found.Classes) != 1 {
		return fmt.Errorf("one class of packets reaches ssh, and query says %d:\n%s", len(found.Classes), out)
	}
	class := found.Classes[0]
	nobody, status, err := d.run(append(args, "--from", "not office")...)
	if err != nil {
		return err
	}
	d.quote("sluice "+strings.Join(args, " ")+` --from "not office"`, nobody)
	d.head()
	d.check("who, as query says", "office", class.From.Name)
	d.check("anybody else: the exit status says no", "exit 0", fmt.Sprintf("exit %d", status))
	d.check(fmt.Sprintf("query's example, sent: tcp/%d from %s", class.Example.DestinationPort, class.Example.Source),
		answered, d.send(d.client("the office"), class.Example))
	outside := d.client("Germany")
	d.check("tcp/22 from Germany, which may see the web site", silent,
		d.send(outside, example{outside.v4, host4, 22}))
	return nil
}

// whatOpens holds the example against a copy that lets a country to ssh.
func (d *demo) whatOpens() error {
	d.title("What would this change open?")
	text, err := os.ReadFile(filepath.Join(d.Dir, d.policy))
	if err != nil {
		return err
	}
	changed := strings.NewReplacer(
		"  europe:", "  brazil: { countries: [BR] }\n  europe:",
		"    - allow ssh from office", "    - allow ssh from [office, brazil]").Replace(string(text))
	file := filepath.Join(d.scratch, "new.yaml")
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		return err
	}
	out, status, err := d.run("diff", d.policy, file)
	if err != nil {
		return err
	}
	d.quote("sluice diff "+d.policy+" new.yaml", d.shown(firstParagraph(out)))
	var found struct {
		Differences []struct {
			Kind     string
			Services []string
			From     struct {
				Name string
				IPv4 uint64
			}
			Example example
		}
	}
	if err := d.ask(&found, "diff", d.policy, file); err != nil {
		return err
	}
	if len(found.Differences) != 1 {
		return fmt.Errorf("the change opens one thing, and diff says %d:\n%s", len(found.Differences), out)
	}
	difference := found.Differences[0]
	brazil, err := d.db.Countries("BR")
	if err != nil {
		return err
	}
	d.head()
	d.check("something opens, for a check in CI", "exit 1", fmt.Sprintf("exit %d", status))
	d.check("what, and for whom", "tcp/22 brazil", strings.Join(difference.Services, " ")+" "+difference.From.Name)
	d.check("IPv4 addresses, and those of Brazil in the data", fmt.Sprint(brazil.Count4()), fmt.Sprint(difference.From.IPv4))
	d.check(fmt.Sprintf("diff's example, sent today: tcp/%d from %s", difference.Example.DestinationPort, difference.Example.Source),
		silent, d.send(d.client("Brazil"), difference.Example))
	return nil
}

// answer is run of a command that says no by status 1, and fails by another one.
func (d *demo) answer(args ...string) (out string, status int, err error) {
	out, status, err = d.run(args...)
	if err == nil && status > 1 {
		err = fmt.Errorf("sluice %s: exit status %d:\n%s", strings.Join(args, " "), status, out)
	}
	return out, status, err
}

// ask runs a command of the product that answers in JSON, whatever it answers.
func (d *demo) ask(into any, args ...string) error {
	out, _, err := d.answer(append(args, "--json")...)
	if err == nil {
		err = json.Unmarshal([]byte(out), into)
	}
	return err
}

// send connects from a client as the source that an example names; it is a set-up
// function for testnet.Net.Try, since the client may have to take that address first.
func (d *demo) send(from *client, e example) string {
	if e.Source != from.v4 && e.Source != from.v6 {
		alone := netip.PrefixFrom(e.Source, e.Source.BitLen()).String()
		from.space.Own(alone)
		d.router.Route(alone, from.v4.String())
	}
	return from.space.TryTCP(testnet.TCPTry{
		From: netip.AddrPortFrom(e.Source, 0), To: netip.AddrPortFrom(e.Destination, e.DestinationPort), Patience: patience,
	}).Outcome.String()
}

func firstParagraph(out string) string {
	first, _, _ := strings.Cut(out, "\n\n")
	return first
}

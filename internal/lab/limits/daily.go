package limits

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/peers"
	"sluice/internal/lab/timed"
	"sluice/internal/language/policy"
)

// What is timed, each with all that an apply does by default.
const (
	europeByHand   = "only Europe: nft -f, one set a family"
	europeAgain    = "only Europe: nft -f, one set a family, again"
	europeFirst    = "only Europe: sluice apply, from nothing"
	europeOneMore  = "only Europe: sluice apply, one address more in a file and in an except"
	serverByHand   = "web server: nft -f of the same rules, and back by nft -j"
	serverFirst    = "web server: sluice apply, from nothing"
	serverOneRule  = "web server: sluice apply, one rule changed"
	startOfProcess = "sluice --version"
	oneBan         = "sluice ban --netns"
	bansInARow     = "30 times sluice ban --netns"
	verifyMany     = "300,000 bans: sluice verify"
	applyMany      = "300,000 bans: sluice apply, one rule changed"
)

// What a ban takes beside the start of a process.
const beside = "time by the clock, beside as many starts"

const europePolicy = `version: 1
sets:
  banned: {file: banned.txt}
  europe: {continents: [EU]}
  visitors: {union: [europe], except: [banned]}
services:
  web: [tcp/80, tcp/443, udp/443]
ban: [banned]
tracking:
  bypass: [web]
input:
  default: drop
  rules:
    - allow web from visitors
    - allow smtp from visitors
    - allow ping from visitors limit 50/second
    - allow ssh
expect:
  - deny [web, smtp, ping] from not visitors
  - allow web from visitors
`

// daily times what an administrator does every day.
func (b *bench) daily() (lookup, error) {
	a := &applying{bench: b, taken: taken{}}
	var err error
	if a.theirs, err = measure.NewLab(b.net, "theirs"); err != nil {
		return nil, err
	}
	if a.own, err = measure.NewLab(b.net, "own"); err != nil {
		return nil, err
	}
	for _, part := range []func() error{a.server, a.bansByCommand, a.europe, a.manyBans} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	for _, what := range []string{
		europeByHand, europeAgain, europeFirst, europeOneMore, serverByHand, serverFirst, serverOneRule,
		startOfProcess, oneBan, bansInARow, verifyMany, applyMany,
	} {
		for _, quantity := range []string{clock, processors} {
			b.add(what, measured, quantity, "ms", a.of(quantity, what))
		}
	}
	return a.of, nil
}

// byDefault applies a policy as a user does, and confirms it.
func (a *applying) byDefault(file string) (timed.Cost, error) {
	return a.sluice(a.own, nil, "apply", file, "--no-confirm")
}

func (a *applying) europe() error {
	byHand, err := peers.Named("nftables-set")
	if err != nil {
		return err
	}
	ruleset := []byte(byHand[0].Text(peers.Meaning{Bare: true, Input: &peers.Section{Default: policy.Drop, Rules: []peers.Rule{{
		Text: "allow any from europe", Action: policy.Allow, Ways: []peers.Way{{}}, From: &peers.Addresses{Name: "europe", Set: a.world.europe},
	}}}}))
	if a.file, err = a.policy("europe.yaml", europePolicy); err != nil {
		return err
	}
	for round := range a.rounds(9) {
		names := []string{europeByHand, europeAgain}
		for i := range names {
			if err := a.empty(a.theirs); err != nil {
				return err
			}
			c, err := a.nft(a.theirs, ruleset)
			if err != nil {
				return err
			}
			a.taken.add(names[(i+round)%2], c)
		}
		if err := a.empty(a.own); err != nil {
			return err
		}
		for i, what := range []string{europeFirst, europeOneMore} {
			if err := a.ban(before + i); err != nil {
				return err
			}
			c, err := a.byDefault(a.file)
			if err != nil {
				return err
			}
			a.taken.add(what, c)
		}
	}
	if err := a.empty(a.own); err != nil {
		return err
	}
	watched := a.about(a.own, "apply", a.file, "--no-confirm")
	watched.Watch = true
	c, err := timed.Run(a, watched)
	a.put(resident, europeFirst, float64(c.Resident)/mebibyte)
	return err
}

// serving writes the policy of the example with a port of its own.
func (a *applying) serving(port int) (string, error) {
	const line = "reject tcp/113"
	text, err := os.ReadFile("examples/web-server/policy.yaml") // scripts/bench is there
	if err == nil && !strings.Contains(string(text), line) {
		err = fmt.Errorf("the example web-server has no line %q", line)
	}
	if err != nil {
		return "", err
	}
	return a.policy("server.yaml", strings.Replace(string(text), line, fmt.Sprintf("reject [tcp/113, tcp/%d]", port), 1))
}

func (a *applying) server() error {
	for range a.rounds(21) {
		for _, l := range []*measure.Lab{a.own, a.theirs} {
			if err := a.empty(l); err != nil {
				return err
			}
		}
		for i, what := range []string{serverFirst, serverOneRule} {
			file, err := a.serving(114 + i)
			if err != nil {
				return err
			}
			c, err := a.byDefault(file)
			if err != nil {
				return err
			}
			a.taken.add(what, c)
		}
		rules, err := a.inside(a.own, nil, "nft", "-s", "list", "ruleset")
		if err != nil {
			return err
		}
		load, err := a.nft(a.theirs, []byte(rules.Output))
		if err != nil {
			return err
		}
		back, err := a.inside(a.theirs, nil, "nft", "-j", "list", "ruleset")
		if err != nil {
			return err
		}
		a.taken.add(serverByHand, timed.Cost{Wall: load.Wall + back.Wall, CPU: load.CPU + back.CPU})
	}
	return nil
}

// bansByCommand bans under the policy of the server.
func (a *applying) bansByCommand() error {
	for round := range a.rounds(9) {
		var starts, bans timed.Cost
		for i := range 30 {
			start, err := timed.Run(a, timed.Program{Name: a.binary, Args: []string{"--version"}})
			if err != nil {
				return err
			}
			ban, err := a.sluice(a.own, nil, "ban", netip.AddrFrom4([4]byte{192, 88, byte(round), byte(i)}).String())
			if err != nil {
				return err
			}
			if i == 0 {
				a.taken.add(startOfProcess, start)
				a.taken.add(oneBan, ban)
				a.put(beside, oneBan, milliseconds(ban.Wall-start.Wall))
			}
			starts.Wall, bans.Wall, bans.CPU = starts.Wall+start.Wall, bans.Wall+ban.Wall, bans.CPU+ban.CPU
		}
		a.taken.add(bansInARow, bans)
		a.put(beside, bansInARow, milliseconds(bans.Wall-starts.Wall)/30)
	}
	return nil
}

// many is how many bans are a lot.
const many = 300_000

func (a *applying) manyBans() error {
	if err := a.empty(a.own); err != nil {
		return err
	}
	file, err := a.serving(200)
	if err != nil {
		return err
	}
	if _, err := a.byDefault(file); err != nil {
		return err
	}
	var lines bytes.Buffer
	first := addrset.NumberOf(netip.MustParseAddr("100.64.0.0"))
	for i := range uint64(many) {
		fmt.Fprintln(&lines, first.Add(addrset.Number{Lo: i}).Addr(true))
	}
	if _, err := a.sluice(a.own, lines.Bytes(), "ban", "-", "--for", "1d"); err != nil {
		return err
	}
	for round := range a.rounds(9) {
		c, err := a.sluice(a.own, nil, "verify") // status 1: what counts packets here is not ours
		if !strings.Contains(c.Output, fmt.Sprintf("\nbanned       %d ", many)) {
			return fmt.Errorf("verify does not read %d bans: %w\n%s", many, err, c.Output)
		}
		a.taken.add(verifyMany, c)
		if file, err = a.serving(201 + round); err != nil {
			return err
		}
		if c, err = a.byDefault(file); err != nil {
			return err
		}
		a.taken.add(applyMany, c)
	}
	return nil
}

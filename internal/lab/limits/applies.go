package limits

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"sluice/internal/lab/measure"
	"sluice/internal/lab/peers"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/timed"
)

// taken is what whole commands took, by quantity and command, one figure a round.
type taken map[[2]string]stats.Series

// What a command takes: ms, and MiB.
const (
	clock      = "time by the clock"
	processors = "time of processors"
	resident   = "resident"
)

func (t taken) put(quantity, what string, value float64) {
	key := [2]string{quantity, what}
	t[key] = append(t[key], value)
}

func (t taken) add(what string, c timed.Cost) {
	t.put(clock, what, milliseconds(c.Wall))
	t.put(processors, what, milliseconds(c.CPU))
}

func (t taken) of(quantity, what string) stats.Series { return t[[2]string{quantity, what}] }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

const mebibyte = 1 << 20

// What is timed.
const (
	nftText      = "nft -f, one set a family"
	nftTextAgain = "nft -f, one set a family, again"
	fromNothing  = "sluice apply, from nothing"
	unchanged    = "sluice apply, nothing changed"
	oneMore      = "sluice apply, one ban more in the policy's file"
	banCommand   = "sluice ban"
	banMany      = "sluice ban -, 100,000 addresses"
)

const appliedPolicy = `version: 1
sets:
  banned: {file: banned.txt}
  blocked: {continents: [AF, AN, AS, NA, OC, SA]}
ban: [banned]
input:
  default: allow
  rules:
    - drop any from blocked
`

// applying are two labs: that of Sluice, and that of nft with the ruleset that most
// people write, everything in one set a family.
type applying struct {
	*bench
	taken
	own, theirs *measure.Lab
	file        string // the policy
	ruleset     []byte
}

// applies times the whole commands with both families, all but Europe.
func (b *bench) applies() (lookup, error) {
	byHand, err := peers.Named("nftables-set")
	if err != nil {
		return nil, err
	}
	a := &applying{bench: b, taken: taken{}, ruleset: []byte(byHand[0].Text(peers.Blocked(b.world.blocked)))}
	if a.theirs, err = measure.NewLab(b.net, "theirs"); err != nil {
		return nil, err
	}
	if a.own, err = measure.NewLab(b.net, "own"); err != nil {
		return nil, err
	}
	if a.file, err = b.policy("apply.yaml", appliedPolicy); err != nil {
		return nil, err
	}
	if err := a.ban(before); err != nil {
		return nil, err
	}
	said, err := a.plan()
	if err != nil {
		return nil, err
	}
	for round := range b.rounds(9) {
		if err := a.round(round); err != nil {
			return nil, err
		}
	}
	if err := a.manyAtOnce(); err != nil {
		return nil, err
	}
	b.say("Whole commands, %d + %d ranges.", b.world.blocked.Len4(), b.world.blocked.Len6())
	for _, what := range []string{nftText, nftTextAgain, fromNothing, unchanged, oneMore, banCommand, banMany} {
		for _, quantity := range []string{clock, processors} {
			b.add(what, measured, quantity, "ms", a.of(quantity, what))
		}
	}
	return a.of, a.memory(said)
}

// before is how many bans the policy's file has before one more comes.
const before = 10

// ban writes so many bans into the policy's file.
func (a *applying) ban(n int) error {
	_, err := a.policy("banned.txt", strings.ReplaceAll(list(banned(n)), ", ", "\n")+"\n")
	return err
}

// round makes every change once, nft twice; every other round its second time first.
func (a *applying) round(round int) error {
	first, second := nftText, nftTextAgain
	if round%2 == 1 {
		first, second = second, first
	}
	load := func() (timed.Cost, error) { return a.nft(a.theirs, a.ruleset) }
	apply := func() (timed.Cost, error) { return a.apply(a.own, a.file) }
	ban := func() (timed.Cost, error) {
		return a.sluice(a.own, nil, "ban", netip.AddrFrom4([4]byte{192, 0, 3, byte(round + 1)}).String())
	}
	for _, step := range []struct {
		what  string
		empty *measure.Lab // before
		bans  int
		run   func() (timed.Cost, error)
	}{
		{first, a.theirs, before, load},
		{second, a.theirs, before, load},
		{fromNothing, a.own, before, apply},
		{unchanged, nil, before, apply},
		{oneMore, nil, before + 1, apply},
		{banCommand, nil, before + 1, ban},
	} {
		if step.empty != nil {
			if err := a.empty(step.empty); err != nil {
				return err
			}
		}
		if err := a.ban(step.bans); err != nil {
			return err
		}
		c, err := step.run()
		if err != nil {
			return err
		}
		a.taken.add(step.what, c)
	}
	return nil
}

// manyAtOnce bans 100,000 addresses from standard input, some times again.
func (a *applying) manyAtOnce() error {
	var lines bytes.Buffer
	for i := range 100_000 {
		fmt.Fprintln(&lines, netip.AddrFrom4([4]byte{100, byte(64 + i>>16), byte(i >> 8), byte(i)}))
	}
	for range a.rounds(5) {
		c, err := a.sluice(a.own, lines.Bytes(), "ban", "-", "--for", "1d")
		if err != nil {
			return err
		}
		a.taken.add(banMany, c)
		if _, err := a.sluice(a.own, nil, "unban", "100.64.0.0/10"); err != nil {
			return err
		}
	}
	return nil
}

// planned is what "sluice plan" says.
type planned struct {
	Cost struct {
		Elements int    `json:"elements"`
		Memory   uint64 `json:"memory"`
		LoadTime int64  `json:"load-time-ns"`
	} `json:"cost"`
}

func (a *applying) plan() (planned, error) {
	var p planned
	c, err := a.sluice(a.own, nil, "plan", a.file, "--json")
	if c.Output == "" {
		return p, err
	}
	return p, json.Unmarshal([]byte(c.Output), &p) // status 1: something would change
}

// memory measures the most that each side holds at once, itself and its children, and
// says how the plan's load time compares with the load.
func (a *applying) memory(said planned) error {
	var loads stats.Series
	for range 3 {
		for _, side := range []struct {
			what    string
			lab     *measure.Lab
			program timed.Program
		}{
			{fromNothing, a.own, a.about(a.own, "apply", a.file, "--no-confirm", "--no-verify")},
			{nftText, a.theirs, timed.Program{Name: "nft", Args: []string{"-f", "-"}, Stdin: a.ruleset, In: a.theirs.Namespace.Do}},
		} {
			if err := a.empty(side.lab); err != nil {
				return err
			}
			side.program.Watch = true
			c, err := timed.Run(a, side.program)
			if err != nil {
				return err
			}
			a.put(resident, side.what, float64(c.Resident)/mebibyte)
		}

		// What a load takes beside reading and compiling: compile does those alone.
		if err := a.empty(a.own); err != nil {
			return err
		}
		compiled, err := a.sluice(a.own, nil, "compile", a.file)
		if err != nil {
			return err
		}
		applied, err := a.apply(a.own, a.file)
		if err != nil {
			return err
		}
		loads = append(loads, milliseconds(applied.Wall-compiled.Wall))
	}
	a.say("The plan predicts a load time of %.0f ms; apply takes %.0f ms more than compile. It predicts %d elements and %.1f MiB of kernel memory.",
		milliseconds(time.Duration(said.Cost.LoadTime)), loads.Estimate().Median, said.Cost.Elements, float64(said.Cost.Memory)/mebibyte)
	return nil
}

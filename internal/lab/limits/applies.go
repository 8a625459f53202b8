package limits

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/timed"
)

// times of whole commands, one figure a round, in milliseconds: by the clock, and
// of processors.
type times struct{ wall, cpu map[string]stats.Series }

func (t times) add(what string, r ran) {
	t.wall[what] = append(t.wall[what], milliseconds(r.wall))
	t.cpu[what] = append(t.cpu[what], milliseconds(r.cpu))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

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

// applies times the whole commands with both families, all but Europe.
func (b *bench) applies() error {
	bansFile, err := b.policy("banned.txt", "")
	if err != nil {
		return err
	}
	ban := func(n int) error {
		lines := make([]string, n)
		for i, a := range banned(n) {
			lines[i] = a.String() + "\n"
		}
		return os.WriteFile(bansFile, []byte(strings.Join(lines, "")), 0o600)
	}
	file, err := b.policy("apply.yaml", `version: 1
sets:
  banned: {file: banned.txt}
  blocked: {continents: [AF, AN, AS, NA, OC, SA]}
ban: [banned]
input:
  default: allow
  rules:
    - drop any from blocked
`)
	if err != nil {
		return err
	}
	ruleset := singleSet(b.world.blocked)
	theirs, err := measure.NewLab(b.net, "theirs")
	if err != nil {
		return err
	}
	own, err := measure.NewLab(b.net, "own")
	if err != nil {
		return err
	}
	const before = 10 // bans
	if err := ban(before); err != nil {
		return err
	}
	planned, err := b.plan(own, file)
	if err != nil {
		return err
	}
	t := times{map[string]stats.Series{}, map[string]stats.Series{}}
	for round := range b.rounds(9) {
		text := []string{nftText, nftTextAgain}
		if round%2 == 1 {
			text[0], text[1] = text[1], text[0]
		}
		for _, what := range text {
			if err := b.empty(theirs); err != nil {
				return err
			}
			r, err := b.nft(theirs, ruleset)
			if err != nil {
				return err
			}
			t.add(what, r)
		}
		if err := b.empty(own); err != nil {
			return err
		}
		for _, step := range []struct {
			what string
			bans int
		}{{fromNothing, before}, {unchanged, before}, {oneMore, before + 1}} {
			if err := ban(step.bans); err != nil {
				return err
			}
			r, err := b.apply(own, file)
			if err != nil {
				return err
			}
			t.add(step.what, r)
		}
		r, err := b.sluice(own, "ban", netip.AddrFrom4([4]byte{192, 0, 3, byte(round + 1)}).String())
		if err != nil {
			return err
		}
		t.add(banCommand, r)
	}
	if err := b.manyAtOnce(own, t); err != nil {
		return err
	}
	b.say("Whole commands, %d + %d ranges.", b.world.blocked.Len4(), b.world.blocked.Len6())
	for _, what := range []string{nftText, nftTextAgain, fromNothing, unchanged, oneMore, banCommand, banMany} {
		b.add(what, measured, "time by the clock", "ms", t.wall[what])
		b.add(what, measured, "time of processors", "ms", t.cpu[what])
	}
	same := t.wall[nftTextAgain].Per(t.wall[nftText])
	b.ratio("sluice apply from nothing, against nft -f of one set a family", 0.8, t.wall[fromNothing].Per(t.wall[nftText]), same)
	b.ratio("the same, time of processors", 0, t.cpu[fromNothing].Per(t.cpu[nftText]), t.cpu[nftTextAgain].Per(t.cpu[nftText]))
	b.ratio("the same again, nothing changed, against the first", 0.1, t.wall[unchanged].Per(t.wall[fromNothing]), same)
	b.ratio("one ban more by the policy's file, against the first", 0.1, t.wall[oneMore].Per(t.wall[fromNothing]), same)
	b.atMost("one ban by sluice ban", "ms", t.wall[banCommand], 20)
	seconds := make(stats.Series, len(t.wall[banMany]))
	for i, ms := range t.wall[banMany] {
		seconds[i] = ms / 1000
	}
	b.atMost("100,000 bans in one call, from standard input", "s", seconds, 1)
	return b.memory(own, theirs, file, ruleset, planned)
}

// manyAtOnce bans 100,000 addresses from standard input, some times anew.
func (b *bench) manyAtOnce(l *measure.Lab, t times) error {
	var lines bytes.Buffer
	for i := range 100_000 {
		fmt.Fprintln(&lines, netip.AddrFrom4([4]byte{100, byte(64 + i>>16), byte(i >> 8), byte(i)}))
	}
	where := []string{"--netns", l.Namespace.Name(), "--state-dir", b.state}
	for range b.rounds(5) {
		r, err := b.command(lines.Bytes(), append([]string{"ban", "-", "--for", "1d"}, where...)...)
		if err != nil {
			return err
		}
		t.add(banMany, r)
		if _, err := b.sluice(l, "unban", "100.64.0.0/10"); err != nil {
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

func (b *bench) plan(l *measure.Lab, file string) (planned, error) {
	var p planned
	r, err := b.sluice(l, "plan", file, "--json")
	if r.output == "" {
		return p, err
	}
	return p, json.Unmarshal([]byte(r.output), &p) // status 1: something would change
}

// memory reports the most that each side holds at once, itself and its children,
// and how the plan's load time compares with the load.
func (b *bench) memory(own, theirs *measure.Lab, file string, ruleset []byte, said planned) error {
	const mebibyte = 1 << 20
	var peaks, peaksNft, loads stats.Series
	for range 3 {
		if err := b.empty(own); err != nil {
			return err
		}
		ours, err := timed.Run(b, timed.Program{Name: b.binary, Watch: true, Args: []string{
			"apply", file, "--no-confirm", "--no-verify", "--netns", own.Namespace.Name(), "--state-dir", b.state,
		}})
		if err != nil {
			return err
		}
		peaks = append(peaks, float64(ours.Resident)/mebibyte)
		if err := b.empty(theirs); err != nil {
			return err
		}
		nft, err := timed.Run(b, timed.Program{Name: "nft", Args: []string{"-f", "-"}, Stdin: ruleset, Watch: true, In: theirs.Namespace.Do})
		if err != nil {
			return err
		}
		peaksNft = append(peaksNft, float64(nft.Resident)/mebibyte)

		// What a load takes beside reading and compiling: compile does those alone.
		if err := b.empty(own); err != nil {
			return err
		}
		compiled, err := b.sluice(own, "compile", file)
		if err != nil {
			return err
		}
		applied, err := b.apply(own, file)
		if err != nil {
			return err
		}
		loads = append(loads, milliseconds(applied.wall-compiled.wall))
	}
	b.atMost("sluice apply from nothing, resident at once with its children", "MiB", peaks, 128)
	b.atMost("nft -f of one set a family, resident", "MiB", peaksNft, 0)
	predicted := milliseconds(time.Duration(said.Cost.LoadTime))
	b.say("The plan predicts a load time of %.0f ms; apply takes %.0f ms more than compile. It predicts %d elements and %.1f MiB of kernel memory.",
		predicted, loads.Estimate().Median, said.Cost.Elements, float64(said.Cost.Memory)/mebibyte)
	return nil
}

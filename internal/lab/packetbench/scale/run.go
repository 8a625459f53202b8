package scale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/packetbench"
	"sluice/internal/lab/peers"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// Options say what to measure.
type Options struct {
	Binary     string // the sluice that is measured
	StateDir   string // the calibration is taken from there; nothing is written
	Steps      []int  // how many, ascending
	Dimensions []Dimension
	Peers      []peers.Peer // beside Sluice
	// Patience is how long one load, or one look at every packet of a kind, may take.
	Patience time.Duration
	Rounds   int // of packets; 0: 9
	Seed     uint64
	Progress func(what string)
}

// Usual are the peers that are measured where none is named.
var Usual = []string{
	"nftables-set", "ipset (iptables-legacy)", "chain-per-/8 (iptables-legacy)", "hash-per-length",
	"iptables-linear (iptables-legacy)", "nftables-linear",
}

// Run measures and returns the report, without command and version. An error of the
// context comes with what was measured until then.
func Run(ctx context.Context, o Options) (*figures.Report, error) {
	o.Rounds = cmp.Or(o.Rounds, 9)
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if err := measure.Ask(); err != nil {
		return nil, fmt.Errorf("this machine cannot measure: %w", err)
	}
	r := &figures.Report{
		Schema: figures.Schema, Title: "How costs grow",
		When: time.Now().Truncate(time.Second), Machine: host.ThisMachine(), Seed: o.Seed,
	}
	for _, d := range o.Dimensions {
		s := &series{Options: o, Context: ctx, Dimension: d, report: r, lefts: map[string]left{}}
		s.sides = append(s.sides, side{name: packetbench.Sluice})
		for _, p := range o.Peers {
			s.sides = append(s.sides, side{name: p.Name, peer: &p})
		}
		err := s.run()
		if len(s.steps) > 0 {
			r.Sections = append(r.Sections, s.section())
		}
		if err != nil {
			r.Took = time.Since(r.When).Seconds()
			if len(r.Sections) == 0 {
				return nil, err
			}
			return r, err
		}
	}
	r.Took = time.Since(r.When).Seconds()
	return r, nil
}

// side is Sluice, or a peer.
type side struct {
	name string
	peer *peers.Peer // nil: Sluice
}

// series is one dimension.
type series struct {
	Options
	context.Context
	Dimension
	report *figures.Report
	sides  []side
	lefts  map[string]left // by side
	steps  []*step
}

// left says from which step on a side is left out, and why.
type left struct {
	at  int
	why string
}

// step is one size.
type step struct {
	n     int
	loads map[string]loads
	// cost of a packet by side and case, and what the report of packets said.
	packets *figures.Section
}

func (s *series) run() error {
	for _, n := range s.Steps {
		if err := s.step(n); err != nil {
			return err
		}
		if s.over() {
			break
		}
	}
	return nil
}

// over says that Sluice itself is left out: there is nothing to put beside the others.
func (s *series) over() bool {
	_, gone := s.lefts[packetbench.Sluice]
	return gone
}

func (s *series) step(n int) (err error) {
	now := &step{n: n, loads: map[string]loads{}}
	for _, side := range s.sides {
		if why := s.tooLong(side.name, n); why != "" {
			s.leave(side.name, n, why)
		}
		if s.over() {
			return nil
		}
	}
	dir, err := os.MkdirTemp("", "sluice-scale-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s.Progress(fmt.Sprintf("writing %s %s", figures.Number(float64(n)), s.Name))
	file, err := s.write(dir, n, s.Seed)
	if err != nil {
		return err
	}
	meaning, err := meaningOf(file)
	if err != nil {
		return err
	}
	for _, side := range s.sides {
		if _, gone := s.lefts[side.name]; gone {
			continue
		}
		s.Progress(fmt.Sprintf("%s %s: loading %s", figures.Number(float64(n)), s.Name, side.name))
		l, err := s.load(side, file, meaning, n)
		switch {
		case s.Err() != nil:
			return s.Err()
		case err != nil:
			s.leave(side.name, n, err.Error())
		default:
			now.loads[side.name] = l
		}
	}
	if s.over() {
		return nil
	}
	if now.packets, err = s.packets(file, meaning, n); err != nil {
		return err
	}
	s.steps = append(s.steps, now)
	return nil
}

func (s *series) leave(name string, n int, why string) {
	if _, gone := s.lefts[name]; !gone {
		s.lefts[name] = left{n, why}
		s.report.Warnings = append(s.report.Warnings,
			fmt.Sprintf("%s is left out from %s %s on: %s", name, figures.Number(float64(n)), s.Name, why))
	}
}

// meaningOf reads a policy of ours, which says nothing about the host.
func meaningOf(file string) (peers.Meaning, error) {
	p, err := policy.Load(file)
	if err != nil {
		return peers.Meaning{}, err
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: host.Facts{Known: true}})
	if err != nil {
		return peers.Meaning{}, err
	}
	return peers.FromPolicy(r), nil
}

// packets has the packets measured in labs of all sides that are left.
func (s *series) packets(file string, m peers.Meaning, n int) (*figures.Section, error) {
	o := packetbench.Options{
		Policy: file, Binary: s.Binary, StateDir: s.StateDir, Kinds: s.kinds, Families: []addrset.Family{addrset.IPv4},
		Sources: s.sources, Flows: 1024, Seed: s.Seed, Rounds: s.Rounds,
		Progress: func(what string, done, total int) {
			if total > 0 {
				what = fmt.Sprintf("%s, round %d of %d", what, done+1, total)
			}
			s.Progress(fmt.Sprintf("%s %s: %s", figures.Number(float64(n)), s.Name, what))
		},
	}
	for _, side := range s.sides {
		if _, gone := s.lefts[side.name]; gone || side.peer == nil {
			continue
		}
		o.Subjects = append(o.Subjects, packetbench.Subject{Name: side.name, Load: func(ctx context.Context, l *measure.Lab) error {
			return side.peer.Load(ctx, l.Namespace, m)
		}})
	}
	r, err := packetbench.Run(s, o)
	if r == nil {
		return nil, err
	}
	for _, w := range r.Warnings {
		s.report.Warnings = append(s.report.Warnings, fmt.Sprintf("%s %s: %s", figures.Number(float64(n)), s.Name, w))
	}
	at := slices.IndexFunc(r.Sections, func(s figures.Section) bool { return s.Name == "packet" })
	if at < 0 {
		return nil, errors.Join(err, errors.New("no packets were measured"))
	}
	return &r.Sections[at], err
}

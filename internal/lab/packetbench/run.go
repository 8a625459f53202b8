package packetbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

// bench is one run.
type bench struct {
	Options
	context.Context
	net      *testnet.Net
	state    *state
	report   *figures.Report
	here     host.Facts // of this machine
	devices  []measure.Device
	policy   *policy.Policy
	resolved *resolve.Resolved
	cases    []caseOf
	lacks    []lacking
	labs     []*lab
}

// lab is a subject in the kernel. Left says of cases that it does not take part in
// why.
type lab struct {
	*measure.Lab
	name    string // the subject's, with a number behind the first
	subject string
	mine    bool // what is measured, whose faults end the run
	left    map[string]string
}

// Run measures the policy and returns the report, without command and version. An
// error of the context comes with what was measured until then, if anything was.
func Run(ctx context.Context, o Options) (report *figures.Report, err error) {
	o.fill()
	b := &bench{Options: o, Context: ctx, report: &figures.Report{
		Schema: figures.Schema, Title: "The cost of a packet under " + o.Policy,
		When: time.Now().Truncate(time.Second), Machine: host.ThisMachine(), Seed: o.Seed,
	}}
	if o.Binary == "" && len(o.Subjects) == 0 {
		return nil, errors.New("nothing is measured: neither sluice nor another way to have the policy")
	}
	if b.state, err = newState(o.StateDir, b.warn); err != nil {
		return nil, err
	}
	defer b.state.remove()
	if b.net, err = testnet.Create("packet"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.net.Close()) }()
	if err := b.prepare(); err != nil {
		return nil, err
	}
	return b.measure()
}

func (o *Options) fill() {
	if len(o.Families) == 0 {
		o.Families = []addrset.Family{addrset.IPv4, addrset.IPv6}
	}
	o.Way = cmp.Or(o.Way, measure.Available())
	o.Rounds = cmp.Or(o.Rounds, 25)
	o.Flows = cmp.Or(o.Flows, 4096)
	o.Sources = cmp.Or(o.Sources, measure.Sources)
	if o.Way == measure.ByPacketRing {
		o.Sources = min(o.Sources, 1<<13) // each is a frame in memory
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
}

func (b *bench) warn(text string) {
	if !slices.Contains(b.report.Warnings, text) {
		b.report.Warnings = append(b.report.Warnings, text)
	}
}

func (b *bench) say(format string, args ...any) { b.Progress(fmt.Sprintf(format, args...), 0, 0) }

// prepare reads the policy, makes the labs, finds the cases and loads the subjects.
func (b *bench) prepare() error {
	b.say("reading %s", b.Policy)
	var err error
	if b.policy, err = policy.Load(b.Policy); err != nil {
		return err
	}
	if b.here, err = host.Describe(b, nil); err != nil {
		return err
	}
	b.devices = devicesOf(b.policy)
	bare, err := b.lab(Bare, "bare")
	if err != nil {
		return err
	}
	facts, err := factsOf(b, bare)
	if err != nil {
		return err
	}
	if b.resolved, err = b.state.resolve(b, b.policy, facts); err != nil {
		return err
	}
	if facts, err = b.own(bare, facts); err != nil {
		return err
	}
	if b.resolved, err = b.state.resolve(b, b.policy, facts); err != nil {
		return err
	}
	b.labs = append(b.labs, bare)
	b.find()
	if len(b.cases) == 0 {
		var why []string
		for _, l := range b.lacks {
			why = append(why, l.name+": "+l.why)
		}
		return fmt.Errorf("%s has no kind of packet to measure\n%s", b.Policy, strings.Join(why, "\n"))
	}
	if b.Resolved != nil {
		if err := b.Resolved(b.resolved); err != nil {
			return err
		}
	}
	return b.load()
}

// own gives the first lab, and all that come after it, the addresses that the policy
// takes for the host's.
func (b *bench) own(l *lab, facts host.Facts) (host.Facts, error) {
	first := &b.devices[0]
	for _, a := range ownOf(b.resolved) {
		if reference.Own(facts, a) || measure.Usable(addrset.Of(addrset.Range{From: a, To: a})).IsEmpty() && !outer[0].Contains(a) && !outer[1].Contains(a) {
			continue
		}
		if err := l.Own(a); err != nil {
			return facts, err
		}
		first.Addresses = append(slices.Clone(first.Addresses), netip.PrefixFrom(a, a.BitLen()))
	}
	return factsOf(b, l)
}

// lab makes one. It forwards where this machine does, since other rules come of that.
func (b *bench) lab(name, label string) (*lab, error) {
	l, err := measure.Build(b.net, label, b.devices...)
	if err != nil {
		return nil, err
	}
	if b.here.Forwarding4 {
		err = l.Namespace.SetSysctl("net.ipv4.ip_forward", "1")
	}
	if b.here.Forwarding6 {
		err = errors.Join(err, l.Namespace.SetSysctl("net.ipv6.conf.all.forwarding", "1"))
	}
	if err != nil {
		return nil, err
	}
	return &lab{Lab: l, name: name, subject: name, left: map[string]string{}}, nil
}

func factsOf(ctx context.Context, l *lab) (facts host.Facts, err error) {
	err = l.Namespace.Do(func() error {
		facts, err = host.Describe(ctx, nil)
		facts.Namespace = l.Namespace.Name()
		return err
	})
	return facts, err
}

func (b *bench) find() {
	b.say("looking for packets of every kind")
	f := &finding{
		finder: &finder{Resolved: b.resolved, devices: b.devices, sources: b.Sources, seed: b.Seed},
		flows:  b.mostFlows(), kinds: b.Kinds,
	}
	for _, family := range b.Families {
		f.find(family)
	}
	b.cases, b.lacks = f.cases, f.lacks
}

// mostFlows leaves room in the connection table for the flows of all cases, twice:
// its size is the machine's.
func (b *bench) mostFlows() int {
	const cases = 16
	if most := b.resolved.Facts.ConntrackMax; most > 0 {
		return max(1, min(b.Flows, int(most)/(2*cases)))
	}
	return b.Flows
}

// load makes the labs of each subject.
func (b *bench) load() error {
	subjects := b.Subjects
	if b.Binary != "" {
		subjects = append([]Subject{b.state.apply(b.Binary, b.Policy)}, subjects...)
	}
	for i, s := range subjects {
		labs := b.Labs
		if labs == 0 {
			labs = 1
			if i == 0 {
				labs = 2
			}
		}
		for n := range labs {
			if err := b.loadOne(s, i == 0, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadOne makes a lab of a subject, the one of that number.
func (b *bench) loadOne(s Subject, mine bool, number int) error {
	name := s.Name
	if number > 0 {
		name += Again
	}
	if number > 1 {
		name += fmt.Sprintf(" %d", number)
	}
	b.say("loading %s", name)
	l, err := b.lab(name, fmt.Sprintf("s%d", len(b.labs)-1))
	if err != nil {
		return err
	}
	l.subject, l.mine = s.Name, mine
	if err := s.Load(b, l.Lab); err != nil {
		var end *EndError
		if l.mine || b.Err() != nil || errors.As(err, &end) {
			return fmt.Errorf("load %s: %w", name, err)
		}
		b.warn(fmt.Sprintf("%s is left out: %v", name, err))
		return nil
	}
	if mine && b.Loaded != nil {
		if err := b.Loaded(l.Lab); err != nil {
			return err
		}
	}
	b.labs = append(b.labs, l)
	return nil
}

// measure checks every case in every lab, and compares those that hold.
func (b *bench) measure() (*figures.Report, error) {
	var cells []measure.Cell
	var kept []caseOf
	for _, c := range b.cases {
		b.say("checking %s", c.name)
		these, err := b.cellsOf(&c)
		if err != nil {
			return nil, err
		}
		for i := range these {
			defer these[i].Source.Close() // one may be closed twice
		}
		if len(these) > 0 {
			kept, cells = append(kept, c), append(cells, these...)
		}
	}
	b.cases = kept
	if len(cells) == 0 {
		return nil, fmt.Errorf("%s has no kind of packet that can be measured", b.Policy)
	}
	plan := measure.Plan{Rounds: b.Rounds, For: b.For, Packets: 1 << 16, Longest: 20 * time.Millisecond}
	if b.Packets > 0 {
		plan.Packets, plan.Exactly = b.Packets, true
	}
	plan.Begin = func(round int) { b.Progress("measuring", round, b.Rounds) }
	r, err := measure.Compare(b, plan, cells)
	if r == nil || r.Rounds() == 0 {
		return nil, err
	}
	b.tell(r)
	b.report.Took = time.Since(b.report.When).Seconds()
	return b.report, err
}

// cellsOf makes a case ready in every lab, and sees that the rules there do with it
// what the policy says. None are returned of a case that the measured subject has not.
func (b *bench) cellsOf(c *caseOf) (cells []measure.Cell, err error) {
	source, err := measure.LoadFor(c.traffic, b.Way)
	if err != nil {
		return nil, err
	}
	bare := source
	if c.bare.Flows[0] != c.traffic.Flows[0] {
		if bare, err = measure.LoadFor(c.bare, b.Way); err != nil {
			source.Close()
			return nil, err
		}
	}
	discard := func() { source.Close(); bare.Close() }
	for _, l := range b.labs {
		if err := b.Err(); err != nil {
			discard()
			return nil, err
		}
		s, survives := source, measure.None
		if c.passes {
			survives = measure.All
		}
		if l.name == Bare {
			s, survives = bare, measure.All
		} else if c.known {
			n, err := b.know(l, c)
			if err != nil {
				discard()
				return nil, err
			}
			if n == 0 && l.mine {
				b.lacks = append(b.lacks, lacking{c.name, "nothing in the policy asks for the state of connections, so none is kept"})
				discard()
				return nil, nil
			}
		}
		one := measure.Cell{Name: measure.Of(l.name, c.name), Lab: l.Lab, Source: s, Survives: survives}
		if err := one.Check(b); err != nil {
			var otherwise *measure.VerdictError
			if l.mine || l.name == Bare || !errors.As(err, &otherwise) {
				discard()
				return nil, err
			}
			l.left[c.name] = otherwise.Brief()
			continue
		}
		cells = append(cells, one)
	}
	return cells, nil
}

// know makes the known connections of a case in a lab.
func (b *bench) know(l *lab, c *caseOf) (int, error) {
	if !c.asked {
		return l.Establish(b, c.traffic, b.Way)
	}
	return len(c.traffic.Flows), l.Answered(c.traffic)
}

package applybench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/peers"
	"sluice/internal/lab/testnet"
	"sluice/internal/lab/timed"
	"sluice/internal/language/policy"
	"sluice/internal/system/kernel/memgroup"
	"sluice/internal/system/kernel/netlinkcount"
)

// bench is one run.
type bench struct {
	Options
	net    *testnet.Net
	world  *world
	rivals []*entrant
	base   *state
	more   *state
	next   *state // the last round's, with other country data
	noGeo  string // why there is none
	flows  []flow
	device string
	results
	unmet    bool  // the policy expects what does not hold in a lab
	wireless error // why bytes over netlink are not counted
}

// entrant is a rival with its lab.
type entrant struct {
	name  string
	lab   *lab
	rival rival
	group *memgroup.Group
	slow  bool // a change takes seconds: it takes part in the first rounds alone
	gone  bool // it has failed
}

// mine says whether it is what is measured, whose faults end the run.
func (e *entrant) mine() bool { return e.name == Sluice || e.name == Unproved || e.name == Again }

// slowRounds is how many timed rounds a slow rival takes part in; it takes part in one
// of the others.
const slowRounds = 3

// slowChange is what a change may take before its rival counts as slow.
const slowChange = 3 * time.Second

// Run measures and fills a report, also when it is interrupted, with what there is by
// then. A rival that the machine lacks or that cannot say the policy is left out with
// a warning.
func Run(ctx context.Context, o Options, r *figures.Report) (err error) {
	dir, err := os.MkdirTemp("", "sluice-apply-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{Options: o, results: results{cells: map[key]*cell{}}}
	if b.net, err = testnet.Create("apply"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.prepare(ctx, dir); err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	failed := b.measure(ctx)
	if ctx.Err() != nil {
		failed = ctx.Err() // whatever it was that this ended
	}
	if failed == nil || ctx.Err() != nil && len(b.cells) > 0 {
		b.report(r)
	}
	return failed
}

func (b *bench) close() error {
	var errs []error
	for _, e := range b.rivals {
		if d, is := e.rival.(*daemon); is && d.d != nil {
			errs = append(errs, d.d.Stop())
		}
	}
	errs = append(errs, b.net.Close())
	for _, e := range b.rivals {
		if e.group != nil {
			errs = append(errs, e.group.Remove())
		}
	}
	return errors.Join(errs...)
}

// prepare makes the labs, the policy and the rivals.
func (b *bench) prepare(ctx context.Context, dir string) error {
	b.device = "eth0"
	if b.Policy != "" {
		p, err := policy.Load(b.Policy)
		if err != nil {
			return err
		}
		b.device = deviceOf(p)
	}
	b.say("making namespaces", 0)
	for i, name := range rivals {
		if len(b.Rivals) > 0 && !slices.Contains(b.Rivals, name) && !(&entrant{name: name}).mine() {
			continue
		}
		l, err := newLab(b.net, fmt.Sprintf("lab%d", i), b.device)
		if err != nil {
			return err
		}
		b.rivals = append(b.rivals, &entrant{name: name, lab: l})
	}
	facts, err := factsOf(ctx, b.Binary, b.rivals[0].lab.host.Name(), filepath.Join(dir, "scratch"))
	if err != nil {
		return err
	}
	if b.world, err = newWorld(b.Options, dir, facts); err != nil {
		return err
	}
	if b.base, err = b.world.make(ctx, elements, b.world.data); err != nil {
		return err
	}
	if b.more, err = b.world.make(ctx, elements+1, b.world.data); err != nil {
		return err
	}
	if len(b.base.resolved.Policy.Expect) > 0 {
		_, err := timed.Run(ctx, timed.Program{Name: b.Binary, Args: []string{
			"test", b.world.policy, "--netns", b.rivals[0].lab.host.Name(), "--state-dir", filepath.Join(dir, "scratch"),
		}})
		if b.unmet = err != nil; b.unmet {
			b.warn("what the policy expects is not proved, since not all of it holds in a lab; a reload without a change takes longer for that")
		}
	}
	b.say("compiling the policy", 0)
	if err := b.nextState(ctx, 0); err != nil {
		return err
	}
	for _, e := range slices.Clone(b.rivals) {
		if err := b.enter(e, dir); err != nil {
			b.warn("%s is left out: %s", e.name, firstLine(err))
			b.rivals = slices.DeleteFunc(b.rivals, func(o *entrant) bool { return o == e })
		}
	}
	return nil
}

// nextState draws the country data of a round.
func (b *bench) nextState(ctx context.Context, round int) error {
	if b.noGeo != "" {
		return nil
	}
	data, err := b.world.shifted(countrySets(b.base.resolved), uint64(round))
	switch {
	case errors.Is(err, errNoCountries):
		b.noGeo, b.next = err.Error(), b.more
	case err != nil:
		return err
	default:
		if b.next, err = b.world.make(ctx, elements+1, data); err != nil {
			return err
		}
	}
	of := []*state{b.base, b.more, b.next}
	b.flows = drawFlows(of, b.device, b.Seed)
	return nil
}

// enter makes a rival of an entrant's name.
func (b *bench) enter(e *entrant, dir string) error {
	said := func(p peers.Peer) error {
		if err := p.Missing(); err != nil {
			return err
		}
		if refused := p.Cannot(b.base.meaning); len(refused) > 0 {
			return &peers.CannotError{Peer: p.Name, Refused: refused}
		}
		return nil
	}
	switch e.name {
	case Sluice, Unproved, Again:
		o := &ours{lab: e.lab, world: b.world, binary: b.Binary, state: filepath.Join(dir, "state-"+e.lab.host.Label())}
		if e.name != Sluice {
			o.flags = []string{"--no-verify"}
		}
		if b.unmet {
			o.flags = append(o.flags, "--no-expect")
		}
		e.rival = o
		if _, err := os.Stat(b.world.lists); err == nil {
			if err := os.CopyFS(filepath.Join(o.state, "lists"), os.DirFS(b.world.lists)); err != nil {
				return err
			}
		}
	case NFT:
		e.rival = &refilled{lab: e.lab}
	case Careful:
		e.rival = &careful{lab: e.lab}
	case IPSet:
		p, flavour, err := ipsetPeer()
		if err != nil {
			return err
		}
		if err := said(p); err != nil {
			return err
		}
		e.rival = &swapped{lab: e.lab, peer: p, flavour: flavour}
	case Firewalld:
		list, err := peers.Named("firewalld")
		if err != nil {
			return err
		}
		if err := said(list[0]); err != nil {
			return err
		}
		e.rival = &daemon{lab: e.lab}
	}
	e.group, _ = memgroup.New("apply") // without, its figure has a note
	return nil
}

// pass is a kind of rounds.
type pass int

const (
	timing pass = iota
	flooded
	watched
)

func (p pass) String() string { return [...]string{"timing", "counting packets", "watching memory"}[p] }

// takes says whether a rival takes part in a round.
func (p pass) takes(e *entrant, round int) bool {
	switch {
	case e.gone:
		return false
	case e.slow && (p == timing && round >= slowRounds || p != timing && round > 0):
		return false
	case p == flooded:
		return e.name != Unproved && e.name != Again
	case p == watched:
		return e.name != Again
	}
	return true
}

// measure makes all rounds: a flooded and a watched one for every third that is
// timed.
func (b *bench) measure(ctx context.Context) error {
	few := max(1, b.Rounds/3)
	total, done := b.Rounds+2*few, 0
	for _, p := range []pass{timing, flooded, watched} {
		n := few
		if p == timing {
			n = b.Rounds
		}
		for round := range n {
			if done > 0 {
				if err := b.nextState(ctx, done); err != nil {
					return err
				}
			}
			for i := range measure.Turns(round, len(b.rivals)) {
				e := b.rivals[i]
				if !p.takes(e, round) {
					continue
				}
				b.say(fmt.Sprintf("%s: %s", p, e.name), done, total)
				err := b.all(ctx, p, e)
				switch {
				case err == nil:
				case ctx.Err() != nil || e.mine():
					return fmt.Errorf("%s: %w", e.name, err)
				default:
					b.warn("%s is left out from round %d on: %s", e.name, done+1, firstLine(err))
					e.gone = true
				}
			}
			done++
		}
	}
	return nil
}

// all makes every change with a rival.
func (b *bench) all(ctx context.Context, p pass, e *entrant) error {
	if err := e.rival.empty(ctx); err != nil {
		return err
	}
	time.Sleep(settle)
	of := [states]*state{nothing: nil, base: b.base, oneMore: b.more, countries: b.next}
	for _, c := range changes {
		if c.to == countries && b.noGeo != "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := e.rival.prepare(ctx, c, of[c.from], of[c.to]); err != nil {
			return err
		}
		if err := b.one(ctx, p, e, c); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if p == flooded && c.to == countries || p == flooded && b.noGeo != "" && c.to == oneMore {
			counted, err := e.lab.during(b.flows, func() error { time.Sleep(3 * lead); return nil })
			if err != nil {
				return err
			}
			b.cell(atRest, e.name).count(counted)
		}
	}
	if err := e.rival.empty(ctx); err != nil {
		return err
	}
	time.Sleep(settle)
	return nil
}

// one makes one change and keeps what it took.
func (b *bench) one(ctx context.Context, p pass, e *entrant, c change) (err error) {
	w := &work{lab: e.lab, watched: p == watched, group: e.group}
	cell := b.cell(c.name, e.name)
	switch p {
	case timing:
		if err := e.rival.make(ctx, w); err != nil {
			return err
		}
		cell.wall = append(cell.wall, w.cost.Wall.Seconds()*1000)
		cell.cpu = append(cell.cpu, w.cost.CPU.Seconds()*1000)
		e.slow = e.slow || w.cost.Wall > slowChange
	case flooded:
		flows := b.flows
		if c.from == nothing { // everything passes before
			flows = slices.DeleteFunc(slices.Clone(flows), func(f flow) bool { return f.class == refused })
		}
		counted, err := e.lab.during(flows, func() error { return e.rival.make(ctx, w) })
		if err != nil {
			return err
		}
		cell.count(counted)
	case watched:
		if w.group != nil {
			if w.held, err = w.group.Kernel(); err != nil {
				return err
			}
		}
		counter, err := netlinkcount.Start(e.lab.host.Path())
		if err != nil {
			b.wireless = err
		}
		made := e.rival.make(ctx, w)
		if counter != nil {
			bytes, err := counter.Read()
			if err := errors.Join(made, err, counter.Close()); err != nil {
				return err
			}
			cell.sent = append(cell.sent, float64(bytes.Sent)/1024)
			cell.received = append(cell.received, float64(bytes.Received)/1024)
		}
		if made != nil {
			return made
		}
		cell.resident = append(cell.resident, float64(w.cost.Resident)/(1<<20))
		if w.group != nil && unchargedBy(e.name, c) == "" {
			cell.kernel = append(cell.kernel, float64(w.cost.Kernel)/(1<<20))
		}
	}
	return nil
}

func (b *bench) say(what string, progress ...int) {
	if b.Progress == nil {
		return
	}
	done, total := 0, 0
	if len(progress) == 2 {
		done, total = progress[0], progress[1]
	}
	b.Progress(what, done, total)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// unchargedBy is why what the kernel holds for a rival's change is not known; "" where
// it is.
func unchargedBy(rival string, c change) string {
	switch {
	case rival == IPSet:
		return "not charged" // net/netfilter/ipset allocates its elements without GFP_KERNEL_ACCOUNT
	case rival == Firewalld && c.from == nothing:
		return "not charged" // the group takes the service in when it runs
	}
	return ""
}

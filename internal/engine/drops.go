package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend/trace"
	"sluice/internal/base/addrset"
	"sluice/internal/base/nearest"
	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/drops"
	"sluice/internal/system/kernel/netns"
)

// Dropped is a packet that the kernel gave up.
type Dropped struct {
	// Reason is the kernel's own name of it, such as NO_SOCKET, and Function the one that gave
	// the packet up. Callers are those that called it, the nearest first.
	Reason   string   `json:"reason,omitempty"`
	Function string   `json:"function"`
	Callers  []string `json:"callers,omitempty"`
	// By is the rule that dropped it, where packets are traced and no line of the policy did.
	By *DropRule `json:"by-rule,omitempty"`
	// Logged has the packet, and of one that a line of the policy dropped and logged that line.
	// Its hook is that of netfilter, "" where the packet was not dropped there.
	Logged
}

// DropChoice is which drops are wanted; the zero value is all.
type DropChoice struct {
	Reason    string `json:"reason,omitempty"` // as the kernel names it, in letters of either case
	Function  string `json:"function,omitempty"`
	Source    string `json:"source,omitempty"`    // an address, a prefix or a range
	Interface string `json:"interface,omitempty"` // that a packet came in by, or went out by
	// Seconds is how long is looked; 0 is until the context ends.
	Seconds float64 `json:"seconds,omitempty"`
	// Trace has a part of the packets followed through the rules of every tool, for which a
	// table is in the ruleset meanwhile.
	Trace bool `json:"trace,omitempty"`
	// Called names these words as whoever asks knows them, for errors.
	Called map[string]string `json:"-"`
}

// DropCounts are what was dropped from a moment on.
type DropCounts struct {
	// By is what counts: tracepoint; blind, which is the same without namespaces and packets;
	// or counters, those of /proc/net, which name no function.
	By      string      `json:"by"`
	Seconds float64     `json:"seconds"`
	Packets uint64      `json:"packets"` // that are chosen by reason and function
	Places  []DropPlace `json:"places"`  // most packets first
	// Looked is of how many of them the packet was looked at, and Sources and Lines what these
	// were, most first and 20 at most.
	Looked  uint64       `json:"looked-at"`
	Sources []DropSource `json:"sources,omitempty"`
	Lines   []DropLine   `json:"lines,omitempty"`
	// Rules are what dropped those packets that were traced, most first and 20 at most, and Traced
	// how many were, also of those that nothing dropped; nil: none was to be.
	Rules  []DropRuleCount `json:"rules,omitempty"`
	Traced *trace.Sampled  `json:"traced,omitempty"`
	// Unplaced are packets of any namespace of the machine that name none, and Missed those
	// that could not be counted.
	Unplaced uint64 `json:"unplaced,omitempty"`
	// Reckoned is how many packets, of all namespaces that are watched, were not counted but
	// reckoned by those before: in a flood the program rests four fifths of the time.
	Reckoned uint64    `json:"reckoned,omitempty"`
	Missed   uint64    `json:"missed,omitempty"`
	Cost     *DropCost `json:"cost,omitempty"` // nil: the kernel has not measured it
}

// DropPlace is where packets were dropped.
type DropPlace struct {
	Reason   string `json:"reason"`
	Function string `json:"function,omitempty"`
	Packets  uint64 `json:"packets"`
}

// DropSource is from whom packets were dropped.
type DropSource struct {
	Source netip.Addr `json:"source"`
	Looked uint64     `json:"looked-at"`
}

// DropLine is the line of the policy that dropped them.
type DropLine struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Rule   string `json:"rule"`
	Looked uint64 `json:"looked-at"`
}

// DropCost is what counting takes, by the kernel's own statistics of BPF programs.
type DropCost struct {
	Event float64 `json:"ns-each"`  // nanoseconds a dropped packet
	Share float64 `json:"of-a-cpu"` // of the time of one processor, since the beginning
}

// Ways of DropCounts.By.
const (
	ByTracepoint = "tracepoint"
	ByBlind      = "blind"
	ByCounters   = "counters"
)

const (
	dropCopies  = 200         // packets a second that are looked at, at most
	dropEvery   = time.Second // how often counts are told
	topOfDrops  = 20
	mostSources = 1 << 16
)

// chooser is a choice that was read.
type chooser struct {
	DropChoice
	sources addrset.Set
	tracer  *dropTracer // nil: packets are not traced
}

func (c DropChoice) read() (*chooser, error) {
	out := &chooser{DropChoice: c}
	out.Reason = strings.ToUpper(strings.ReplaceAll(c.Reason, "-", "_"))
	if c.Source != "" {
		r, err := addrset.ParseRange(c.Source)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Called["source"], err)
		}
		out.sources = addrset.Of(r)
	}
	return out, nil
}

// known refuses a reason that the kernel does not have.
func (c *chooser) known(w dropSource) error {
	all := w.Reasons()
	if c.Reason == "" || len(all) == 0 || slices.Contains(all, c.Reason) || strings.HasPrefix(c.Reason, "0X") {
		return nil
	}
	text := fmt.Sprintf("%s: this kernel has no reason %q", c.Called["reason"], c.Reason)
	if near := nearest.Of(c.Reason, all); near != "" {
		text += fmt.Sprintf(", did you mean %q?", near)
	}
	return errors.New(text)
}

func (c *chooser) place(reason, function string) bool {
	return (c.Reason == "" || c.Reason == strings.ToUpper(reason)) && (c.Function == "" || c.Function == function)
}

func (c *chooser) packet(d *Dropped) bool {
	return c.place(d.Reason, d.Function) &&
		(c.Source == "" || d.Source.IsValid() && c.sources.Contains(d.Source)) &&
		(c.Interface == "" || c.Interface == d.In || c.Interface == d.Out)
}

// dropSource counts drops, and copies some: a drops.Watcher, or what is read of one by several.
type dropSource interface {
	Read() (map[drops.Place]uint64, error)
	Missed() (uint64, error)
	Reckoned() uint64
	RunTime() (float64, error)
	Reason(number uint32) string
	Reasons() []string
	Blind() bool
	Sample(ctx context.Context, perSecond int, seen func([]drops.Copy)) error
}

// Drops counts what the kernel drops in the host's network namespace until the context, or the
// time that was asked for, ends.
// It calls seen for those packets that it looks at, at most 200 a second, and counted each
// second with all so far. Where the kernel does not describe its types (BTF), there are no
// packets. What is returned is the last count.
func (h *Host) Drops(ctx context.Context, c DropChoice, seen func(Dropped), counted func(DropCounts)) (*DropCounts, error) {
	return h.DropsFrom(ctx, DropsFrom{}, c, seen, counted)
}

// DropsFrom is from where drops, and the lines that dropped them, are known.
type DropsFrom struct {
	Watch *DropWatch // which watches the namespace; nil: a program of its own does
	// Grown is for LogKept, where somebody keeps what is logged; nil: it is read from the
	// kernel.
	Grown func() <-chan struct{}
	// Alone: who asks may see this namespace alone, and nothing of the whole machine.
	Alone bool
}

// DropsFrom is Drops where somebody watches, or keeps the log, already.
func (h *Host) DropsFrom(ctx context.Context, from DropsFrom, c DropChoice, seen func(Dropped), counted func(DropCounts)) (*DropCounts, error) {
	chosen, err := c.read()
	if err != nil {
		return nil, err
	}
	if c.Seconds < 0 {
		return nil, fmt.Errorf("%g s is negative", c.Seconds)
	}
	if c.Seconds > 0 {
		var stop func()
		ctx, stop = context.WithTimeout(ctx, time.Duration(c.Seconds*float64(time.Second)))
		defer stop()
	}
	if h.Netns == nil { // what follows works on several threads
		there := *h
		if there.Netns, err = netns.Here(); err != nil {
			return nil, err
		}
		defer there.Netns.Close()
		h = &there
	}
	if c.Trace {
		if chosen.tracer, err = h.traceDrops(ctx); err != nil {
			return nil, err
		}
		defer chosen.tracer.close()
	}
	number := h.Netns.Number()
	if from.Watch != nil {
		if err := chosen.known(from.Watch); err != nil {
			return nil, err
		}
		return h.dropsBy(ctx, from, from.Watch, chosen, number, seen, counted)
	}
	w, err := drops.Watch(number)
	switch {
	case err == nil:
		defer w.Close()
		go w.Bound()
		if err := chosen.known(w); err != nil {
			return nil, err
		}
		return h.dropsBy(ctx, from, w, chosen, number, seen, counted)
	case errors.Is(err, drops.ErrCannotTell) && h.Namespace == "" && !from.Alone:
		var blind error
		if w, blind = drops.WatchBlind(); blind == nil {
			defer w.Close()
			go w.Bound()
			h.warn(wordsOf(err, h.Words) + ": drops are counted for the whole machine, by function and reason only")
			return h.dropsBy(ctx, from, w, chosen, 0, seen, counted)
		}
		err = errors.Join(err, blind)
	}
	h.warn(wordsOf(err, h.Words) + "; the counters of /proc/net are shown instead")
	return h.dropsByCounters(ctx, chosen, seen, counted)
}

// dropsBy looks at packets and counts them, by a watcher.
func (h *Host) dropsBy(ctx context.Context, from DropsFrom, w dropSource, chosen *chooser, number uint32, seen func(Dropped), counted func(DropCounts)) (*DropCounts, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	t := newDropTally(w, chosen, number)
	copies, looked, gone := make(chan []drops.Copy, 8), make(chan error, 1), make(chan struct{})
	defer close(gone)
	go func() {
		looked <- w.Sample(ctx, dropCopies, func(all []drops.Copy) {
			select {
			case copies <- all:
			case <-gone:
			}
		})
		close(copies)
	}()
	rules := h.ruleFinder(ctx, chosen.tracer, from.Grown)
	defer rules.close()
	told, ended := chosen.tracer.channels()
	show := func(all []Dropped) {
		for _, d := range all {
			if chosen.packet(&d) {
				t.look(&d)
				seen(d)
			}
		}
	}
	follow := func(r ruledDrop) {
		rules.follow(r)
		if !r.rule.Deduced && chosen.traced(&r) {
			t.rules.add(r.rule)
			if w.Blind() { // no other packet is seen
				show([]Dropped{r.Dropped})
			}
		}
	}
	meter := newCostMeter(w)
	defer meter.close()
	tick := time.NewTicker(dropEvery)
	defer tick.Stop()
	interfaces := interfaceNames{host: h}
	for {
		var err error
		select {
		case all, more := <-copies:
			if !more {
				copies = nil
			}
			show(rules.named(h.droppedOf(all, t, &interfaces)))
		case l := <-rules.logged:
			rules.learn(l)
		case r := <-told:
			follow(r)
		case err = <-ended:
		case <-rules.due:
			show(rules.waited())
		case <-tick.C:
			interfaces.forget()
			if err = t.count(meter); err == nil {
				counted(t.out)
			}
		case err = <-looked:
		case <-ctx.Done():
			if copies != nil {
				for all := range copies {
					show(rules.named(h.droppedOf(all, t, &interfaces)))
				}
			}
			for range len(told) {
				follow(<-told)
			}
			show(rules.rest())
			err := t.count(meter)
			return &t.out, err
		}
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
}

// droppedOf reads packets of the namespace.
func (h *Host) droppedOf(all []drops.Copy, t *dropTally, interfaces *interfaceNames) []Dropped {
	all = slices.DeleteFunc(slices.Clone(all), func(c drops.Copy) bool { return c.Namespace != t.number }) // of which others have the same
	var addresses []uint64
	for i := range all {
		addresses = append(append(addresses, all[i].Location), all[i].Callers...)
	}
	_ = t.names.Learn(addresses) // what has no name is shown by its address
	out := make([]Dropped, 0, len(all))
	for i := range all {
		c := &all[i]
		d := Dropped{Reason: t.w.Reason(c.Reason), Function: t.names.Of(c.Location), Logged: Logged{Time: c.Time}}
		for _, a := range c.Callers[min(1, len(c.Callers)):] {
			d.Callers = append(d.Callers, t.names.Of(a))
		}
		d.Hook = hookOf(d.Function, d.Callers)
		d.In = interfaces.of(c.Arrived)
		if c.Device != c.Arrived {
			d.Out = interfaces.of(c.Device)
		}
		d.decode(c.EtherType, c.Packet)
		out = append(out, d)
	}
	return out
}

// dropTally counts.
type dropTally struct {
	w                dropSource
	chosen           *chooser
	number           uint32
	names            drops.Names
	begun            time.Time
	before           map[drops.Place]uint64
	missed, reckoned uint64 // before
	sources          map[netip.Addr]uint64
	lines            map[DropLine]uint64
	rules            ruleTally
	out              DropCounts
}

func newDropTally(w dropSource, chosen *chooser, number uint32) *dropTally {
	t := &dropTally{w: w, chosen: chosen, number: number, begun: time.Now(), sources: map[netip.Addr]uint64{}, lines: map[DropLine]uint64{}, rules: ruleTally{}}
	t.out.By, t.out.Places = ByTracepoint, []DropPlace{}
	if w.Blind() {
		t.out.By = ByBlind
	}
	t.before, _ = w.Read() // nothing yet, where the watcher is new
	t.missed, _ = w.Missed()
	t.reckoned = w.Reckoned()
	return t
}

func (t *dropTally) look(d *Dropped) {
	t.out.Looked++
	if _, have := t.sources[d.Source]; d.Source.IsValid() && (have || len(t.sources) < mostSources) {
		t.sources[d.Source]++
	}
	if d.By != nil && d.By.Deduced {
		t.rules.add(*d.By)
	}
	if d.Rule != "" || d.Line > 0 {
		t.lines[DropLine{File: d.File, Line: d.Line, Rule: d.Rule}]++
	}
}

// count reads what was counted.
func (t *dropTally) count(meter *costMeter) error {
	now, err := t.w.Read()
	if err != nil {
		return err
	}
	t.out.Seconds = time.Since(t.begun).Seconds()
	var addresses []uint64
	for p := range now {
		addresses = append(addresses, p.Location)
	}
	if err := t.names.Learn(addresses); err != nil {
		return err
	}
	t.out.Packets, t.out.Unplaced = 0, 0
	events := uint64(0)
	places := map[DropPlace]uint64{}
	for p, n := range now {
		n -= t.before[p]
		reason, function := t.w.Reason(p.Reason), t.names.Of(p.Location)
		events += n
		switch {
		case n == 0:
		case p.Namespace == 0 && t.number != 0:
			t.out.Unplaced += n
		case p.Namespace == t.number && t.chosen.place(reason, function):
			places[DropPlace{Reason: reason, Function: function}] += n
			t.out.Packets += n
		}
	}
	t.out.Places = t.out.Places[:0:0]
	for p, n := range places {
		p.Packets = n
		t.out.Places = append(t.out.Places, p)
	}
	sortPlaces(t.out.Places)
	t.top()
	t.chosen.tracer.into(&t.out, t.rules)
	t.out.Reckoned = t.w.Reckoned() - t.reckoned
	t.out.Cost = meter.cost(events-min(events, t.out.Reckoned), t.out.Seconds)
	missed, err := t.w.Missed()
	t.out.Missed = missed - t.missed
	return err
}

func sortPlaces(all []DropPlace) {
	sorting.By(all, func(a, b DropPlace) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Function, b.Function))
	})
}

// top gives whom the packets that were looked at were of.
func (t *dropTally) top() {
	t.out.Sources = t.out.Sources[:0:0]
	for s, n := range t.sources {
		t.out.Sources = append(t.out.Sources, DropSource{s, n})
	}
	sorting.By(t.out.Sources, func(a, b DropSource) int {
		return cmp.Or(cmp.Compare(b.Looked, a.Looked), a.Source.Compare(b.Source))
	})
	t.out.Sources = t.out.Sources[:min(len(t.out.Sources), topOfDrops)]
	t.out.Lines = t.out.Lines[:0:0]
	for l, n := range t.lines {
		l.Looked = n
		t.out.Lines = append(t.out.Lines, l)
	}
	sorting.By(t.out.Lines, func(a, b DropLine) int {
		return cmp.Or(cmp.Compare(b.Looked, a.Looked), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule))
	})
	t.out.Lines = t.out.Lines[:min(len(t.out.Lines), topOfDrops)]
}

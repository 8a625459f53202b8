package engine

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"sluice/internal/backend/trace"
	"sluice/internal/base/packet"
	"sluice/internal/base/sorting"
	"sluice/internal/importer"
	"sluice/internal/importer/loaded"
	"sluice/internal/program"
	"sluice/internal/system/kernel/xtables"
)

const (
	// TraceRate is how many packets are followed each second of those that arrive, and how
	// many of those that local sockets send.
	TraceRate = 100
	// rereadLegacy is how often legacy iptables is looked at for changes, of which the kernel
	// tells nobody.
	rereadLegacy = 10 * time.Second
	// deduceShare is the part of the time of a processor that deducing may take: one of so many.
	deduceShare = 10
)

// ruledDrop is a packet with the rule that dropped it.
type ruledDrop struct {
	Dropped
	rule DropRule
}

// dropTracer has the kernel tell which rules drop packets, and asks those of legacy iptables,
// of which it tells nothing.
type dropTracer struct {
	host  *Host
	told  chan ruledDrop // of followed packets, and what was deduced
	asked chan Dropped   // whom legacy iptables may have dropped
	ended chan error     // before it was to end
	stop  func()
	all   sync.WaitGroup

	mu       sync.Mutex
	rulesets []*importer.Ruleset // of iptables
	printed  map[xtablesPlace]*DropRule
	counters map[string]program.Origin // of the policy that runs
	sampled  trace.Sampled
}

// traceDrops begins to follow packets. The caller closes it, and the table that marks them is
// gone then.
func (h *Host) traceDrops(ctx context.Context) (*dropTracer, error) {
	sampler, can := h.Backend.(trace.Sampler)
	if !can {
		return nil, fmt.Errorf("backend %s cannot trace packets", h.Backend.Name())
	}
	ctx, stop := context.WithCancel(ctx)
	t := &dropTracer{host: h, told: make(chan ruledDrop, 64), asked: make(chan Dropped, 16), ended: make(chan error, 1), stop: stop}
	begun := make(chan struct{})
	t.all.Go(func() {
		err := h.Netns.Do(func() error {
			return sampler.Sample(ctx, trace.Sampling{
				Rate: TraceRate,
				Read: func() { t.read(ctx) },
				Begun: func(notes []string) {
					for _, n := range notes {
						h.warn(n)
					}
					close(begun)
				},
				Dropped: func(r *trace.Result) { t.tell(ctx, t.ruled(r)) },
				Counted: t.count,
			})
		})
		if err != nil {
			t.ended <- err
		}
	})
	select {
	case <-begun:
	case err := <-t.ended:
		t.close()
		return nil, err
	}
	t.all.Go(func() { t.deduce(ctx) })
	return t, nil
}

func (t *dropTracer) close() {
	t.stop()
	t.all.Wait()
}

func (t *dropTracer) tell(ctx context.Context, d ruledDrop) {
	select {
	case t.told <- d:
	case <-ctx.Done():
	}
}

func (t *dropTracer) count(now trace.Sampled) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sampled = now
}

// read reads the rules of iptables, in the host's namespace.
func (t *dropTracer) read(ctx context.Context) {
	rulesets, errs := loaded.Xtables(ctx)
	for _, err := range errs {
		if ctx.Err() == nil {
			t.host.warn(err.Error() + "\nthe rules of iptables are shown without it")
		}
	}
	printed := printedRules(rulesets)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rulesets, t.printed = rulesets, printed
	if lines, err := t.host.Lines(); err == nil {
		t.counters = lines.Counters
	}
}

// ruled is what the trace says of a packet.
func (t *dropTracer) ruled(r *trace.Result) ruledDrop {
	t.mu.Lock()
	linesNow(t.counters, r.Steps)
	t.mu.Unlock()
	p, s := &r.Packet, r.Decider()
	out := ruledDrop{Dropped: Dropped{Logged: Logged{
		Time: time.Now(), Hook: s.Hook, In: p.In, Out: p.Out, Source: p.Source, Destination: p.Destination,
		Protocol: packet.ProtocolName(p.Protocol), SourcePort: p.SourcePort, Port: p.Port, Bytes: p.Length,
	}}}
	switch p.Protocol {
	case packet.TCP:
		out.Flags = flags(p.Flags)
	case packet.ICMP, packet.ICMPv6:
		out.ICMP = fmt.Sprintf("%d/%d", p.ICMPType, p.ICMPCode)
	}
	t.mu.Lock()
	out.rule = told(s, t.printed)
	t.mu.Unlock()
	if place, rule, is := strings.Cut(s.Line, " "); is {
		i := strings.LastIndexByte(place, ':')
		if n, err := strconv.Atoi(place[i+1:]); err == nil {
			out.File, out.Line, out.Rule = place[:max(i, 0)], n, rule
			return out
		}
	}
	out.By = &out.rule
	return out
}

// deduce says of packets which rule of legacy iptables dropped them, where there is time for it.
func (t *dropTracer) deduce(ctx context.Context) {
	sum, next := uint64(0), time.Now().Add(rereadLegacy)
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-t.asked:
			begun := time.Now()
			if begun.After(next) {
				sum = t.reread(ctx, sum)
				next = begun.Add(rereadLegacy)
			}
			t.mu.Lock()
			rulesets := t.rulesets
			t.mu.Unlock()
			if r := deduced(&d, rulesets); r != nil {
				d.By = r
				t.tell(ctx, ruledDrop{d, *r})
			}
			select {
			case <-ctx.Done():
			case <-time.After((deduceShare - 1) * time.Since(begun)):
			}
		}
	}
}

// reread reads the rules of iptables again where they are others than those of a sum.
func (t *dropTracer) reread(ctx context.Context, before uint64) (now uint64) {
	_ = t.host.Netns.Do(func() (err error) {
		if now, err = xtables.Sum(); err == nil && now != before {
			t.read(ctx)
		}
		return err
	})
	return now
}

// channels are those of what is traced; of no tracer nothing comes.
func (t *dropTracer) channels() (<-chan ruledDrop, <-chan error) {
	if t == nil {
		return nil, nil
	}
	return t.told, t.ended
}

// into says in counts what was traced.
func (t *dropTracer) into(c *DropCounts, rules ruleTally) {
	if t == nil {
		return
	}
	t.mu.Lock()
	now := t.sampled
	t.mu.Unlock()
	c.Traced, c.Rules = &now, rules.top()
}

// traced says of a packet that the trace reports that it is chosen.
func (c *chooser) traced(r *ruledDrop) bool {
	d := r.Dropped
	if d.Function == "" && c.Function == "" { // it does not tell, and whom rules drop is dropped for this
		d.Reason = netfilterDrop
	}
	return c.packet(&d)
}

// netfilterDrop is the reason that the kernel gives for what rules drop, since Linux 5.17.
const netfilterDrop = "NETFILTER_DROP"

// ask has it deduced which rule dropped a packet, where neither the log nor the kernel says.
func (f *ruleFinder) ask(d *Dropped) {
	if d.Hook == "" || f.name(d) || !strings.HasPrefix(d.Function, "nf_hook_slow") { // legacy iptables leaves it to that
		return
	}
	select {
	case f.tracer.asked <- *d:
	default: // there is no time for it
	}
}

// follow learns which rule dropped a packet.
func (f *ruleFinder) follow(r ruledDrop) {
	if len(f.traced) >= mostLogged {
		clear(f.traced)
	}
	f.traced[keyOf(&r.Logged)] = r
	for i := range f.waiting {
		f.name(&f.waiting[i].Dropped)
	}
}

// DropRuleCount is how many of the packets that were followed, or looked at where it is
// deduced, a rule dropped.
type DropRuleCount struct {
	DropRule
	Packets uint64 `json:"packets"`
}

// ruleTally counts by rule.
type ruleTally map[DropRule]uint64

const mostRules = 1 << 12

func (t ruleTally) add(r DropRule) {
	if _, have := t[r]; have || len(t) < mostRules {
		t[r]++
	}
}

func (t ruleTally) top() (out []DropRuleCount) {
	for r, n := range t {
		out = append(out, DropRuleCount{r, n})
	}
	sorting.By(out, func(a, b DropRuleCount) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Family, b.Family), cmp.Compare(a.Table, b.Table),
			cmp.Compare(a.Chain, b.Chain), cmp.Compare(a.Handle, b.Handle), cmp.Compare(a.Number, b.Number), cmp.Compare(a.Rule, b.Rule))
	})
	return out[:min(len(out), topOfDrops)]
}

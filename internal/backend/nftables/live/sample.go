package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/backend/trace"
	"sluice/internal/base/packet"
	"sluice/internal/system/kernel/nft"
	"sluice/internal/system/kernel/nftrace"
	"sluice/internal/system/kernel/ruleset"
)

// sampleTable is the table by which packets of the host itself are followed. Those who
// tell Sluice's tables from others have its name in host.OwnTables.
const sampleTable = "sluice_trace"

const (
	listens  = 100 * time.Millisecond // after which the context is looked at
	lifetime = 5 * time.Second        // of a packet between its first event and its last one
	rereads  = 2 * time.Second        // between two readings of rules that have changed, at least
	resting  = 20                     // times what a reading took
)

// sample follows packets of the host.
type sample struct {
	rules
	reading  func()
	at       uint32    // the ruleset's generation when the rules were read; 0: they changed meanwhile
	next     time.Time // when they may be read again
	followed map[uint32]*followed
	swept    time.Time
	devices  map[int]string
	out      trace.Sampled
}

// followed is a packet on its way.
type followed struct {
	trace.Result
	began time.Time
	sent  bool // by a local socket
}

// Sample is trace.Sampler's. The names of Sluice's own tables are given.
func Sample(ctx context.Context, q trace.Sampling, own ...string) error {
	x := &sample{rules: rules{own: own}, reading: q.Read, followed: map[uint32]*followed{}, devices: map[int]string{}}
	listener, err := nftrace.Listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	family, notes := silentFamily()
	var m *marking
	if family != 0 {
		table, err := nftrace.Mark(sampleTable, family, q.Rate)
		if err != nil {
			return err
		}
		defer table.Close()
		packets, err := handled()
		if err != nil {
			return err
		}
		m = &marking{Marking: table, packets: packets, looked: time.Now(), next: time.Now().Add(calm)}
	}
	if err := x.readRules(ctx); err != nil { // with the table: none of the generation before it
		return err
	}
	q.Begun(notes)
	for ctx.Err() == nil {
		events, err := listener.Receive(listens)
		if errors.Is(err, unix.ENOBUFS) {
			x.out.Lost += uint64(len(x.followed))
			clear(x.followed)
			continue
		}
		if err != nil {
			return err
		}
		now := time.Now()
		for _, e := range events {
			if r := x.event(ctx, now, e); r != nil {
				q.Dropped(r)
			}
		}
		x.sweep(now)
		q.Counted(x.out)
		if m != nil {
			if err := x.bound(m, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// silentFamily is the family whose packets can be marked, NFPROTO_INET for both, 0 for
// none. Where legacy iptables has rules it writes a line to the kernel's log for each that
// a marked packet meets (trace_packet of ip_tables.c), if a logger is there.
func silentFamily() (family uint8, notes []string) {
	silent := map[uint8]bool{}
	for n, family := range map[int]uint8{4: unix.NFPROTO_IPV4, 6: unix.NFPROTO_IPV6} {
		logs, err := ruleset.LegacyLogs(n)
		silent[family] = !logs && err == nil
		switch {
		case err != nil:
			notes = append(notes, fmt.Sprintf("packets of IPv%d are not followed: %v", n, err))
		case logs:
			notes = append(notes, fmt.Sprintf("packets of IPv%d are not followed: legacy iptables has rules, and would write a line to the kernel log for each one that such a packet matches", n))
		}
	}
	slices.Sort(notes)
	switch {
	case silent[unix.NFPROTO_IPV4] && silent[unix.NFPROTO_IPV6]:
		return unix.NFPROTO_INET, notes
	case silent[unix.NFPROTO_IPV4]:
		return unix.NFPROTO_IPV4, notes
	case silent[unix.NFPROTO_IPV6]:
		return unix.NFPROTO_IPV6, notes
	}
	return 0, notes
}

func (x *sample) readRules(ctx context.Context) error {
	begun := time.Now()
	before, err := nft.Generation()
	if err != nil {
		return err
	}
	texts, err := readTexts(ctx)
	if err != nil {
		return err
	}
	chains, err := nft.AllChains()
	if err != nil {
		return err
	}
	x.chains, x.texts = chains, texts
	x.reading()
	now := time.Now()
	if x.at, err = nft.Generation(); x.at != before {
		x.at = 0
	}
	x.next = now.Add(max(rereads, resting*now.Sub(begun)))
	return err
}

// fresh says that the rules are those that were read; where they are not, they are read again,
// if that is due.
func (x *sample) fresh(ctx context.Context, now time.Time) bool {
	generation, err := nft.Generation()
	if err == nil && generation != x.at && now.After(x.next) {
		_ = x.readRules(ctx) // a rule without its text is better than none
		generation, err = nft.Generation()
	}
	return err == nil && generation == x.at
}

// event is what one event says; a result where it ends the way of a packet.
func (x *sample) event(ctx context.Context, now time.Time, e nftrace.Event) *trace.Result {
	f := x.followed[e.ID]
	if e.Table == sampleTable {
		p, ok := headed(e)
		if !ok || f != nil && f.sent == (e.Chain == nftrace.Sending) && now.Sub(f.began) < lifetime && e.Type != nftrace.Rule {
			return nil // the end of a chain of ours
		}
		f = &followed{Result: trace.Result{Decided: -1, Steps: []trace.Step{}, Loaded: true, Packet: p}, began: now, sent: e.Chain == nftrace.Sending}
		f.Packet.In, f.Packet.Out, f.Packet.Mark = x.device(e.In), x.device(e.Out), e.Mark
		x.followed[e.ID] = f
		x.out.Followed++
		return nil
	}
	if f == nil {
		return nil
	}
	if p, ok := rewritten(f.Packet, e.Network, e.Transport); ok {
		f.Packet = p
	}
	if e.Out != 0 {
		f.Packet.Out = x.device(e.Out)
	}
	ends := e.Type == nftrace.Rule && e.Verdict == nftrace.Drop || e.Type == nftrace.Policy && e.Policy == nftrace.Drop
	fresh := ends && x.fresh(ctx, now)
	s, is := x.step(e, e.Handle, f.Steps)
	if !is {
		return nil
	}
	if !fresh {
		s.Number = 0
	}
	f.Steps = append(f.Steps, s)
	switch s.Verdict {
	case "drop":
		f.Verdict = trace.Drop
	case "reject":
		f.Verdict = trace.Reject
	default:
		return nil
	}
	f.Decided, f.Way = len(f.Steps)-1, f.way()
	delete(x.followed, e.ID)
	return &f.Result
}

// way is where the packet was going, by the hooks that it came to.
func (f *followed) way() packet.Way {
	for _, s := range f.Steps {
		switch s.Hook {
		case "forward":
			return packet.Through
		case "output":
			return packet.Out
		}
	}
	if f.sent {
		return packet.Out
	}
	return packet.In
}

// sweep forgets the packets that went through.
func (x *sample) sweep(now time.Time) {
	if now.Sub(x.swept) < lifetime {
		return
	}
	x.swept = now
	for id, f := range x.followed {
		if now.Sub(f.began) > lifetime {
			delete(x.followed, id)
		}
	}
}

func (x *sample) device(index int) string {
	if index == 0 {
		return ""
	}
	name, known := x.devices[index]
	if !known {
		if d, err := net.InterfaceByIndex(index); err == nil {
			name = d.Name
		}
		x.devices[index] = name
	}
	return name
}

package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/internal/backend/trace"
	"sluice/internal/base/packet"
	"sluice/internal/system/kernel/link"
	"sluice/internal/system/kernel/nft"
	"sluice/internal/system/kernel/nftrace"
	"sluice/internal/system/kernel/replica"
	"sluice/internal/system/kernel/wire"
)

// patience is how long the second packet may take: it is there at once unless the machine
// stands still, or has so much to do that its queue of packets runs over. Then it is sent
// again, and so is a first one that was lost.
const (
	patience = 20 * time.Second
	again    = 50 * time.Millisecond
	tries    = 10
)

// quiet is how long nothing has to come where there is no second packet, since no
// device is there that could carry it.
const quiet = 300 * time.Millisecond

// Ask sends a packet into a copy of the calling thread's network namespace and says what
// happens to it. The namespace itself is read and left as it is. The error is
// trace.ErrQuestion where the question cannot be asked, fs.ErrPermission where the process may not
// make namespaces. The names of Sluice's own tables are given, first the one with rules.
func Ask(ctx context.Context, q trace.Question, own ...string) (*trace.Result, error) {
	q.Begins(0, "what is loaded")
	texts, err := readTexts(ctx)
	if err != nil {
		return nil, err
	}
	if q.Way != packet.Out && q.Packet.In == "" {
		p := q.Packet
		q.Packet.In, err = link.NewRouting().From(link.Lookup{
			Source: p.Source, Destination: p.Destination, Mark: p.Mark, Protocol: p.Protocol, SourcePort: p.SourcePort, Port: p.Port, User: -1,
		})
		if err != nil {
			return nil, refuse("name the interface with "+q.Name("in"), "a packet from %s, to which there is no route", q.Packet.Source)
		}
	}
	known := ofKnownFlow(q)
	c, err := replica.Make(ctx, func() { q.Begins(1, "what is loaded") })
	if err != nil {
		return nil, fmt.Errorf("copy the network namespace: %w", err)
	}
	r, err := ask(ctx, q, c, texts, own)
	if r != nil && known {
		r.Notes = append(r.Notes, fmt.Sprintf("the packet belongs to a connection that this host tracks, but the question is about a new one: use %s established", q.Name("state")))
	}
	return r, errors.Join(err, c.Close())
}

func ask(ctx context.Context, q trace.Question, c *replica.Copy, texts *listing, own []string) (*trace.Result, error) {
	if err := check(&q, c); err != nil {
		return nil, err
	}
	q.Begins(2, "the packet")
	x := &experiment{question: q, copy: c, texts: texts, own: own}
	if err := x.chooseFlags(); err != nil {
		return nil, err
	}
	err := c.Space.Do(func() error {
		if err := wire.Pin(); err != nil {
			return err
		}
		if err := x.open(); err != nil {
			return err
		}
		defer x.close()
		if err := x.enterFlow(ctx); err != nil {
			return err
		}
		return x.run(ctx)
	})
	if err != nil {
		return nil, err
	}
	return x.result(), nil
}

// experiment is one packet in one copy.
type experiment struct {
	question trace.Question
	copy     *replica.Copy
	texts    *listing
	own      []string // tables
	defect   defect

	port     *wire.Port // the cable of the device that packets arrive by; nil: there is none
	device   replica.Link
	listener *nftrace.Listener
	tap      *wire.Tap
	member   *wire.Member // of the group that the packet is for; nil: of none

	marks         uint16 // second packets that were sent
	events        []nftrace.Event
	left          []wire.Left
	noRoute       bool
	before, after map[string]uint64
	hits          []legacyHit
}

// open opens the sockets; the thread is in the copy.
func (x *experiment) open() (err error) {
	name := x.question.Packet.In
	if x.question.Way == packet.Out || name == "lo" {
		name = ""
	}
	for _, l := range x.copy.Links {
		if l.Up && l.Name != "lo" && l.Kind != "vrf" && (name == "" || l.Name == name) {
			x.device = l
			err = x.copy.Cables.Do(func() error {
				x.port, err = wire.OpenPort(l.Cable())
				return err
			})
			if err != nil {
				return err
			}
			break
		}
	}
	if x.port == nil && name != "" {
		return refuse("use another one", "a packet that arrives by %s, which carries none", name)
	}
	if x.listener, err = nftrace.Listen(); err == nil {
		x.tap, err = wire.OpenTap()
	}
	if group := x.question.Packet.Destination; err == nil && name != "" && group.IsMulticast() {
		x.member, err = wire.Join(group, x.device.Index)
	}
	if err != nil {
		x.close()
	}
	return err
}

func (x *experiment) close() {
	if x.port != nil {
		_ = x.port.Close()
	}
	if x.listener != nil {
		_ = x.listener.Close()
	}
	if x.tap != nil {
		_ = x.tap.Close()
	}
	if x.member != nil {
		_ = x.member.Close()
	}
}

// run sends the packet and gathers what happens to it.
func (x *experiment) run(ctx context.Context) error {
	if err := nft.Run(ctx, ownTable(&x.question, x.looksAtIngress())); err != nil {
		return fmt.Errorf("make the table that marks the packet: %w", err)
	}
	if _, err := x.tap.Take(); err != nil {
		return err
	}
	var saved [2]string
	var err error
	if x.copy.Legacy {
		if saved, err = replica.Legacy(ctx); err != nil {
			return err
		}
	}
	if x.before, err = wire.Counters(); err != nil {
		return err
	}
	if err := x.deliver(ctx, x.question.Packet); err != nil {
		return err
	}
	if x.left, err = x.tap.Take(); err != nil {
		return err
	}
	if x.after, err = wire.Counters(); err != nil {
		return err
	}
	if x.copy.Legacy {
		now, err := replica.Legacy(ctx)
		if err != nil {
			return err
		}
		x.hits = legacyHits(saved, now)
	}
	return nil
}

// looksAtIngress says that a chain stands at the ingress of the device.
func (x *experiment) looksAtIngress() bool {
	return x.question.Way != packet.Out && x.question.Packet.In != "lo" &&
		slices.ContainsFunc(x.copy.Rules.Chains, func(c nft.Chain) bool { return c.Base && hookName(c) == "ingress" })
}

// send sends a packet on the way of the question.
func (x *experiment) send(p packet.Packet) error {
	b := build(p, x.defect)
	if x.question.Way == packet.Out || x.question.Packet.In == "lo" {
		return wire.SendLocal(b, p.Destination, x.question.Packet.Out, int(max(p.Owner, 0)))
	}
	return x.port.Send(senderMAC, frameTo(x.device, p.Destination), b)
}

// deliver sends a packet, until the kernel has taken it, and gathers the events.
func (x *experiment) deliver(ctx context.Context, p packet.Packet) error {
	for range tries {
		x.events = nil
		err := x.send(p)
		if x.noRoute = errors.Is(err, wire.ErrNoRoute); err != nil && !x.noRoute {
			return err
		}
		if err := x.gather(ctx); err != nil || x.taken() {
			return err
		}
	}
	return nil
}

// taken says that the packet was not lost in the queue in front of the first hook, be it
// of the device that it arrives by or of loopback.
func (x *experiment) taken() bool {
	came, looped := false, false
	for _, e := range x.events {
		came = came || e.Chain == "prerouting"+firstChain || e.Chain == "ingress"+firstChain
		looped = looped || e.Chain == "postrouting"+lastChain && x.nameOf(e.Out) == "lo"
	}
	if x.question.Way == packet.Out || x.question.Packet.In == "lo" {
		return came || !looped
	}
	return came
}

// gather reads events until the second packet, which it sends, was seen.
func (x *experiment) gather(ctx context.Context) error {
	if x.port == nil {
		return x.gatherAll(ctx)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		x.marks++
		if err := x.port.Send(senderMAC, x.device.MAC, markPacket(x.marks)); err != nil {
			return err
		}
		for next := time.Now().Add(again); time.Now().Before(next); {
			if err := ctx.Err(); err != nil {
				return err
			}
			events, err := x.listener.Receive(again)
			if err != nil {
				return err
			}
			for _, e := range events {
				if e.Table != tableName || e.To != markChain {
					x.events = append(x.events, e)
				} else if markNumber(e) == x.marks {
					return nil
				}
			}
		}
	}
	return fmt.Errorf("the copy of the network namespace accepted no packet on %s within %v", x.device.Name, patience)
}

// gatherAll reads events until no more come.
func (x *experiment) gatherAll(ctx context.Context) error {
	for {
		events, err := x.listener.Receive(quiet)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || len(events) == 0 {
			return err
		}
		x.events = append(x.events, events...)
	}
}

package engine

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/system/kernel/nflog"
)

// hooksIn are the hooks of netfilter that functions of the kernel call.
var hooksIn = map[string]string{
	"__netif_receive_skb_core": "ingress", "__dev_queue_xmit": "egress",
	"ip_rcv": "prerouting", "ip_list_rcv": "prerouting", "ip_sublist_rcv": "prerouting",
	"ipv6_rcv": "prerouting", "ipv6_list_rcv": "prerouting", "ip6_sublist_rcv": "prerouting",
	"ip_local_deliver": "input", "ip6_input": "input",
	"ip_forward": "forward", "ip6_forward": "forward",
	"__ip_local_out": "output", "__ip6_local_out": "output", "ip6_xmit": "output", "raw_sendmsg": "output", "rawv6_sendmsg": "output",
	"ip_output": "postrouting", "ip_mc_output": "postrouting", "ip6_output": "postrouting",
	"br_handle_frame": "bridge prerouting", "br_pass_frame_up": "bridge input", "__br_forward": "bridge forward",
	"br_forward_finish": "bridge postrouting", "arp_rcv": "arp input", "arp_xmit": "arp output",
}

// hookOf is the hook in which a function was called, "" where that was in none.
func hookOf(function string, callers []string) string {
	way := append([]string{function}, callers...)
	i := slices.IndexFunc(way, func(f string) bool { return strings.HasPrefix(f, "nf_hook_slow") })
	if i < 0 {
		return ""
	}
	for _, f := range way[i+1:] {
		if hook := hooksIn[f]; hook != "" {
			return hook
		}
	}
	return ""
}

// interfaceNames are names by index.
type interfaceNames struct {
	host  *Host
	names map[uint32]string
}

// forget has them asked for again: they are renamed, and come and go.
func (i *interfaceNames) forget() { i.names = nil }

func (i *interfaceNames) of(index uint32) string {
	if index == 0 {
		return ""
	}
	if name := i.names[index]; name != "" {
		return name
	}
	name := "#" + strconv.FormatUint(uint64(index), 10) // it is gone, or of another namespace
	_ = i.host.Netns.Do(func() error {
		if is, err := net.InterfaceByIndex(int(index)); err == nil {
			name = is.Name
		}
		return nil
	})
	if i.names == nil {
		i.names = map[uint32]string{}
	}
	i.names[index] = name
	return name
}

// logWait is how long a dropped packet waits for the log to say which line that was: the
// kernel gathers what is logged for a tenth of a second, and an agent writes it down.
const logWait = 400 * time.Millisecond

// ruleFinder finds the lines of the policy that dropped packets, by what the log says of the
// same. A packet is taken for one that was logged before in the same generation where all but
// the port that it comes from is the same.
type ruleFinder struct {
	logged  chan Logged
	due     <-chan time.Time
	known   map[logKey]Logged
	of      int // the generation
	waiting []waitingDrop
	reads   bool // or follows
	tracer  *dropTracer
	traced  map[logKey]ruledDrop
	stop    func()
}

// waitingDrop is a packet until it is shown.
type waitingDrop struct {
	Dropped
	until time.Time
}

type logKey struct {
	source, destination         netip.Addr
	protocol, flags, icmp, hook string
	port                        uint16
}

func keyOf(l *Logged) logKey {
	return logKey{l.Source, l.Destination, l.Protocol, l.Flags, l.ICMP, l.Hook, l.Port}
}

// ruleFinder reads what is logged, where the policy that runs logs to where it can be read; see
// DropsFrom of grown.
func (h *Host) ruleFinder(ctx context.Context, tracer *dropTracer, grown func() <-chan struct{}) *ruleFinder {
	ctx, stop := context.WithCancel(ctx)
	f := &ruleFinder{logged: make(chan Logged, 64), known: map[logKey]Logged{}, stop: stop, reads: tracer != nil, tracer: tracer, traced: map[logKey]ruledDrop{}}
	if now, err := h.Lines(); err != nil || now.Generation == 0 || !now.Netlink {
		return f
	}
	f.reads = true
	go func() {
		tell := func(l Logged) {
			select {
			case f.logged <- l:
			case <-ctx.Done():
			}
		}
		var err error
		if grown != nil {
			quiet, inner := *h, *h.Host
			inner.Note, quiet.Host = nil, &inner
			_, err = quiet.LogKept(ctx, LogQuestion{Follow: true}, grown, tell)
		} else {
			lines := lines{host: h}
			err = h.logged(ctx, func() {}, func(p nflog.Packet) {
				l := read(p)
				lines.of(&l)
				tell(l)
			})
		}
		if err != nil && ctx.Err() == nil {
			h.warn(wordsOf(err, h.Words) + "\npackets are shown without the line that dropped them")
		}
	}()
	return f
}

func (f *ruleFinder) close() { f.stop() }

// mostLogged bounds what is known.
const mostLogged = 4096

func (f *ruleFinder) learn(l Logged) {
	if l.Generation != f.of || len(f.known) >= mostLogged {
		clear(f.known)
		f.of = l.Generation
	}
	f.known[keyOf(&l)] = l
	for i := range f.waiting {
		f.name(&f.waiting[i].Dropped)
	}
}

// name says which line it was, where that is known.
func (f *ruleFinder) name(d *Dropped) bool {
	l, known := f.known[keyOf(&d.Logged)]
	if known {
		d.Generation, d.ID, d.File, d.Line, d.Rule, d.Prefix, d.Called, d.Sets = l.Generation, l.ID, l.File, l.Line, l.Rule, l.Prefix, l.Called, l.Sets
	}
	if r, traced := f.traced[keyOf(&d.Logged)]; traced && !known {
		d.By, d.File, d.Line, d.Rule = r.By, r.File, r.Line, r.Rule
		return true
	}
	return known
}

// named gives what need not wait, with the line where it is known; what comes behind one that
// waits does so too.
func (f *ruleFinder) named(all []Dropped) []Dropped {
	if !f.reads {
		return all
	}
	for _, d := range all {
		until := d.Time.Add(logWait)
		if f.tracer != nil {
			f.ask(&d)
			until = time.Now().Add(logWait)
		}
		f.waiting = append(f.waiting, waitingDrop{d, until})
	}
	return f.waited()
}

// waited gives what has waited enough.
func (f *ruleFinder) waited() []Dropped {
	f.due = nil
	for i := range f.waiting {
		d := &f.waiting[i]
		left := time.Until(d.until)
		if d.Hook == "" || f.name(&d.Dropped) || left <= 0 {
			continue
		}
		f.due = time.After(left)
		return f.take(i)
	}
	return f.rest()
}

// rest gives all that waits.
func (f *ruleFinder) rest() []Dropped { return f.take(len(f.waiting)) }

// take gives the first of what waits.
func (f *ruleFinder) take(n int) []Dropped {
	out := make([]Dropped, n)
	for i := range out {
		out[i] = f.waiting[i].Dropped
	}
	f.waiting = slices.Delete(f.waiting, 0, n)
	return out
}

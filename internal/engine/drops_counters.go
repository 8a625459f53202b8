package engine

import (
	"context"
	"io"
	"maps"
	"time"

	"sluice/internal/system/kernel/drops"
	"sluice/internal/system/kernel/statistics"
	"sluice/internal/system/kernel/wire"
)

// dropCounters are those of /proc/net/snmp, netstat and snmp6 that count packets which are
// dropped, each once (net/ipv4/proc.c, net/ipv6/proc.c).
var dropCounters = []string{
	"Ip.InHdrErrors", "Ip.InAddrErrors", "Ip.InUnknownProtos", "Ip.InDiscards", "Ip.OutDiscards", "Ip.OutNoRoutes", "Ip.ReasmFails", "Ip.FragFails",
	"IpExt.InNoRoutes", "IpExt.InTruncatedPkts", "TcpExt.IPReversePathFilter",
	"Tcp.InErrs", "TcpExt.ListenDrops", "TcpExt.TCPBacklogDrop", "TcpExt.TCPRcvQDrop", "TcpExt.TCPZeroWindowDrop", "TcpExt.PFMemallocDrop", "TcpExt.TCPMinTTLDrop", "TcpExt.TCPOFODrop",
	"Udp.NoPorts", "Udp.RcvbufErrors", "Udp.SndbufErrors", "Udp.InCsumErrors", "Icmp.InErrors",
	"Ip6InHdrErrors", "Ip6InNoRoutes", "Ip6InAddrErrors", "Ip6InUnknownProtos", "Ip6InTruncatedPkts", "Ip6InDiscards", "Ip6OutDiscards", "Ip6OutNoRoutes", "Ip6ReasmFails",
	"Udp6NoPorts", "Udp6RcvbufErrors", "Udp6InCsumErrors", "Icmp6InErrors",
}

// readDropCounters reads them, those of devices, and that of the processors' queues, which is
// of the whole machine.
func readDropCounters() (map[string]uint64, error) {
	all, err := wire.Counters()
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for _, name := range dropCounters {
		if n, there := all[name]; there {
			out[name] = n
		}
	}
	if queues, err := statistics.Backlogs(); err == nil {
		for _, q := range queues {
			out["softnet_stat dropped"] += uint64(q.Dropped)
		}
	}
	devices, err := wire.DeviceDrops()
	maps.Copy(out, devices)
	return out, err
}

// dropsByCounters is Drops by what the kernel counts anyway.
func (h *Host) dropsByCounters(ctx context.Context, chosen *chooser, seen func(Dropped), counted func(DropCounts)) (*DropCounts, error) {
	begun := time.Now()
	read := func() (out map[string]uint64, err error) {
		err = h.Netns.Do(func() error {
			out, err = readDropCounters()
			return err
		})
		return out, err
	}
	before, err := read()
	if err != nil {
		return nil, err
	}
	rules := ruleTally{}
	told, ended := chosen.tracer.channels()
	count := func() (*DropCounts, error) {
		now, err := read()
		out := &DropCounts{By: ByCounters, Seconds: time.Since(begun).Seconds(), Places: []DropPlace{}}
		for name, n := range now {
			if n > before[name] && chosen.place(name, "") {
				out.Places = append(out.Places, DropPlace{Reason: name, Packets: n - before[name]})
				out.Packets += n - before[name]
			}
		}
		sortPlaces(out.Places)
		chosen.tracer.into(out, rules)
		return out, err
	}
	tick := time.NewTicker(dropEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return count()
		case err := <-ended:
			return nil, err
		case r := <-told:
			if chosen.traced(&r) {
				rules.add(r.rule)
				seen(r.Dropped)
			}
			continue
		case <-tick.C:
		}
		out, err := count()
		if err != nil {
			return nil, err
		}
		counted(*out)
	}
}

// costMeter has the kernel measure the program, in one second of ten: measuring costs too, and
// every BPF program of the machine pays it.
type costMeter struct {
	w        dropSource
	measures io.Closer // nil: not now
	seconds  int
}

const measureEvery = 10

func newCostMeter(w dropSource) *costMeter {
	m := &costMeter{w: w}
	m.turn()
	return m
}

func (m *costMeter) turn() {
	m.close()
	if m.seconds%measureEvery == 0 {
		if c, err := drops.Measure(); err == nil {
			m.measures = c
		}
	}
	m.seconds++
}

func (m *costMeter) close() {
	if m.measures != nil {
		_ = m.measures.Close()
		m.measures = nil
	}
}

// cost is of so many events in so many seconds.
func (m *costMeter) cost(events uint64, seconds float64) *DropCost {
	m.turn()
	each, err := m.w.RunTime()
	if err != nil || each == 0 {
		return nil
	}
	return &DropCost{Event: each, Share: each * float64(events) / 1e9 / seconds}
}

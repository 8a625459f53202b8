package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"time"

	"sluice/internal/importer"
	"sluice/internal/system/hostwatch"
	"sluice/internal/system/kernel/link"
	"sluice/internal/system/kernel/sampling"
	"sluice/internal/system/kernel/statistics"
	"sluice/internal/system/kernel/sysctl"
	"sluice/internal/system/kernel/wire"
)

// Seen is what was read of a host.
type Seen struct {
	Window time.Duration // that passed between both readings
	Expect uint64        // new connections a second that the host is to bear; 0: what it has
	Since  time.Time     // see Options.Since
	Unread []string

	// Total are counters since the namespace was made, by the names of wire.Counters;
	// those of the connection table are "conntrack." with the names of conntrack(8). Moved
	// is what they counted within the window. Neighbours are [neighboursRefused].
	Total, Moved map[string]uint64

	Table      *Table           // nil: nothing is tracked
	Drops      []hostwatch.Drop // packets given up within the window, by function and reason, most first
	Processors []Processor
	Devices    []Device
	Log        Log
	Loggers    []Program
	Listening  []Listener
	Queues     []Queue
	Waiting    []Endpoint // of programs of the host, loopback among them
	Files      Files
	Rules      []*importer.Ruleset // of all tools but Sluice
	Own        bool                // Sluice has rules too
	Servers    []Server            // whom the host asks by itself
	Outgoing   []Connection        // of TCP that the host has opened
	Containers []Container         // where rules rewrite destinations
	Silent     []netip.Addr        // neighbours that do not answer
	Flowtables int                 // of all tables of nftables, those of Sluice too
	Taken      []Taken             // most first
	Throttled  []Throttled         // waited longest first
	TCP        TCP
	holders    map[int]string // names of the programs that hold sockets here
	settings   map[string]string
}

// Processor is what one did within the window.
type Processor struct {
	Number                int
	Softirq, Busy, Stolen float64 // shares, 0 to 1
	Received              uint64  // packets
	Dropped, Squeezed     uint64  // see statistics.Backlog
}

// Device is a network device, and what it lost.
type Device struct {
	link.Link
	Missed  uint64 // packets that found no room in its ring, within the window
	Dropped uint64 // that nothing above it took or had room for, within the window
	Unsent  uint64 // that were to be sent and were not, within the window
	Packets uint64 // received and sent within the window
	Card    link.Card
}

// neighboursRefused is a counter of the machine, see statistics.NeighboursRefused.
const neighboursRefused = "neighbours.table_fulls"

// sampleTime is between two looks at levels within the window.
const sampleTime = 200 * time.Millisecond

// see reads the host, and takes as long as the window.
func see(ctx context.Context, o Options) (*Seen, error) {
	s := &Seen{Expect: o.Expect, Since: o.Since, settings: map[string]string{}, holders: map[int]string{}}
	watch, err := hostwatch.Start(ctx, hostwatch.Options{Every: sampleTime})
	if err != nil {
		return nil, err
	}
	sampler, err := sampling.Start()
	if err != nil {
		s.unread("processor time by function", err)
	}
	began := time.Now()
	before := s.read()
	select {
	case <-ctx.Done():
		watch.Stop()
		if sampler != nil {
			sampler.Stop()
		}
		return nil, ctx.Err()
	case <-time.After(o.Window):
	}
	after := s.read()
	s.Window = time.Since(began)
	result := watch.Stop()
	if sampler != nil {
		s.seeTaken(sampler.Stop())
	}
	s.Unread = append(s.Unread, result.Warnings...)
	s.Drops = result.Spaces[0].Drops
	s.compare(before, after)
	s.seeCards()
	s.seeTable(result.Spaces[0])
	s.seeLog()
	s.seeListening()
	s.seeThrottled(before.throttled, after.throttled)
	s.seeTCP()
	s.seeOpenFiles()
	s.seeRules(ctx, o.Namespace)
	return s, ctx.Err()
}

// reading is what is read at either end of the window.
type reading struct {
	counters   map[string]uint64
	processors []statistics.Time
	backlogs   []statistics.Backlog
	devices    []link.Link
	lost       map[int]link.Lost
	loggers    map[int]Program
	throttled  map[string]statistics.Throttled
}

func (s *Seen) read() (r reading) {
	var err error
	if r.counters, err = wire.Counters(); err != nil {
		s.unread("the counters of IP", err)
	}
	if n, err := statistics.NeighboursRefused(); errors.Is(err, fs.ErrNotExist) {
		s.unread("neighbours", errors.New("a container does not see the counters of their table"))
	} else if err != nil {
		s.unread("neighbours", err)
	} else if r.counters != nil {
		r.counters[neighboursRefused] = n
	}
	if r.processors, err = statistics.Processors(); err != nil {
		s.unread("processors", err)
	}
	if r.backlogs, err = statistics.Backlogs(); err != nil {
		s.unread("packets received by processor", err)
	}
	if r.devices, err = link.List(); err == nil {
		r.lost, err = link.LostPackets()
	}
	if err != nil {
		s.unread("network devices", err)
	}
	if r.throttled, err = statistics.ThrottledGroups(); err != nil {
		s.unread("quotas of processor time", err)
	}
	if r.loggers, err = readLoggers(); err != nil {
		s.unread("programs that write logs", err)
	}
	return r
}

// unread notes once what could not be read.
func (s *Seen) unread(what string, err error) {
	text := fmt.Sprintf("%s: %v", what, err)
	for _, u := range s.Unread {
		if u == text {
			return
		}
	}
	s.Unread = append(s.Unread, text)
}

func (s *Seen) compare(before, after reading) {
	s.Total, s.Moved = after.counters, map[string]uint64{}
	for name, n := range after.counters {
		if was := before.counters[name]; n > was {
			s.Moved[name] = n - was
		}
	}
	for i := range min(len(before.processors), len(after.processors)) {
		b, a := before.processors[i], after.processors[i]
		p := Processor{Number: i}
		if total := a.Total - b.Total; total > 0 {
			p.Softirq, p.Stolen = (a.Softirq-b.Softirq)/total, (a.Stolen-b.Stolen)/total
			p.Busy = 1 - (a.Idle-b.Idle)/total
		}
		s.Processors = append(s.Processors, p)
	}
	for i := range min(len(before.backlogs), len(after.backlogs)) {
		b, a := before.backlogs[i], after.backlogs[i]
		for j := range s.Processors {
			if p := &s.Processors[j]; p.Number == int(a.Processor) {
				p.Received, p.Dropped, p.Squeezed = uint64(a.Packets-b.Packets), uint64(a.Dropped-b.Dropped), uint64(a.Squeezed-b.Squeezed)
			}
		}
	}
	for _, d := range after.devices {
		was, is := before.lost[d.Index]
		if now, there := after.lost[d.Index]; is && there {
			since := func(was, now uint64) uint64 { return now - min(was, now) }
			s.Devices = append(s.Devices, Device{
				Link: d, Missed: since(was.Missed, now.Missed), Dropped: since(was.Dropped, now.Dropped),
				Unsent: since(was.Unsent, now.Unsent), Packets: since(was.Packets, now.Packets),
			})
		}
	}
	s.compareLoggers(before.loggers, after.loggers)
}

// second is a count of the window, each second.
func (s *Seen) second(n uint64) float64 {
	if s.Window <= 0 {
		return 0
	}
	return float64(n) / s.Window.Seconds()
}

// setting reads a sysctl once; "" where the kernel has none.
func (s *Seen) setting(name string) string {
	if v, is := s.settings[name]; is {
		return v
	}
	v, err := sysctl.Read(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.unread("sysctl "+name, err)
	}
	s.settings[name] = v
	return v
}

// number is a setting that is one; 0 where there is none.
func (s *Seen) number(name string) uint64 {
	n, err := strconv.ParseUint(s.setting(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// judgedSeconds is how long a window is at least before shares of a processor's time, which
// is counted in units of 10 ms, are judged.
const judgedSeconds = 0.5

package doctor

import (
	"cmp"
	"net/netip"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/base/sorting"
	"sluice/internal/system/hostwatch"
	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/statistics"
)

// Table is the connection table.
type Table struct {
	Entries, Peak uint64 // now, and the most within the window
	Most          uint64 // net.netfilter.nf_conntrack_max; 0 is no bound
	Buckets       uint64
	EntryBytes    uint64 // of one entry with its extensions
	Measured      bool   // EntryBytes is of the kernel's slab, and no estimate
	// What the entries are, as far as they were listed.
	Listed uint64
	Kinds  []Kind   // most first
	Top    []Source // the sources with most entries, most first
	// Ended are of TCP connections that are over; Idle are of established ones that no
	// packet has passed for an hour or more.
	Ended, Idle uint64
	// Fresh is how many connections began each second, reckoned from the entries that
	// live as long as their time-out says.
	Fresh float64
	// NAT are the ends that rewritten connections share ports to, most first.
	NAT []Shared
}

// Kind is how many entries are of one protocol and, of TCP, in one state.
type Kind struct {
	Protocol uint8
	State    conntrack.TCPState
	Entries  uint64
}

// Source is an address, and how many entries it has.
type Source struct {
	Address netip.Addr
	Entries uint64
}

// Shared is one address that sources are rewritten to, towards one service: each of its
// connections needs another port.
type Shared struct {
	Protocol uint8
	As       netip.Addr     // the source that the service sees
	To       netip.AddrPort // the service
	Entries  uint64
}

const (
	// A bucket is one pointer (struct hlist_nulls_head; nf_ct_alloc_hashtable in
	// net/netfilter/nf_conntrack_core.c).
	bucketBytes = 8
	// extensionBytes are allocated beside each entry that has any (NF_CT_EXT_PREALLOC,
	// net/netfilter/nf_conntrack_extend.c).
	extensionBytes = 128
	// usualEntryBytes is struct nf_conn on kernels 6.x of 64 bits.
	usualEntryBytes = 256
	// mostListed bounds what is listed of a table; a fifth of a second for each 100,000.
	mostListed = 1_000_000
	// mostSources bounds how many sources are told apart.
	mostSources = 1 << 18
	idleSeconds = 3600
	idleLife    = 4 * 3600
	// A look-up in a full table passes eight entries from so many on.
	entriesOfBucket = 4
	mostTop         = 5
)

// memory is what a table takes, in bytes.
func (t *Table) memory(entries, buckets uint64) uint64 {
	return entries*t.EntryBytes + buckets*bucketBytes
}

// entryBytes is what an entry takes with its extensions; measured says that the kernel's slab
// says so. With an error it is as usual.
func entryBytes() (n uint64, measured bool, err error) {
	size, err := statistics.ObjectBytes("nf_conntrack")
	return cmp.Or(size, usualEntryBytes) + extensionBytes, size > 0, err
}

// TableMemory is how many bytes a connection table of so many entries and buckets takes.
func TableMemory(entries, buckets uint64) uint64 {
	t := &Table{}
	t.EntryBytes, _, _ = entryBytes() // as usual where the slab cannot be read
	return t.memory(entries, buckets)
}

// percent is the most that was in use.
func (t *Table) percent() uint64 {
	if t.Most == 0 {
		return 0
	}
	return max(t.Entries, t.Peak) * 100 / t.Most
}

func (s *Seen) seeTable(w hostwatch.Space) {
	now, err := conntrack.ReadTable()
	if err != nil {
		s.unread("the connection table", err)
	}
	if now == nil {
		return
	}
	t := &Table{Entries: now.Entries, Most: now.Most, Buckets: s.number("net.netfilter.nf_conntrack_buckets")}
	s.Table = t
	for _, n := range w.Entries {
		t.Peak = max(t.Peak, uint64(n))
	}
	for _, c := range w.Table {
		s.Moved["conntrack."+c.Name] = c.Total
	}
	s.Total["conntrack.drop"], s.Total["conntrack.insert_failed"], s.Total["conntrack.early_drop"] = now.Dropped, now.Failed, now.Evicted
	if t.EntryBytes, t.Measured, err = entryBytes(); err != nil {
		s.unread("the size of an entry of the connection table", err)
	}
	s.list(t)
}

// shared is a Shared without its count.
type shared struct {
	protocol uint8
	as       netip.Addr
	to       netip.AddrPort
}

// list counts the entries by what they are.
func (s *Seen) list(t *Table) {
	if t.Entries > mostListed {
		return
	}
	seconds := func(name string) uint64 { return s.number("net.netfilter.nf_conntrack_" + name) }
	established := seconds("tcp_timeout_established")
	lives := map[conntrack.TCPState]uint64{7: seconds("tcp_timeout_time_wait"), 8: seconds("tcp_timeout_close")} // TIME_WAIT, CLOSE
	udp := seconds("udp_timeout")
	kinds, sources, nat := map[Kind]uint64{}, map[netip.Addr]uint64{}, map[shared]uint64{}
	err := conntrack.Walk(func(e *conntrack.Entry) error {
		t.Listed++
		k := Kind{Protocol: e.Protocol, State: e.State}
		kinds[k]++
		if _, is := sources[e.Original.Source]; is || len(sources) < mostSources {
			sources[e.Original.Source]++
		}
		switch {
		case e.State.Ended():
			t.Ended++
			if life := lives[e.State]; life > 0 {
				t.Fresh += 1 / float64(life)
			}
		case e.Protocol == packet.TCP && established > 0 && uint64(e.Timeout)+idleSeconds <= established && e.State.String() == "established":
			t.Idle++
		case e.Protocol == packet.UDP && e.Status&conntrack.SeenReply == 0 && udp > 0:
			t.Fresh += 1 / float64(udp)
		}
		if e.Status&conntrack.SourceNAT != 0 {
			to := netip.AddrPortFrom(e.Reply.Source, e.Reply.SourcePort)
			if n := (shared{e.Protocol, e.Reply.Destination, to}); nat[n] > 0 || len(nat) < mostSources {
				nat[n]++
			}
		}
		return nil
	})
	if err != nil {
		s.unread("the entries of the connection table", err)
	}
	for k, n := range kinds {
		k.Entries = n
		t.Kinds = append(t.Kinds, k)
	}
	sorting.By(t.Kinds, func(a, b Kind) int {
		return cmp.Or(cmp.Compare(b.Entries, a.Entries), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.State, b.State))
	})
	for a, n := range sources {
		t.Top = append(t.Top, Source{a, n})
	}
	sorting.By(t.Top, func(a, b Source) int {
		return cmp.Or(cmp.Compare(b.Entries, a.Entries), a.Address.Compare(b.Address))
	})
	t.Top = slices.Clip(t.Top[:min(len(t.Top), mostTop)])
	for k, n := range nat {
		t.NAT = append(t.NAT, Shared{k.protocol, k.as, k.to, n})
	}
	sorting.By(t.NAT, func(a, b Shared) int {
		return cmp.Or(cmp.Compare(b.Entries, a.Entries), a.As.Compare(b.As), a.To.Compare(b.To))
	})
	t.NAT = slices.Clip(t.NAT[:min(len(t.NAT), mostTop)])
}

package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/nearest"
	"sluice/internal/base/packet"
	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/conntrack"
)

// EntryChoice is which entries of the connection table are wanted; the zero value is all.
// Addresses and ports are those of the packet that began the connection.
type EntryChoice struct {
	Source      string `json:"source,omitempty"` // an address, a prefix or a range
	Destination string `json:"destination,omitempty"`
	Protocol    string `json:"protocol,omitempty"` // by name or number
	Port        uint16 `json:"port,omitempty"`     // the destination's
	State       string `json:"state,omitempty"`    // of TCP, as conntrack.TCPState says it
	Family      int    `json:"family,omitempty"`   // 4 or 6
	// NAT: those alone whose source or destination is rewritten.
	NAT bool `json:"nat,omitempty"`
}

// EntryQuestion asks for entries of the connection table, or with By for their counts.
type EntryQuestion struct {
	EntryChoice
	By   []string `json:"by,omitempty"`   // EntryFields that are counted apart
	Most int      `json:"most,omitempty"` // entries or counts that are given; 0 is 1,000
}

// EntryAnswer is what there was. The table is read once, and no more of it held than is given.
type EntryAnswer struct {
	Entries int           `json:"entries"` // of the table
	Matched int           `json:"matched"`
	List    []TableEntry  `json:"list,omitempty"`
	Counts  []EntryCount  `json:"counts,omitempty"` // most entries first
	Others  int           `json:"others,omitempty"` // counts, or entries, that are not given
	Took    time.Duration `json:"took-ns"`
}

// EntryCount is how many entries have these values of the fields that were asked for.
type EntryCount struct {
	Values  []string `json:"values"`
	Entries int      `json:"entries"`
	Packets uint64   `json:"packets"` // 0 unless net.netfilter.nf_conntrack_acct is set
	Bytes   uint64   `json:"bytes"`
}

// TableEntry is one entry of the connection table.
type TableEntry struct {
	Protocol string         `json:"protocol"`
	State    string         `json:"state,omitempty"`
	Source   netip.AddrPort `json:"source"` // port 0 where the protocol has none
	To       netip.AddrPort `json:"destination"`
	// ReplySource and ReplyTo are what answers carry; they differ from the mirror of the
	// first two where NAT rewrites.
	ReplySource netip.AddrPort `json:"reply-source"`
	ReplyTo     netip.AddrPort `json:"reply-destination"`
	Seconds     uint32         `json:"seconds"` // until it ends, if no packet comes
	Mark        uint32         `json:"mark,omitempty"`
	Zone        uint16         `json:"zone,omitempty"`
	Packets     uint64         `json:"packets,omitempty"`
	Bytes       uint64         `json:"bytes,omitempty"`
	Status      []string       `json:"status"` // unanswered, assured, source-nat, destination-nat, offloaded
}

const (
	usualEntries = 1000
	mostEntries  = 100_000
	// mostCounts bounds what is counted apart: a scan has as many sources as it likes.
	mostCounts = 1 << 20
)

// entryField is what entries may be counted by: an address, or a number that has a name.
type entryField struct {
	address func(*conntrack.Entry) netip.Addr
	network bool // the /24 or /48 of the address
	number  func(*conntrack.Entry) uint64
	name    func(uint64) string
}

// entryFields are all of them.
var entryFields = map[string]entryField{
	"source":              {address: sourceOf},
	"source-network":      {address: sourceOf, network: true},
	"destination":         {address: destinationOf},
	"destination-network": {address: destinationOf, network: true},
	"reply-destination":   {address: func(e *conntrack.Entry) netip.Addr { return e.Reply.Destination }},
	"protocol":            {number: func(e *conntrack.Entry) uint64 { return uint64(e.Protocol) }, name: func(n uint64) string { return packet.ProtocolName(uint8(n)) }}, //nolint:gosec // it was one
	"port":                {number: func(e *conntrack.Entry) uint64 { return uint64(e.Original.DestinationPort) }, name: decimal},
	"state":               {number: stateOf, name: func(n uint64) string { return entryStates[n] }},
	"family":              {number: func(e *conntrack.Entry) uint64 { return uint64(e.Family) }, name: decimal}, //nolint:gosec // 4 or 6
	"mark":                {number: func(e *conntrack.Entry) uint64 { return uint64(e.Mark) }, name: func(n uint64) string { return fmt.Sprintf("%#x", n) }},
	"zone":                {number: func(e *conntrack.Entry) uint64 { return uint64(e.Zone) }, name: decimal},
	"nat":                 {number: natOf, name: func(n uint64) string { return natNames[n] }},
}

func sourceOf(e *conntrack.Entry) netip.Addr      { return e.Original.Source }
func destinationOf(e *conntrack.Entry) netip.Addr { return e.Original.Destination }
func decimal(n uint64) string                     { return strconv.FormatUint(n, 10) }

// appendKey writes the value of an entry, in the order in which values are listed.
func (f *entryField) appendKey(key []byte, e *conntrack.Entry) []byte {
	if f.address == nil {
		return binary.BigEndian.AppendUint64(key, f.number(e))
	}
	a := f.address(e)
	if f.network {
		if p, err := a.Prefix(networkBits(a)); err == nil {
			a = p.Addr()
		}
	}
	b := a.AsSlice()
	return append(append(key, byte(len(b))), b...) //nolint:gosec // 4 or 16
}

// text reads such a value from the beginning of a key.
func (f *entryField) text(key string) (value, rest string) {
	if f.address == nil {
		return f.name(binary.BigEndian.Uint64([]byte(key[:8]))), key[8:]
	}
	n := 1 + int(key[0])
	a, _ := netip.AddrFromSlice([]byte(key[1:n]))
	value = a.String()
	if f.network {
		value = netip.PrefixFrom(a, networkBits(a)).String()
	}
	return value, key[n:]
}

func networkBits(a netip.Addr) int {
	if a.Is4() {
		return 24
	}
	return 48
}

// entryStates are the words of EntryChoice.State.
var entryStates = func() (names []string) {
	for s := conntrack.TCPState(0); s.String() != "unknown"; s++ {
		names = append(names, s.String())
	}
	return append(names, "unknown", "answered", "unanswered")
}()

// stateOf is the place of an entry's state among entryStates.
func stateOf(e *conntrack.Entry) uint64 {
	last := uint64(len(entryStates) - 1)
	switch {
	case e.Protocol == packet.TCP:
		return min(uint64(e.State), last-2)
	case e.Status&conntrack.SeenReply == 0:
		return last
	}
	return last - 1
}

var natNames = []string{"", "source-nat", "destination-nat", "source-nat destination-nat"}

func natOf(e *conntrack.Entry) (n uint64) {
	if e.Status&conntrack.SourceNAT != 0 {
		n |= 1
	}
	if e.Status&conntrack.DestNAT != 0 {
		n |= 2
	}
	return n
}

// EntryFields are the names of what entries may be counted by, sorted.
func EntryFields() (names []string) {
	for name := range entryFields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// matcher reads a choice.
func (c EntryChoice) matcher() (func(*conntrack.Entry) bool, error) {
	var all []func(*conntrack.Entry) bool
	for _, side := range []struct {
		text string
		of   func(*conntrack.Entry) netip.Addr
	}{
		{c.Source, func(e *conntrack.Entry) netip.Addr { return e.Original.Source }},
		{c.Destination, func(e *conntrack.Entry) netip.Addr { return e.Original.Destination }},
	} {
		if side.text == "" {
			continue
		}
		r, err := addrset.ParseRange(side.text)
		if err != nil {
			return nil, err
		}
		all = append(all, func(e *conntrack.Entry) bool { return r.Contains(side.of(e)) })
	}
	if c.Protocol != "" {
		n, known := packet.ProtocolNumber(c.Protocol)
		if !known {
			return nil, fmt.Errorf("%q is not a protocol: use a name such as tcp, udp or icmp, or a number", c.Protocol)
		}
		all = append(all, func(e *conntrack.Entry) bool { return e.Protocol == n })
	}
	if c.State != "" {
		n := slices.Index(entryStates, c.State)
		if n < 0 {
			return nil, unknownWord("connection state", c.State, entryStates)
		}
		all = append(all, func(e *conntrack.Entry) bool { return stateOf(e) == uint64(n) })
	}
	if c.Family != 0 && c.Family != 4 && c.Family != 6 {
		return nil, fmt.Errorf("%d is not an address family: use 4 or 6", c.Family)
	}
	if c.Family != 0 {
		all = append(all, func(e *conntrack.Entry) bool { return e.Family == c.Family })
	}
	if c.Port != 0 {
		all = append(all, func(e *conntrack.Entry) bool { return e.Original.DestinationPort == c.Port })
	}
	if c.NAT {
		all = append(all, func(e *conntrack.Entry) bool { return natOf(e) != 0 })
	}
	return func(e *conntrack.Entry) bool {
		for _, f := range all {
			if !f(e) {
				return false
			}
		}
		return true
	}, nil
}

func unknownWord(what, word string, known []string) error {
	if near := nearest.Of(word, known); near != "" {
		return fmt.Errorf("%q is not a %s, did you mean %q?", word, what, near)
	}
	return fmt.Errorf("%q is not a %s: use one of %s", word, what, strings.Join(known, ", "))
}

// Entries reads the connection table.
func (h *Host) Entries(ctx context.Context, q EntryQuestion) (*EntryAnswer, error) {
	c, err := h.countEntries(ctx, q)
	if err != nil {
		return nil, err
	}
	return &c.out, nil
}

func (h *Host) countEntries(ctx context.Context, q EntryQuestion) (*counting, error) {
	matches, err := q.matcher()
	if err != nil {
		return nil, err
	}
	if q.Most < 0 || q.Most > mostEntries {
		return nil, fmt.Errorf("%d entries cannot be listed: at most %d", q.Most, mostEntries)
	}
	q.Most = cmp.Or(q.Most, usualEntries)
	c := counting{most: q.Most}
	for i, name := range q.By {
		if slices.Contains(q.By[:i], name) { // each is part of every key that is held
			return nil, fmt.Errorf("field %q is given twice", name)
		}
		f, known := entryFields[name]
		if !known {
			return nil, unknownWord("field of an entry", name, EntryFields())
		}
		c.by = append(c.by, f)
	}
	if err := h.needTable(); err != nil {
		return nil, err
	}
	began := time.Now()
	err = h.Netns.Do(func() error {
		return conntrack.Walk(func(e *conntrack.Entry) error {
			if c.out.Entries++; c.out.Entries%1024 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if matches(e) {
				c.out.Matched++
				c.add(e)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	c.finish()
	c.out.Took = time.Since(began)
	return &c, nil
}

// counting is an answer that is being made.
type counting struct {
	by      []entryField
	most    int
	places  map[string]int // in tallies, by the keys of the fields
	tallies []tally
	key     []byte
	rest    int // entries that found no place of their own
	out     EntryAnswer
}

type tally struct {
	entries        int
	packets, bytes uint64
}

func (c *counting) add(e *conntrack.Entry) {
	if len(c.by) == 0 {
		if len(c.out.List) < c.most {
			c.out.List = append(c.out.List, tableEntry(e))
		} else {
			c.out.Others++
		}
		return
	}
	c.key = c.key[:0]
	for i := range c.by {
		c.key = c.by[i].appendKey(c.key, e)
	}
	at, is := c.places[string(c.key)]
	if !is {
		if at = len(c.tallies); at >= mostCounts {
			c.rest++
			return
		}
		if c.places == nil {
			c.places = map[string]int{}
		}
		c.places[string(c.key)] = at
		c.tallies = append(c.tallies, tally{})
	}
	n := &c.tallies[at]
	n.entries++
	n.packets += e.Packets
	n.bytes += e.Bytes
}

func (c *counting) finish() {
	if len(c.by) == 0 {
		return
	}
	type counted struct {
		key string
		tally
	}
	var top []counted
	cut := func() {
		sorting.By(top, func(a, b counted) int {
			return cmp.Or(cmp.Compare(b.entries, a.entries), cmp.Compare(a.key, b.key))
		})
		top = top[:min(len(top), c.most)]
	}
	for key, at := range c.places {
		if top = append(top, counted{key, c.tallies[at]}); len(top) >= 2*c.most+1024 {
			cut()
		}
	}
	cut()
	c.out.Others = len(c.places) - len(top) + c.rest
	c.out.Counts = make([]EntryCount, 0, len(top))
	for _, t := range top {
		n := EntryCount{Entries: t.entries, Packets: t.packets, Bytes: t.bytes}
		rest := t.key
		for i := range c.by {
			var value string
			value, rest = c.by[i].text(rest)
			n.Values = append(n.Values, value)
		}
		c.out.Counts = append(c.out.Counts, n)
	}
}

func tableEntry(e *conntrack.Entry) TableEntry {
	out := TableEntry{
		Protocol: packet.ProtocolName(e.Protocol), Seconds: e.Timeout, Mark: e.Mark, Zone: e.Zone, Packets: e.Packets, Bytes: e.Bytes, Status: []string{},
		Source:      netip.AddrPortFrom(e.Original.Source, e.Original.SourcePort),
		To:          netip.AddrPortFrom(e.Original.Destination, e.Original.DestinationPort),
		ReplySource: netip.AddrPortFrom(e.Reply.Source, e.Reply.SourcePort),
		ReplyTo:     netip.AddrPortFrom(e.Reply.Destination, e.Reply.DestinationPort),
	}
	if e.Protocol == packet.TCP {
		out.State = e.State.String()
	}
	for _, s := range []struct {
		is   bool
		word string
	}{
		{e.Status&conntrack.SeenReply == 0, "unanswered"},
		{e.Status&conntrack.Assured != 0, "assured"},
		{e.Status&conntrack.SourceNAT != 0, "source-nat"},
		{e.Status&conntrack.DestNAT != 0, "destination-nat"},
		{e.Status&conntrack.Offloaded != 0, "offloaded"},
	} {
		if s.is {
			out.Status = append(out.Status, s.word)
		}
	}
	return out
}

// errNoTable says that no table can be read.
var errNoTable = errors.New("nothing tracks connections here: there is no connection table")

func (h *Host) needTable() error {
	return h.Netns.Do(func() error {
		t, err := conntrack.ReadTable()
		if err == nil && t == nil {
			err = errNoTable
		}
		return err
	})
}

// DeletedEntries is what came of deleting.
type DeletedEntries struct {
	Deleted int `json:"deleted"`
}

// DeleteEntries deletes entries of the connection table: the next packet of each connection is
// judged as one that begins it.
func (h *Host) DeleteEntries(_ context.Context, c EntryChoice) (*DeletedEntries, error) {
	matches, err := c.matcher()
	if err != nil {
		return nil, err
	}
	if err := h.needTable(); err != nil {
		return nil, err
	}
	out := &DeletedEntries{}
	err = h.Netns.Do(func() (err error) {
		out.Deleted, err = conntrack.Delete(func(e conntrack.Entry) bool { return matches(&e) })
		return err
	})
	return out, err
}

// Package conntrack lists, counts, follows and deletes the entries of the connection
// tracking table of the network namespace of the calling thread, over
// ctnetlink. Callers: engine, apply, to cut flows that a policy refuses, and doctor.
package conntrack

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/sysctl"
)

// Tuple is one direction of a connection.
type Tuple struct {
	Source, Destination         netip.Addr
	SourcePort, DestinationPort uint16 // zero for protocols without ports
}

// Turned is the tuple the other way round: of an answer, where nothing is rewritten.
func (t Tuple) Turned() Tuple {
	return Tuple{Source: t.Destination, Destination: t.Source, SourcePort: t.DestinationPort, DestinationPort: t.SourcePort}
}

// Entry is one tracked connection.
type Entry struct {
	Family   int // 4 or 6
	Protocol uint8
	Original Tuple
	Reply    Tuple // what an answer looks like; not the mirror of Original behind NAT
	Mark     uint32
	Zone     uint16 // of connection tracking; 0 is the usual one
	Timeout  uint32 // seconds that it lives without a packet; 0 of one that a flowtable has
	Packets  uint64 // both directions; zero unless net.netfilter.nf_conntrack_acct is set
	Bytes    uint64
	State    TCPState // of TCP alone
	Status   Status
	Since    time.Time // when it was made; zero unless net.netfilter.nf_conntrack_timestamp is set

	original []byte // Original as the kernel wrote it
	id       uint32
}

// TCPState is where the kernel takes a connection to be, enum tcp_conntrack of
// include/uapi/linux/netfilter/nf_conntrack_tcp.h.
type TCPState uint8

// Ended says that both sides have closed it or one has reset it: the entry waits for late
// packets.
func (s TCPState) Ended() bool { return s >= lastACK && s <= closed }

const (
	lastACK = 6
	closed  = 8 // 7 is TIME_WAIT
)

var tcpStates = [...]string{"none", "syn-sent", "syn-received", "established", "fin-wait", "close-wait", "last-ack", "time-wait", "close", "syn-sent2"}

func (s TCPState) String() string {
	if int(s) < len(tcpStates) {
		return tcpStates[s]
	}
	return "unknown"
}

// Status is the bits of enum ip_conntrack_status of
// include/uapi/linux/netfilter/nf_conntrack_common.h.
type Status uint32

// Bits of a status.
const (
	SeenReply Status = 1 << 1 // packets went both ways
	Assured   Status = 1 << 2 // not thrown out early where the table is full
	SourceNAT Status = 1 << 4
	DestNAT   Status = 1 << 5
	Offloaded Status = 1 << 14 // a flowtable has it
)

var families = []uint8{unix.AF_INET, unix.AF_INET6}

// A table that changes while it is listed is asked again, so often at most;
// then what came is given, since a busy table never holds still.
const dumpTries = 3

// List gives the entries of both families. On a busy host some may be missing
// that came or went meanwhile.
func List() ([]Entry, error) {
	var out []Entry
	for _, family := range families {
		before := len(out)
		for range dumpTries {
			out = out[:before]
			torn, err := walk(family, func(e *Entry) error {
				e.original = nil // is of the part that is read
				out = append(out, *e)
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("list the connection table: %w", err)
			}
			if !torn {
				break
			}
		}
	}
	return out, nil
}

// Count is how many entries the table holds; zero where connection tracking is
// not loaded.
func Count() (uint64, error) {
	text, err := sysctl.Read("net.netfilter.nf_conntrack_count")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read sysctl net.netfilter.nf_conntrack_count: %w", err)
	}
	return n, nil
}

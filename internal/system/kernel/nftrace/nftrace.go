// Package nftrace reads what nf_tables says of packets that a rule has marked
// with "meta nftrace set 1": one event for each rule that such a packet
// fulfilled, and for the end of each base chain. It listens in the network
// namespace of the calling thread (NFNLGRP_NFTRACE), and marks packets there. The live trace
// (nftables/live) calls it.
//
// The events of "nft monitor trace -j" have no form that all versions agree on,
// and the program's output comes some time after the packet; the socket has an
// event queued when the system call that sent the packet returns.
package nftrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const genericHeader = 4 // struct nfgenmsg

// Type is what an event is about.
type Type uint32

// Types, enum nft_trace_types.
const (
	Policy Type = 1 // a base chain came to its end
	Return Type = 2 // a chain came to its end, or a rule returned
	Rule   Type = 3 // a rule was fulfilled
)

// Codes of verdicts, NF_* of netfilter.h and NFT_* of nf_tables.h.
const (
	Drop     int32 = 0
	Accept   int32 = 1
	Stolen   int32 = 2
	Queue    int32 = 3
	Continue int32 = -1
	Break    int32 = -2
	Jump     int32 = -3
	Goto     int32 = -4
	Returned int32 = -5
)

// Event is one thing that happened to a packet.
type Event struct {
	ID           uint32 // of the packet, as long as it is the same one to the kernel
	Family       uint8  // NFPROTO_* of the table
	Protocol     uint8  // NFPROTO_* of the packet
	Table, Chain string
	Handle       uint64 // of Rule: the rule's
	Type         Type
	Verdict      int32
	To           string // the chain that Jump and Goto go to
	Policy       int32  // of Policy: the chain's
	In, Out      int    // indexes of devices, 0 is none
	Mark         uint32
	// Network and Transport begin with the packet's headers; they are nil but in the
	// first event of a base chain.
	Network, Transport []byte
}

// Listener receives events.
type Listener struct{ conn *netlink.Conn }

// Listen begins to listen.
func Listen() (*Listener, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	_ = conn.SetReadBuffer(4 << 20) // a packet that walks thousands of rules has as many events
	if err := conn.JoinGroup(unix.NFNLGRP_NFTRACE); err != nil {
		return nil, errors.Join(fmt.Errorf("listen to the trace of nf_tables: %w", err), conn.Close())
	}
	return &Listener{conn}, nil
}

// Close ends it.
func (l *Listener) Close() error { return l.conn.Close() }

// Receive gives the next events, or none when so much time has passed.
func (l *Listener) Receive(patience time.Duration) ([]Event, error) {
	if err := l.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	messages, err := l.conn.Receive()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the trace of nf_tables: %w", err)
	}
	var events []Event
	for _, m := range messages {
		if m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE {
			continue
		}
		e, err := Parse(m.Data)
		if err != nil {
			return nil, fmt.Errorf("read the trace of nf_tables: %w", err)
		}
		events = append(events, e)
	}
	return events, nil
}

// Parse reads one message behind its netlink header.
func Parse(data []byte) (Event, error) {
	if len(data) < genericHeader {
		return Event{}, fmt.Errorf("a message of %d bytes is too short", len(data))
	}
	e := Event{Family: data[0]}
	d, err := netlink.NewAttributeDecoder(data[genericHeader:])
	if err != nil {
		return Event{}, err
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_TRACE_TABLE:
			e.Table = d.String()
		case unix.NFTA_TRACE_CHAIN:
			e.Chain = d.String()
		case unix.NFTA_TRACE_RULE_HANDLE:
			e.Handle = d.Uint64()
		case unix.NFTA_TRACE_TYPE:
			e.Type = Type(d.Uint32())
		case unix.NFTA_TRACE_VERDICT:
			d.Nested(e.verdict)
		case unix.NFTA_TRACE_ID:
			e.ID = d.Uint32()
		case unix.NFTA_TRACE_NETWORK_HEADER:
			e.Network = d.Bytes()
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			e.Transport = d.Bytes()
		case unix.NFTA_TRACE_IIF:
			e.In = int(d.Uint32())
		case unix.NFTA_TRACE_OIF:
			e.Out = int(d.Uint32())
		case unix.NFTA_TRACE_MARK:
			e.Mark = d.Uint32()
		case unix.NFTA_TRACE_NFPROTO:
			e.Protocol = uint8(d.Uint32()) //nolint:gosec // NFPROTO_* are small
		case unix.NFTA_TRACE_POLICY:
			e.Policy = int32(d.Uint32()) //nolint:gosec // the kernel's own sign
		}
	}
	return e, d.Err()
}

func (e *Event) verdict(d *netlink.AttributeDecoder) error {
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_VERDICT_CODE:
			e.Verdict = int32(d.Uint32()) //nolint:gosec // the kernel's own sign
		case unix.NFTA_VERDICT_CHAIN:
			e.To = d.String()
		}
	}
	return nil
}

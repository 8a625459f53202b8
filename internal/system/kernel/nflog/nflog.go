// Package nflog reads the packets that rules send to a netlink log group (net/netfilter/
// nfnetlink_log.c). Callers: the engine, for sluice log.
package nflog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Packet is one that was logged.
type Packet struct {
	Time    time.Time // by the kernel where it says so, else when it was read
	Prefix  string
	Hook    uint8  // NF_INET_LOCAL_IN and so on
	Family  uint16 // ETH_P_IP, ETH_P_IPV6, in the host's order
	In, Out string // interfaces; "" is none
	Payload []byte // of the network layer on, as much of it as was asked for
	// Lost is how many were logged since the one before and could not be read in time.
	Lost uint32
}

// ErrTaken says that somebody else reads the group.
var ErrTaken = errors.New("somebody else reads the log group")

// ErrNone says that there is no netlink log.
var ErrNone = errors.New("this kernel has no netlink log (nfnetlink_log)")

// Kinds of messages, and attributes (uapi/linux/netfilter/nfnetlink_log.h).
const (
	messagePacket = unix.NFNL_SUBSYS_ULOG << 8
	messageConfig = unix.NFNL_SUBSYS_ULOG<<8 | 1

	configCommand = 1
	configMode    = 2
	configTime    = 4
	configFlags   = 6

	commandBind   = 1
	commandUnbind = 2
	copyPacket    = 2
	flagSequence  = 1

	attributeHeader   = 1
	attributeTime     = 3
	attributeIn       = 4
	attributeOut      = 5
	attributePayload  = 9
	attributePrefix   = 10
	attributeSequence = 12
)

const (
	// bufferBytes is what the kernel keeps of what is not read yet.
	bufferBytes = 4 << 20
	// flushTime is for how many hundredths of a second the kernel gathers packets.
	flushTime = 10
	endTime   = 5 * time.Second // for the last answer
	header    = 4               // struct nfgenmsg
)

// Read calls seen for each packet of a group, in the network namespace of the calling thread,
// until the context ends, or with an error. Of a packet so many bytes are copied.
func Read(ctx context.Context, group uint16, length uint32, listening func(), seen func(Packet)) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("listen for logged packets: %w", err)
	}
	defer conn.Close()
	_ = conn.SetReadBuffer(bufferBytes) // as much as there may be
	if err := bind(conn, group, length); err != nil {
		if errors.Is(err, unix.EINVAL) { // nfnetlink_rcv_msg knows no such subsystem
			return fmt.Errorf("%w: %w", ErrNone, err)
		}
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EPERM) { // nfulnl_recv_config asks whose it is first
			err = fmt.Errorf("%w, or this is not root: %w", ErrTaken, err)
		}
		return fmt.Errorf("listen for logged packets of group %d: %w", group, err)
	}
	// What the kernel has gathered comes before the answer to this.
	defer context.AfterFunc(ctx, func() {
		_ = conn.SetReadDeadline(time.Now().Add(endTime))
		_, _ = conn.Send(message(group, netlink.Attribute{Type: configCommand, Data: []byte{commandUnbind}}))
	})()
	listening()
	var next uint32
	names := interfaces{}
	for begun, ended := false, false; !ended; {
		messages, err := conn.Receive()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			ended = ctx.Err() != nil
		case errors.Is(err, unix.ENOBUFS): // the numbers tell how many are lost
		case err != nil:
			return fmt.Errorf("read logged packets: %w", err)
		}
		for _, m := range messages {
			if m.Header.Type == netlink.Error {
				ended = true
			}
			if m.Header.Type != messagePacket {
				continue
			}
			p, number, err := parse(m.Data, names.name)
			if err != nil {
				return err
			}
			if begun {
				p.Lost = number - next
			}
			begun, next = true, number+1
			seen(p)
		}
	}
	return nil
}

func bind(conn *netlink.Conn, group uint16, length uint32) error {
	mode := binary.BigEndian.AppendUint32(nil, length)
	mode = append(mode, copyPacket, 0)
	for _, a := range [][]netlink.Attribute{
		{{Type: configCommand, Data: []byte{commandBind}}},
		{
			{Type: configMode, Data: mode},
			{Type: configTime, Data: binary.BigEndian.AppendUint32(nil, flushTime)},
			{Type: configFlags, Data: binary.BigEndian.AppendUint16(nil, flagSequence)},
		},
	} {
		if _, err := conn.Execute(message(group, a...)); err != nil {
			return err
		}
	}
	return nil
}

// message is one about the configuration of a group.
func message(group uint16, attributes ...netlink.Attribute) netlink.Message {
	text, _ := netlink.MarshalAttributes(attributes) // which are short
	to := binary.BigEndian.AppendUint16([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0}, group)
	return netlink.Message{Header: netlink.Header{Type: messageConfig, Flags: netlink.Request | netlink.Acknowledge}, Data: append(to, text...)}
}

// parse reads one message; number counts those of the group.
func parse(message []byte, name func(index uint32) string) (p Packet, number uint32, err error) {
	d, err := netlink.NewAttributeDecoder(message[min(header, len(message)):])
	if err != nil {
		return p, 0, fmt.Errorf("read a logged packet: %w", err)
	}
	d.ByteOrder = binary.BigEndian
	p.Time = time.Now()
	for d.Next() {
		switch b := d.Bytes(); {
		case d.Type() == attributeHeader && len(b) >= 3:
			p.Family, p.Hook = binary.BigEndian.Uint16(b), b[2]
		case d.Type() == attributeTime && len(b) == 16:
			if seconds := binary.BigEndian.Uint64(b); seconds < 1<<40 {
				p.Time = time.Unix(int64(seconds), int64(binary.BigEndian.Uint64(b[8:])%1e6)*1000) //nolint:gosec // bounded
			}
		case d.Type() == attributeIn && len(b) == 4:
			p.In = name(binary.BigEndian.Uint32(b))
		case d.Type() == attributeOut && len(b) == 4:
			p.Out = name(binary.BigEndian.Uint32(b))
		case d.Type() == attributePayload:
			p.Payload = bytes.Clone(b)
		case d.Type() == attributePrefix:
			p.Prefix = string(bytes.TrimRight(b, "\x00"))
		case d.Type() == attributeSequence && len(b) == 4:
			number = binary.BigEndian.Uint32(b)
		}
	}
	if err := d.Err(); err != nil {
		return p, 0, fmt.Errorf("read a logged packet: %w", err)
	}
	return p, number, nil
}

// interfaces are names by index, of those that were seen; one that is renamed keeps the first.
type interfaces map[uint32]string

func (i interfaces) name(index uint32) string {
	if name, known := i[index]; known {
		return name
	}
	name := fmt.Sprint("#", index) // it is gone
	if is, err := net.InterfaceByIndex(int(index)); err == nil {
		name = is.Name
	}
	i[index] = name
	return name
}

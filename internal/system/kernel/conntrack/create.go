package conntrack

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// From include/uapi/linux/netfilter/nfnetlink_conntrack.h.
const (
	messageNew, messageGet = 0, 1 // IPCTNL_MSG_CT_*

	ctaOriginal, ctaReply, ctaStatus, ctaProtoInfo, ctaTimeout, ctaMark, ctaMaster = 1, 2, 3, 4, 7, 8, 14

	tupleIP, tupleProto                     = 1, 2
	ipSource4, ipDestination4               = 1, 2
	ipSource6, ipDestination6               = 3, 4
	protoNumber, protoSource, protoDest     = 1, 2, 3
	protoICMPID, protoICMP6                 = 4, 7
	infoTCP, tcpState, tcpFlags, tcpFlagsRe = 1, 1, 4, 5

	statusSeenReply, statusAssured, statusConfirmed = 2, 4, 8 // IPS_*; an entry of the table is confirmed
	tcpEstablished, tcpCloseWait                    = 3, 5    // TCP_CONNTRACK_*
	tcpLiberal                                      = 0x08    // IP_CT_TCP_FLAG_BE_LIBERAL: sequence numbers are not looked at
)

// Flow is an entry that is to be made.
type Flow struct {
	Protocol uint8
	Original Tuple
	Reply    Tuple // the zero value is the mirror of Original
	// ICMPType and ICMPID are of ICMP's requests, whose tuple has no ports.
	ICMPType uint8
	ICMPID   uint16
	Mark     uint32
	// Answered says that packets went both ways: its packets are established.
	Answered bool
	// Closing says of TCP that one side has sent all that it has to.
	Closing bool
	// Seconds is how long the entry lives without a packet; 0: flowSeconds.
	Seconds uint32
	// Master, where it is given, is the flow that this one belongs to: packets of a flow
	// that is not answered are then related. It has to be in the table.
	Master *Flow
}

// The time that an entry lives.
const flowSeconds = 300

// Create makes an entry, or gives the one that is there the state of the flow.
func Create(f Flow) error { return CreateAll([]Flow{f}) }

// CreateAll is Create of many.
func CreateAll(flows []Flow) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	defer conn.Close()
	for group := range slices.Chunk(flows, atOnce) {
		if _, err := send(conn, group, 0); err != nil {
			return fmt.Errorf("make entries in the connection table: %w", err)
		}
		if _, err := conn.Receive(); err != nil {
			return fmt.Errorf("make an entry in the connection table: %w", err)
		}
	}
	return nil
}

// send asks for a group of entries, and gives the number of the last request, which is
// acknowledged; of the others the kernel answers mistakes alone.
func send(conn *netlink.Conn, group []Flow, flags netlink.HeaderFlags) (last uint32, err error) {
	messages := make([]netlink.Message, len(group))
	for i, f := range group {
		if messages[i], err = f.message(); err != nil {
			return 0, err
		}
		messages[i].Header.Flags |= flags
	}
	messages[len(messages)-1].Header.Flags |= netlink.Acknowledge
	sent, err := conn.SendMessages(messages)
	if err != nil {
		return 0, err
	}
	return sent[len(sent)-1].Header.Sequence, nil
}

// atOnce is how many entries one message to the kernel makes.
const atOnce = 64

func (f Flow) message() (netlink.Message, error) {
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	e.Nested(ctaOriginal, f.Original.encode(f, false))
	e.Nested(ctaReply, f.reply().encode(f, true))
	e.Uint32(ctaTimeout, cmp.Or(f.Seconds, flowSeconds))
	if f.Mark != 0 {
		e.Uint32(ctaMark, f.Mark)
	}
	if f.Answered {
		e.Uint32(ctaStatus, statusSeenReply|statusAssured|statusConfirmed)
	}
	if f.Master != nil {
		e.Nested(ctaMaster, f.Master.Original.encode(*f.Master, false))
	}
	if f.Protocol == unix.IPPROTO_TCP {
		e.Nested(ctaProtoInfo, func(e *netlink.AttributeEncoder) error {
			e.Nested(infoTCP, func(e *netlink.AttributeEncoder) error {
				switch {
				case f.Closing:
					e.Uint8(tcpState, tcpCloseWait)
				case f.Answered:
					e.Uint8(tcpState, tcpEstablished)
				}
				e.Bytes(tcpFlags, []byte{tcpLiberal, tcpLiberal})
				e.Bytes(tcpFlagsRe, []byte{tcpLiberal, tcpLiberal})
				return nil
			})
			return nil
		})
	}
	data, err := e.Encode()
	return netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_CTNETLINK<<8 | messageNew, Flags: netlink.Request | netlink.Create},
		Data:   append([]byte{f.family(), unix.NFNETLINK_V0, 0, 0}, data...),
	}, err
}

// Known says whether the table has the flow of a packet that has this tuple, in either
// direction.
func Known(f Flow) (bool, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return false, fmt.Errorf("open a netlink socket: %w", err)
	}
	defer conn.Close()
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	e.Nested(ctaOriginal, f.Original.encode(f, false))
	data, err := e.Encode()
	if err != nil {
		return false, err
	}
	_, err = conn.Send(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_CTNETLINK<<8 | messageGet, Flags: netlink.Request},
		Data:   append([]byte{f.family(), unix.NFNETLINK_V0, 0, 0}, data...),
	})
	if err == nil {
		// An entry is flagged as one of many (ctnetlink_fill_info in
		// net/netfilter/nf_conntrack_netlink.c), for whose end the library would wait.
		var number unix.Errno
		if _, number, err = receive(conn); number != 0 {
			err = number
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look into the connection table: %w", err)
	}
	return true, nil
}

// receive reads the kernel's next answer: to which request it is and, where it is not what
// was asked for, which error, 0 being an acknowledgement.
func receive(conn *netlink.Conn) (sequence uint32, number unix.Errno, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	buffer := make([]byte, 1<<14)
	var n int
	var failure error
	err = raw.Read(func(fd uintptr) bool {
		n, _, failure = unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
		return !errors.Is(failure, unix.EAGAIN)
	})
	if err = errors.Join(err, failure); err != nil {
		return 0, 0, err
	}
	if n < unix.SizeofNlMsghdr+4 {
		return 0, 0, fmt.Errorf("the kernel gives an answer of %d bytes", n)
	}
	if binary.NativeEndian.Uint16(buffer[4:]) == unix.NLMSG_ERROR {
		number = unix.Errno(-int32(binary.NativeEndian.Uint32(buffer[unix.SizeofNlMsghdr:]))) //nolint:gosec // the kernel's own sign
	}
	return binary.NativeEndian.Uint32(buffer[8:]), number, nil
}

func (f Flow) family() uint8 {
	if f.Original.Source.Unmap().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func (f Flow) reply() Tuple {
	if f.Reply != (Tuple{}) {
		return f.Reply
	}
	return f.Original.Turned()
}

// answers are the types of ICMP that answer others.
var answers = map[uint8]uint8{8: 0, 13: 14, 15: 16, 17: 18, 128: 129, 139: 140}

func (t Tuple) encode(f Flow, reply bool) func(*netlink.AttributeEncoder) error {
	return func(e *netlink.AttributeEncoder) error {
		e.Nested(tupleIP, func(e *netlink.AttributeEncoder) error {
			source, destination := uint16(ipSource4), uint16(ipDestination4)
			if !t.Source.Unmap().Is4() {
				source, destination = ipSource6, ipDestination6
			}
			e.Bytes(source, bytesOf(t.Source))
			e.Bytes(destination, bytesOf(t.Destination))
			return nil
		})
		e.Nested(tupleProto, func(e *netlink.AttributeEncoder) error {
			e.ByteOrder = binary.BigEndian
			e.Uint8(protoNumber, f.Protocol)
			switch f.Protocol {
			case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
				first := uint16(protoICMPID)
				if f.Protocol == unix.IPPROTO_ICMPV6 {
					first = protoICMP6
				}
				kind := f.ICMPType
				if reply {
					kind = answers[kind]
				}
				e.Uint16(first, f.ICMPID)
				e.Uint8(first+1, kind)
				e.Uint8(first+2, 0)
			default:
				e.Uint16(protoSource, t.SourcePort)
				e.Uint16(protoDest, t.DestinationPort)
			}
			return nil
		})
		return nil
	}
}

func bytesOf(a netip.Addr) []byte { return a.Unmap().AsSlice() }

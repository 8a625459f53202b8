package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// From include/uapi/linux/netfilter/nfnetlink_conntrack.h.
const (
	ctaCountersOriginal, ctaCountersReply, ctaID, ctaZone, ctaTimestamp = 9, 10, 12, 18, 20

	counterPackets, counterBytes = 1, 2
	timestampStart               = 1

	attributeFlags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
	nfgenmsg       = 4
)

// partBytes is the most that the kernel gives at a time (netlink_recvmsg grants 32 KiB).
const partBytes = 1 << 16

// Walk gives every entry of both families to see, one after the other, as the kernel lists
// them: no more of the table is held than the part that is being read. The entry is see's
// until it returns; an error of it ends the walk. Entries that come or go meanwhile may be
// missing or come twice.
func Walk(see func(*Entry) error) error {
	for _, family := range families {
		if _, err := walk(family, see); err != nil {
			return fmt.Errorf("list the connection table: %w", err)
		}
	}
	return nil
}

// walk says whether the kernel calls what it gave torn.
func walk(family uint8, see func(*Entry) error) (torn bool, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return false, fmt.Errorf("open a netlink socket: %w", err)
	}
	defer unix.Close(fd)
	request := make([]byte, unix.SizeofNlMsghdr+nfgenmsg)
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], unix.NFNL_SUBSYS_CTNETLINK<<8|messageGet)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request[unix.SizeofNlMsghdr] = family
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, fmt.Errorf("ask for the entries: %w", err)
	}
	part, e := make([]byte, partBytes), new(Entry)
	for {
		n, _, err := unix.Recvfrom(fd, part, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return torn, err
		}
		done, interrupted, err := parsePart(part[:n], e, see)
		if torn = torn || interrupted; done || err != nil {
			return torn, err
		}
	}
}

// parsePart reads the messages of one part of a listing, each into e.
func parsePart(data []byte, e *Entry, see func(*Entry) error) (done, torn bool, err error) {
	for len(data) >= unix.SizeofNlMsghdr {
		m, rest, err := message(data)
		if err != nil {
			return true, torn, err
		}
		torn = torn || binary.NativeEndian.Uint16(m[6:])&unix.NLM_F_DUMP_INTR != 0
		switch binary.NativeEndian.Uint16(m[4:]) {
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			if len(m) >= unix.SizeofNlMsghdr+4 {
				if number := -int32(binary.NativeEndian.Uint32(m[unix.SizeofNlMsghdr:])); number > 0 { //nolint:gosec // the kernel's own sign
					return true, torn, unix.Errno(number)
				}
			}
			return true, torn, nil
		case unix.NFNL_SUBSYS_CTNETLINK<<8 | messageNew:
			*e = Entry{}
			if err := e.parse(m[unix.SizeofNlMsghdr:]); err != nil {
				return true, torn, err
			}
			if err := see(e); err != nil {
				return true, torn, err
			}
		}
		data = rest
	}
	return false, torn, nil
}

// message is the first one of those that begin data.
func message(data []byte) (m, rest []byte, err error) {
	size := int(binary.NativeEndian.Uint32(data))
	if size < unix.SizeofNlMsghdr || size > len(data) {
		return nil, nil, errShort
	}
	return data[:size], data[min((size+3)&^3, len(data)):], nil
}

var errShort = errors.New("a netlink message that is cut off")

// attributes calls f with the kind of every attribute, without flags.
func attributes(data []byte, f func(kind uint16, v []byte) error) error {
	for len(data) >= 4 {
		size := int(binary.NativeEndian.Uint16(data))
		if size < 4 || size > len(data) {
			return errShort
		}
		kind := binary.NativeEndian.Uint16(data[2:]) &^ attributeFlags
		if err := f(kind, data[4:size]); err != nil {
			return err
		}
		data = data[min((size+3)&^3, len(data)):]
	}
	return nil
}

// parse reads a message behind its header.
func (e *Entry) parse(m []byte) error {
	if len(m) < nfgenmsg {
		return errShort
	}
	if e.Family = 4; m[0] == unix.AF_INET6 {
		e.Family = 6
	}
	return attributes(m[nfgenmsg:], func(kind uint16, v []byte) (err error) {
		switch kind {
		case ctaOriginal:
			e.original = v
			e.Protocol, err = parseTuple(v, &e.Original)
		case ctaReply:
			_, err = parseTuple(v, &e.Reply)
		case ctaStatus:
			e.Status = Status(number(v))
		case ctaTimeout:
			e.Timeout = uint32(number(v)) //nolint:gosec // has 32 bits
		case ctaMark:
			e.Mark = uint32(number(v)) //nolint:gosec // has 32 bits
		case ctaID:
			e.id = uint32(number(v)) //nolint:gosec // has 32 bits
		case ctaZone:
			e.Zone = uint16(number(v)) //nolint:gosec // has 16 bits
		case ctaProtoInfo:
			err = parseState(v, e)
		case ctaCountersOriginal, ctaCountersReply:
			err = attributes(v, func(kind uint16, v []byte) error {
				switch kind {
				case counterPackets:
					e.Packets += number(v)
				case counterBytes:
					e.Bytes += number(v)
				}
				return nil
			})
		case ctaTimestamp:
			err = attributes(v, func(kind uint16, v []byte) error {
				if kind == timestampStart {
					e.Since = time.Unix(0, int64(number(v))) //nolint:gosec // nanoseconds since 1970
				}
				return nil
			})
		}
		return err
	})
}

// number is of 1, 2, 4 or 8 bytes, in the order of the network.
func number(v []byte) (n uint64) {
	for _, b := range v[:min(len(v), 8)] {
		n = n<<8 | uint64(b)
	}
	return n
}

func parseState(v []byte, e *Entry) error {
	return attributes(v, func(kind uint16, v []byte) error {
		if kind != infoTCP {
			return nil
		}
		return attributes(v, func(kind uint16, v []byte) error {
			if kind == tcpState {
				e.State = TCPState(number(v))
			}
			return nil
		})
	})
}

func parseTuple(v []byte, t *Tuple) (protocol uint8, err error) {
	err = attributes(v, func(kind uint16, v []byte) error {
		switch kind {
		case tupleIP:
			return attributes(v, func(kind uint16, v []byte) error {
				a, ok := netip.AddrFromSlice(v)
				switch {
				case !ok:
					return nil
				case kind == ipSource4, kind == ipSource6:
					t.Source = a
				case kind == ipDestination4, kind == ipDestination6:
					t.Destination = a
				}
				return nil
			})
		case tupleProto:
			return attributes(v, func(kind uint16, v []byte) error {
				switch kind {
				case protoNumber:
					protocol = uint8(number(v)) //nolint:gosec // has 8 bits
				case protoSource:
					t.SourcePort = uint16(number(v)) //nolint:gosec // has 16 bits
				case protoDest:
					t.DestinationPort = uint16(number(v)) //nolint:gosec // has 16 bits
				}
				return nil
			})
		}
		return nil
	})
	return protocol, err
}

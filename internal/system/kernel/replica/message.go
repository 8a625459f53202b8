package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// dumpTries is how often a dump is asked for again that somebody changed meanwhile.
const dumpTries = 20

var errChanged = errors.New("it changed while it was read")

// kindMask takes the flags off an attribute's kind (NLA_TYPE_MASK).
const kindMask = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER

func kindOf(a netlink.Attribute) uint16 { return a.Type &^ kindMask }

// dump asks for all objects of one kind; each comes with the fixed header of its
// family.
func dump(conn *netlink.Conn, kind uint16, request []byte) ([]netlink.Message, error) {
	for range dumpTries {
		messages, err := conn.Execute(netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | netlink.Dump},
			Data:   request,
		})
		if errors.Is(err, unix.EINTR) || err == nil && slices.ContainsFunc(messages, interrupted) {
			continue
		}
		return messages, err
	}
	return nil, errChanged
}

func interrupted(m netlink.Message) bool { return m.Header.Flags&netlink.DumpInterrupted != 0 }

// object is one object as the kernel describes it.
type object struct {
	fixed      []byte // the header of its family
	attributes []netlink.Attribute
}

// parse splits a message behind a header of so many bytes.
func parse(m netlink.Message, fixed int) (object, error) {
	if len(m.Data) < fixed {
		return object{}, fmt.Errorf("a message of %d bytes is too short", len(m.Data))
	}
	attributes, err := netlink.UnmarshalAttributes(m.Data[fixed:])
	return object{slices.Clone(m.Data[:fixed]), attributes}, err
}

func (o object) data() ([]byte, error) {
	body, err := netlink.MarshalAttributes(o.attributes)
	return append(slices.Clone(o.fixed), body...), err
}

// keep leaves only attributes of the given kinds; what the object was read into
// stays as it is.
func (o *object) keep(kinds ...uint16) {
	o.attributes = slices.DeleteFunc(slices.Clone(o.attributes), func(a netlink.Attribute) bool {
		return !slices.Contains(kinds, kindOf(a))
	})
}

func (o object) bytes(kind uint16) ([]byte, bool) {
	for _, a := range o.attributes {
		if kindOf(a) == kind {
			return a.Data, true
		}
	}
	return nil, false
}

func (o object) text(kind uint16) string {
	data, _ := o.bytes(kind)
	return textOf(data)
}

func textOf(data []byte) string {
	if n := len(data); n > 0 && data[n-1] == 0 {
		data = data[:n-1]
	}
	return string(data)
}

// set gives an attribute a value, and adds it where it is missing.
func (o *object) set(kind uint16, data []byte) {
	for i, a := range o.attributes {
		if kindOf(a) == kind {
			o.attributes[i] = netlink.Attribute{Type: a.Type, Data: data}
			return
		}
	}
	o.attributes = append(o.attributes, netlink.Attribute{Type: kind, Data: data})
}

// mask keeps some bits of a big-endian number, and leaves the attribute out
// where none is left.
func (o *object) mask(kind uint16, bits uint32) {
	o.attributes = slices.DeleteFunc(o.attributes, func(a netlink.Attribute) bool {
		return kindOf(a) == kind && (len(a.Data) != 4 || binary.BigEndian.Uint32(a.Data)&bits == 0)
	})
	if data, there := o.bytes(kind); there {
		o.set(kind, binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(data)&bits))
	}
}

func within(kind uint16, attributes ...netlink.Attribute) netlink.Attribute {
	data, _ := netlink.MarshalAttributes(attributes) // only a wrong length fails, and none is given
	return netlink.Attribute{Type: kind | unix.NLA_F_NESTED, Data: data}
}

func number(kind uint16, n uint32) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: binary.NativeEndian.AppendUint32(nil, n)}
}

func word(kind uint16, text string) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: append([]byte(text), 0)}
}

package replica

import (
	"encoding/binary"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// From include/uapi/linux/netfilter/nf_tables.h and nf_tables_compat.h.
const (
	exprName, exprData           = 1, 2
	metaKey, metaL4Proto         = 2, 16
	payloadBase, payloadOffset   = 2, 3
	payloadNetwork               = 1
	cmpOp, cmpData, cmpNotEqual  = 2, 3, 1
	dataValue                    = 1
	compatProtocol, compatFlags  = 1, 2
	compatInverted               = 2
	protocolOffset4, nextOffset6 = 9, 6
)

// compat makes what the kernel wants with a rule that holds an extension of
// iptables, and does not give: the protocol that the rule asks for, which some
// extensions are only allowed with. It is read from the rule's own comparison.
func compat(rule object) (netlink.Attribute, bool) {
	list, _ := rule.bytes(ruleExpressions)
	expressions, err := netlink.UnmarshalAttributes(list)
	if err != nil {
		return netlink.Attribute{}, false
	}
	var protocol, flags uint32
	extension, asked := false, false
	for _, e := range expressions {
		name, body := expression(e.Data)
		switch name {
		case "match", "target":
			extension = true
		case "meta":
			asked = body.number(metaKey) == metaL4Proto
		case "payload":
			offset := body.number(payloadOffset)
			asked = body.number(payloadBase) == payloadNetwork &&
				(rule.fixed[0] == unix.NFPROTO_IPV4 && offset == protocolOffset4 || rule.fixed[0] == unix.NFPROTO_IPV6 && offset == nextOffset6)
		case "cmp":
			if value := body.value(); asked && len(value) == 1 {
				protocol = uint32(value[0])
				if body.number(cmpOp) == cmpNotEqual {
					flags = compatInverted
				}
			}
			asked = false
		}
	}
	if !extension {
		return netlink.Attribute{}, false
	}
	return within(ruleCompat,
		netlink.Attribute{Type: compatProtocol, Data: binary.BigEndian.AppendUint32(nil, protocol)},
		netlink.Attribute{Type: compatFlags, Data: binary.BigEndian.AppendUint32(nil, flags)}), true
}

// expression is an expression's name and what it is made of.
func expression(data []byte) (name string, body object) {
	attributes, _ := netlink.UnmarshalAttributes(data) // of a broken one nothing is known
	e := object{attributes: attributes}
	inner, _ := e.bytes(exprData)
	body.attributes, _ = netlink.UnmarshalAttributes(inner)
	return e.text(exprName), body
}

// value is what a comparison compares with.
func (o object) value() []byte {
	data, _ := o.bytes(cmpData)
	attributes, _ := netlink.UnmarshalAttributes(data)
	value, _ := object{attributes: attributes}.bytes(dataValue)
	return value
}

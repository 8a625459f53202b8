package replica

import (
	"encoding/binary"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	compatInverted               = 2 // NFT_RULE_COMPAT_F_INV
	protocolOffset4, nextOffset6 = 9, 6
)

// compat makes what the kernel wants with a rule that holds an extension of
// iptables, and does not give: the protocol that the rule asks for, which some
// extensions are only allowed with. It is read from the rule's own comparison.
func compat(rule object) (netlink.Attribute, bool) {
	list, _ := rule.bytes(unix.NFTA_RULE_EXPRESSIONS)
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
			asked = body.number(unix.NFTA_META_KEY) == unix.NFT_META_L4PROTO
		case "payload":
			offset := body.number(unix.NFTA_PAYLOAD_OFFSET)
			asked = body.number(unix.NFTA_PAYLOAD_BASE) == unix.NFT_PAYLOAD_NETWORK_HEADER &&
				(rule.fixed[0] == unix.NFPROTO_IPV4 && offset == protocolOffset4 || rule.fixed[0] == unix.NFPROTO_IPV6 && offset == nextOffset6)
		case "cmp":
			if value := body.value(); asked && len(value) == 1 {
				protocol = uint32(value[0])
				if body.number(unix.NFTA_CMP_OP) == unix.NFT_CMP_NEQ {
					flags = compatInverted
				}
			}
			asked = false
		}
	}
	if !extension {
		return netlink.Attribute{}, false
	}
	return within(unix.NFTA_RULE_COMPAT,
		netlink.Attribute{Type: unix.NFTA_RULE_COMPAT_PROTO, Data: binary.BigEndian.AppendUint32(nil, protocol)},
		netlink.Attribute{Type: unix.NFTA_RULE_COMPAT_FLAGS, Data: binary.BigEndian.AppendUint32(nil, flags)}), true
}

// expression is an expression's name and what it is made of.
func expression(data []byte) (name string, body object) {
	attributes, _ := netlink.UnmarshalAttributes(data) // of a broken one nothing is known
	e := object{attributes: attributes}
	inner, _ := e.bytes(unix.NFTA_EXPR_DATA)
	body.attributes, _ = netlink.UnmarshalAttributes(inner)
	return e.text(unix.NFTA_EXPR_NAME), body
}

// value is what a comparison compares with.
func (o object) value() []byte {
	data, _ := o.bytes(unix.NFTA_CMP_DATA)
	attributes, _ := netlink.UnmarshalAttributes(data)
	value, _ := object{attributes: attributes}.bytes(unix.NFTA_DATA_VALUE)
	return value
}

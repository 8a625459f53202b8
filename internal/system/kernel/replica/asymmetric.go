package replica

import (
	"slices"

	"github.com/mdlayher/netlink"
)

// From enum nft_exthdr_attributes and enum nft_dynset_attributes.
const (
	headerDestination, headerType, headerFlags, headerOp, headerSource = 1, 2, 5, 6, 7

	dynsetTimeout = 6
)

// takeable makes a rule of the kernel's words what the kernel takes. It gives what it
// refuses where:
//
//   - an extension header or TCP option is written or stripped (nft_exthdr_dump_common
//     against nft_exthdr_tcp_set_init and nft_exthdr_tcp_strip_init in
//     net/netfilter/nft_exthdr.c);
//   - an element is added to a set without time-outs: it gives one of zero
//     (nft_dynset_dump against nft_dynset_init in net/netfilter/nft_dynset.c).
func takeable(rule *object) {
	list, _ := rule.bytes(ruleExpressions)
	expressions, err := netlink.UnmarshalAttributes(list)
	if err != nil {
		return
	}
	changed := false
	for i, e := range expressions {
		name, body := expression(e.Data)
		if body.takeable(name) {
			expressions[i] = within(listElem, word(exprName, name), within(exprData, body.attributes...))
			changed = true
		}
	}
	if changed {
		rule.set(ruleExpressions, within(ruleExpressions, expressions...).Data)
	}
}

// takeable says whether an expression of this name had to be changed.
func (o *object) takeable(name string) bool {
	switch name {
	case "exthdr":
		if _, reads := o.bytes(headerDestination); reads {
			return false
		}
		if _, writes := o.bytes(headerSource); writes {
			o.leave(headerFlags)
		} else {
			o.keep(headerType, headerOp)
		}
		return true
	case "dynset":
		if timeout, there := o.bytes(dynsetTimeout); there && !slices.ContainsFunc(timeout, func(b byte) bool { return b != 0 }) {
			o.leave(dynsetTimeout)
			return true
		}
	}
	return false
}

// leave takes an attribute away.
func (o *object) leave(kind uint16) {
	o.attributes = slices.DeleteFunc(slices.Clone(o.attributes), func(a netlink.Attribute) bool { return kindOf(a) == kind })
}

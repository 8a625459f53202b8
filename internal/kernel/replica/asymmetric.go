package replica

import (
	"slices"

	"github.com/mdlayher/netlink"
)

// From enum nft_exthdr_attributes.
const (
	headerDestination, headerType, headerFlags, headerOp, headerSource = 1, 2, 5, 6, 7
)

// takeable makes a rule of the kernel's words what the kernel takes: an extension
// header or TCP option that is written or stripped is given with attributes that are refused
// where it is made (nft_exthdr_dump_common against nft_exthdr_tcp_set_init and
// nft_exthdr_tcp_strip_init in net/netfilter/nft_exthdr.c).
func takeable(rule *object) {
	list, _ := rule.bytes(ruleExpressions)
	expressions, err := netlink.UnmarshalAttributes(list)
	if err != nil {
		return
	}
	changed := false
	for i, e := range expressions {
		name, body := expression(e.Data)
		if _, reads := body.bytes(headerDestination); name != "exthdr" || reads {
			continue
		}
		if _, writes := body.bytes(headerSource); writes {
			body.attributes = slices.DeleteFunc(body.attributes, func(a netlink.Attribute) bool { return kindOf(a) == headerFlags })
		} else {
			body.keep(headerType, headerOp)
		}
		expressions[i] = within(listElem, word(exprName, name), within(exprData, body.attributes...))
		changed = true
	}
	if changed {
		rule.set(ruleExpressions, within(ruleExpressions, expressions...).Data)
	}
}

package replica

import (
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
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
	list, _ := rule.bytes(unix.NFTA_RULE_EXPRESSIONS)
	expressions, err := netlink.UnmarshalAttributes(list)
	if err != nil {
		return
	}
	changed := false
	for i, e := range expressions {
		name, body := expression(e.Data)
		if body.takeable(name) {
			expressions[i] = within(unix.NFTA_LIST_ELEM, word(unix.NFTA_EXPR_NAME, name), within(unix.NFTA_EXPR_DATA, body.attributes...))
			changed = true
		}
	}
	if changed {
		rule.set(unix.NFTA_RULE_EXPRESSIONS, within(unix.NFTA_RULE_EXPRESSIONS, expressions...).Data)
	}
}

// takeable says whether an expression of this name had to be changed.
func (o *object) takeable(name string) bool {
	switch name {
	case "exthdr":
		if _, reads := o.bytes(unix.NFTA_EXTHDR_DREG); reads {
			return false
		}
		if _, writes := o.bytes(unix.NFTA_EXTHDR_SREG); writes {
			o.leave(unix.NFTA_EXTHDR_FLAGS)
		} else {
			o.keep(unix.NFTA_EXTHDR_TYPE, unix.NFTA_EXTHDR_OP)
		}
		return true
	case "dynset":
		if timeout, there := o.bytes(unix.NFTA_DYNSET_TIMEOUT); there && !slices.ContainsFunc(timeout, func(b byte) bool { return b != 0 }) {
			o.leave(unix.NFTA_DYNSET_TIMEOUT)
			return true
		}
	}
	return false
}

// leave takes an attribute away.
func (o *object) leave(kind uint16) {
	o.attributes = slices.DeleteFunc(slices.Clone(o.attributes), func(a netlink.Attribute) bool { return kindOf(a) == kind })
}

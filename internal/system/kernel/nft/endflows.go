package nft

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// From include/uapi/linux/netfilter/nf_tables.h; golang.org/x/sys/unix has them not all.
const (
	flowtableTable, flowtableName, flowtableHook, flowtableFlags = 1, 2, 3, 7 // NFTA_FLOWTABLE_*
	flowtableDevices                                             = 3          // NFTA_FLOWTABLE_HOOK_DEVS
	flowTableName                                                = 1          // NFTA_FLOW_TABLE_NAME
)

// Flowtables is how many flowtables the network namespace of the calling thread has, in
// tables of all families; none where the kernel knows no flowtables.
func Flowtables() (n int, err error) {
	begin := func() { n = 0 }
	err = dump(unix.NFT_MSG_GETFLOWTABLE, unix.NFPROTO_UNSPEC, begin, func(func(uint16) []byte) { n++ })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
		return 0, nil // nf_tables_api.c before 4.16, or no nf_tables
	}
	if err != nil {
		return 0, fmt.Errorf("list flowtables: %w", err)
	}
	return n, nil
}

// EndFlows ends all flows that the flowtables of a table of family inet carry, in the
// network namespace of the calling thread: no packet that comes later passes by one of
// them. It makes each flowtable again, and in the chain of its name the one rule that hands
// flows over, in one transaction. The devices are those that the kernel has: it forgets
// one that is gone, and takes no flowtable with one that is not there.
func EndFlows(table string) error {
	conn, err := Dial()
	if err != nil {
		return err
	}
	err = endFlows(conn.Conn, table)
	for try := 1; try < dumpTries && errors.Is(err, unix.ENOENT); try++ {
		err = endFlows(conn.Conn, table) // a device went
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("make the flowtables of table inet %s again: %w", table, err)
	}
	return nil
}

func endFlows(conn *netlink.Conn, table string) error {
	var batch []netlink.Message
	var failed error
	add := func(kind int, flags netlink.HeaderFlags, attributes func(*netlink.AttributeEncoder)) {
		e := netlink.NewAttributeEncoder()
		attributes(e)
		data, err := e.Encode()
		failed = errors.Join(failed, err)
		batch = append(batch, message(kind, flags, data))
	}
	begin := func() { batch = nil }
	err := dump(unix.NFT_MSG_GETFLOWTABLE, unix.NFPROTO_INET, begin, func(attribute func(kind uint16) []byte) {
		name, hook := unix.ByteSliceToString(attribute(flowtableName)), attribute(flowtableHook)
		if unix.ByteSliceToString(attribute(flowtableTable)) != table || !hasDevices(hook) {
			return
		}
		named := func(e *netlink.AttributeEncoder) {
			e.String(flowtableTable, table)
			e.String(flowtableName, name)
		}
		rules := func(e *netlink.AttributeEncoder) {
			e.String(unix.NFTA_RULE_TABLE, table)
			e.String(unix.NFTA_RULE_CHAIN, name)
		}
		add(unix.NFT_MSG_DELRULE, 0, rules)
		add(unix.NFT_MSG_DELFLOWTABLE, 0, named)
		add(unix.NFT_MSG_NEWFLOWTABLE, netlink.Create, func(e *netlink.AttributeEncoder) {
			named(e)
			e.Bytes(unix.NLA_F_NESTED|flowtableHook, hook)
			if flags := attribute(flowtableFlags); flags != nil {
				e.Bytes(flowtableFlags, flags)
			}
		})
		add(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, func(e *netlink.AttributeEncoder) {
			rules(e)
			e.Nested(unix.NFTA_RULE_EXPRESSIONS, func(e *netlink.AttributeEncoder) error {
				e.Nested(unix.NFTA_LIST_ELEM, func(e *netlink.AttributeEncoder) error {
					e.String(unix.NFTA_EXPR_NAME, "flow_offload")
					e.Nested(unix.NFTA_EXPR_DATA, func(e *netlink.AttributeEncoder) error {
						e.String(flowTableName, name)
						return nil
					})
					return nil
				})
				return nil
			})
		})
	})
	if err = errors.Join(err, failed); err != nil || len(batch) == 0 {
		return err
	}
	return Here().Count(Generation, func() error {
		_, err := Transact(conn, batch)
		return err
	})
}

// hasDevices says whether any device is left to a flowtable.
func hasDevices(hook []byte) bool {
	attributes, err := netlink.UnmarshalAttributes(hook)
	if err != nil {
		return false
	}
	for _, a := range attributes {
		if a.Type&^unix.NLA_F_NESTED == flowtableDevices {
			return len(a.Data) > 0
		}
	}
	return false
}

package nft

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// From include/uapi/linux/netfilter/nf_tables.h.
const (
	listTables  = 1 // NFT_MSG_GETTABLE
	nameOfTable = 1 // NFTA_TABLE_NAME
)

// Tables names the tables of all families in the network namespace of the calling
// thread, each as often as there are families with one of its name. It asks the
// kernel for nothing else, which takes a hundredth of what nft takes.
func Tables() ([]string, error) {
	for try := 1; ; try++ {
		names, err := tables()
		if try < dumpTries && (errors.Is(err, unix.EINTR) || errors.Is(err, nl.ErrDumpInterrupted)) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the tables: %w", err)
		}
		return names, nil
	}
}

func tables() ([]string, error) {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|listTables, unix.NLM_F_DUMP)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	answers, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, answer := range answers {
		if len(answer) < nl.SizeofNfgenmsg {
			continue
		}
		attributes, err := nl.ParseRouteAttr(answer[nl.SizeofNfgenmsg:])
		if err != nil {
			return nil, err
		}
		for _, a := range attributes {
			if a.Attr.Type&nl.NLA_TYPE_MASK == nameOfTable {
				names = append(names, string(bytes.TrimRight(a.Value, "\x00")))
			}
		}
	}
	return names, nil
}

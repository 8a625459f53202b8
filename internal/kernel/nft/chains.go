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
	getChain   = 4 // NFT_MSG_GETCHAIN
	chainTable = 1 // NFTA_CHAIN_TABLE
	chainName  = 3 // NFTA_CHAIN_NAME
	familyInet = 1 // NFPROTO_INET
	dumpTries  = 50
)

// Chains names the chains of a table of family inet in the network namespace of
// the calling thread; there are none where there is no such table. It asks the
// kernel for nothing else, which takes a hundredth of what nft takes.
func Chains(table string) ([]string, error) {
	for try := 1; ; try++ {
		names, err := chains(table)
		if try < dumpTries && (errors.Is(err, unix.EINTR) || errors.Is(err, nl.ErrDumpInterrupted)) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the chains of table inet %s: %w", table, err)
		}
		return names, nil
	}
}

func chains(table string) ([]string, error) {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|getChain, unix.NLM_F_DUMP)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: familyInet, Version: nl.NFNETLINK_V0})
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
		in, name := "", ""
		for _, a := range attributes {
			value := string(bytes.TrimRight(a.Value, "\x00"))
			switch a.Attr.Type & nl.NLA_TYPE_MASK {
			case chainTable:
				in = value
			case chainName:
				name = value
			}
		}
		if in == table {
			names = append(names, name)
		}
	}
	return names, nil
}

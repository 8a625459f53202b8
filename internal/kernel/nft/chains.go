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
	listChains   = 4 // NFT_MSG_GETCHAIN
	ofTable      = 1 // NFTA_CHAIN_TABLE
	nameOfChain  = 3 // NFTA_CHAIN_NAME
	protocolInet = 1 // NFPROTO_INET
)

// dumpTries is how often what others change meanwhile is asked for anew.
const dumpTries = 50

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
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|listChains, unix.NLM_F_DUMP)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: protocolInet, Version: nl.NFNETLINK_V0})
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
			case ofTable:
				in = value
			case nameOfChain:
				name = value
			}
		}
		if in == table {
			names = append(names, name)
		}
	}
	return names, nil
}

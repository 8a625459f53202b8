package nft

import (
	"errors"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dumpTries is how often what others change meanwhile is asked for anew.
const dumpTries = 50

// dump asks for all objects of a kind and gives each one's attributes. A dump that
// others disturbed is begun again, which begin is told. It needs a library that looks at
// NLM_F_DUMP_INTR of the message that ends it, where the kernel may say so alone.
func dump(message, family int, begin func(), each func(attribute func(kind uint16) []byte)) error {
	for try := 1; ; try++ {
		begin()
		err := ask(message, family, each)
		if try < dumpTries && (errors.Is(err, unix.EINTR) || errors.Is(err, nl.ErrDumpInterrupted)) {
			continue
		}
		return err
	}
}

// ask sends one request and gives the attributes of each answer.
func ask(message, family int, each func(attribute func(kind uint16) []byte)) error {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, unix.NLM_F_DUMP)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(family), Version: nl.NFNETLINK_V0}) //nolint:gosec // a family has one byte
	answers, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return err
	}
	for _, answer := range answers {
		if len(answer) < nl.SizeofNfgenmsg {
			continue
		}
		attributes, err := nl.ParseRouteAttr(answer[nl.SizeofNfgenmsg:])
		if err != nil {
			return err
		}
		each(func(kind uint16) []byte {
			for _, a := range attributes {
				if a.Attr.Type&nl.NLA_TYPE_MASK == kind {
					return a.Value
				}
			}
			return nil
		})
	}
	return nil
}

package nft

import (
	"bytes"
	"errors"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dumpTries is how often what others change meanwhile is asked for anew.
const dumpTries = 50

// dump asks for all objects of a kind and gives each one's attributes that are
// text. A dump that others disturbed is begun again, which begin is told.
func dump(message, family int, begin func(), each func(attribute func(kind uint16) string)) error {
	for try := 1; ; try++ {
		begin()
		err := dumpOnce(message, family, each)
		if try < dumpTries && (errors.Is(err, unix.EINTR) || errors.Is(err, nl.ErrDumpInterrupted)) {
			continue
		}
		return err
	}
}

func dumpOnce(message, family int, each func(attribute func(kind uint16) string)) error {
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
		each(func(kind uint16) string {
			for _, a := range attributes {
				if a.Attr.Type&nl.NLA_TYPE_MASK == kind {
					return string(bytes.TrimRight(a.Value, "\x00"))
				}
			}
			return ""
		})
	}
	return nil
}

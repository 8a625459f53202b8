package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// dumpTries is how often what others change meanwhile is asked for again.
const dumpTries = 50

// dump asks for all objects of a kind and gives each one's attributes. A dump that
// others disturbed is begun again, which begin is told.
func dump(message, family int, begin func(), each func(attribute func(kind uint16) []byte)) error {
	return dumpOf(message, family, begin, func(_ uint8, attribute func(kind uint16) []byte) { each(attribute) })
}

// dumpOf is dump with the family of each.
func dumpOf(message, family int, begin func(), each func(family uint8, attribute func(kind uint16) []byte)) error {
	for try := 1; ; try++ {
		begin()
		err := ask(message, family, each)
		if try < dumpTries && errors.Is(err, unix.EINTR) {
			continue
		}
		return err
	}
}

// ask sends one request and gives the attributes of each answer.
func ask(message, family int, each func(family uint8, attribute func(kind uint16) []byte)) error {
	conn, err := Dial()
	if err != nil {
		return err
	}
	err = conn.dump(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | message), Flags: netlink.Request | netlink.Dump}, //nolint:gosec // a message has one byte
		Data:   []byte{byte(family), unix.NFNETLINK_V0, 0, 0},                                                                           //nolint:gosec // a family has one byte
	}, func(answer []byte) error {
		if len(answer) < nfgenmsg {
			return nil
		}
		each(answer[0], func(kind uint16) []byte {
			value, _ := attribute(answer[nfgenmsg:], kind)
			return value
		})
		return nil
	})
	return errors.Join(err, conn.Close())
}

// dump gives what the kernel answers to a request. The error is unix.EINTR where others
// changed it meanwhile, which the kernel may say in the message that ends it alone.
func (s *Socket) dump(request netlink.Message, each func(answer []byte) error) error {
	sent, err := s.Send(request)
	if err != nil {
		return err
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	part := make([]byte, 32<<10) // the kernel makes no larger ones (netlink_recvmsg)
	for torn := false; ; {
		n, err := receive(raw, part)
		if err != nil {
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(part[:n])
		if err != nil {
			return fmt.Errorf("read the kernel's answer: %w", err)
		}
		for _, m := range messages {
			if m.Header.Seq != sent.Header.Sequence {
				continue
			}
			torn = torn || m.Header.Flags&unix.NLM_F_DUMP_INTR != 0
			switch {
			case m.Header.Type != unix.NLMSG_DONE && m.Header.Type != unix.NLMSG_ERROR:
				if err := each(m.Data); err != nil {
					return err
				}
			case len(m.Data) >= 4 && binary.NativeEndian.Uint32(m.Data) != 0:
				return unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data))) //nolint:gosec // the kernel's own sign
			case torn:
				return unix.EINTR
			default:
				return nil
			}
		}
	}
}

// receive waits for a message.
func receive(raw syscall.RawConn, into []byte) (n int, err error) {
	readErr := raw.Read(func(fd uintptr) bool {
		for {
			n, _, err = unix.Recvfrom(int(fd), into, unix.MSG_DONTWAIT)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	if readErr != nil {
		return 0, readErr
	}
	return n, err
}

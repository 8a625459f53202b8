package nfset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/nft"
)

// What can be wrong, for errors.Is on an *Error. nft.ErrChanged and
// fs.ErrPermission come too.
var (
	ErrNoSet      = errors.New("the set is not there")
	ErrNoElement  = errors.New("the element is not there")
	ErrNoChain    = errors.New("the chain of the verdict is not there")
	ErrOverlap    = errors.New("the element overlaps one that is there, or is there with another verdict")
	ErrFull       = errors.New("the set is full")
	ErrNoMemory   = errors.New("the kernel has no memory for it")
	ErrTooLarge   = nft.ErrTooLarge
	ErrNoAnswer   = errors.New("the kernel's answer got lost, so that it is not known whether the change was made")
	ErrUnfinished = errors.New("the set changed at every try to read it")
)

// Error says what the kernel has against a change, and nothing of the
// transaction was done.
type Error struct {
	Doing   string // "add to", "delete from", "read"
	Set     Set
	Element string     // as the set's Format has it; "" where no element is to blame
	Errno   unix.Errno // 0 where the kernel was not asked
	Message string     // of the kernel, "" where it gave none
	cause   error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s set %s %s", e.Doing, e.Set.Table, e.Set.Name)
	if e.Element != "" {
		b.WriteString(" element " + e.Element)
	}
	b.WriteString(": ")
	switch {
	case e.cause != nil:
		b.WriteString(e.cause.Error())
	default:
		b.WriteString(e.Errno.Error())
	}
	if e.Message != "" {
		b.WriteString(" (" + e.Message + ")")
	}
	return b.String()
}

// Unwrap gives one of the errors above, nil, and the kernel's number.
func (e *Error) Unwrap() []error {
	var out []error
	if e.cause != nil {
		out = append(out, e.cause)
	}
	if e.Errno != 0 {
		out = append(out, e.Errno)
	}
	return out
}

func doing(verb uint16) string {
	switch verb {
	case unix.NFT_MSG_DELSET:
		return "delete"
	case unix.NFT_MSG_DELSETELEM:
		return "delete from"
	case unix.NFT_MSG_NEWSETELEM:
		return "add to"
	}
	return "read"
}

func errno(err error) unix.Errno {
	var n unix.Errno
	_ = errors.As(err, &n) // 0 where it is none
	return n
}

// sendCause is what a failed sendto means: nothing reached the kernel's tables.
func sendCause(err error) error {
	switch {
	case errors.Is(err, unix.EMSGSIZE):
		return ErrTooLarge
	case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		return ErrNoMemory
	}
	return err
}

// reply is a NLMSG_ERROR: an error or, with number 0, an acknowledgement.
type reply struct {
	sequence uint32
	errno    unix.Errno
	message  string
	offset   int // of what is to blame, in the message that was sent; 0: none
}

func parseAnswer(m []byte) (reply, bool) {
	if len(m) < unix.SizeofNlMsghdr+4+unix.SizeofNlMsghdr || binary.NativeEndian.Uint16(m[4:]) != unix.NLMSG_ERROR {
		return reply{}, false
	}
	flags := binary.NativeEndian.Uint16(m[6:])
	a := reply{
		sequence: binary.NativeEndian.Uint32(m[8:]),
		errno:    unix.Errno(-int32(binary.NativeEndian.Uint32(m[unix.SizeofNlMsghdr:]))), //nolint:gosec // the kernel's own sign
	}
	if flags&unix.NLM_F_ACK_TLVS == 0 {
		return a, true
	}
	at := unix.SizeofNlMsghdr + 4 + unix.SizeofNlMsghdr
	if flags&unix.NLM_F_CAPPED == 0 && a.errno != 0 {
		original := int(binary.NativeEndian.Uint32(m[unix.SizeofNlMsghdr+4:]))
		at = unix.SizeofNlMsghdr + 4 + (original+3)&^3
	}
	if at < 0 || at > len(m) {
		return a, true
	}
	// A message that is cut off is no reason to lose the error itself.
	_ = eachAttribute(m[at:], func(kind uint16, v []byte) error {
		switch {
		case kind == unix.NLMSGERR_ATTR_MSG:
			a.message = strings.TrimRight(string(v), "\x00")
		case kind == unix.NLMSGERR_ATTR_OFFS && len(v) == 4:
			a.offset = int(binary.NativeEndian.Uint32(v))
		}
		return nil
	})
	return a, true
}

// problem makes an error of the answer to one message of the batch.
func (b *batch) problem(a reply) *Error {
	m := b.messages[len(b.messages)-1]
	if i := int(a.sequence - b.first); i > 0 && i < len(b.messages) {
		m = b.messages[i]
	}
	e := &Error{Doing: doing(m.verb), Set: m.set, Errno: a.errno, Message: a.message}
	kind, body := uint16(0), []byte(nil)
	if at := m.at + a.offset; a.offset > 0 && at+4 <= len(b.buf) {
		kind = binary.NativeEndian.Uint16(b.buf[at+2:]) &^ nested
		if size := int(binary.NativeEndian.Uint16(b.buf[at:])); size >= 4 && at+size <= len(b.buf) {
			body = b.buf[at+4 : at+size]
		}
	}
	named := a.offset > headerSize && kind == unix.NFTA_LIST_ELEM && a.offset != headerSize
	if named {
		if n, err := parseNode(body); err == nil {
			e.Element = m.set.format(n.key)
		}
	}
	e.cause = causeOf(a.errno, m, named)
	return e
}

func causeOf(number unix.Errno, m message, named bool) error {
	switch number {
	case unix.ENOENT:
		switch {
		case !named:
			return ErrNoSet
		case m.verb == unix.NFT_MSG_NEWSETELEM:
			return ErrNoChain
		}
		return ErrNoElement
	case unix.EEXIST, unix.ENOTEMPTY:
		return ErrOverlap
	case unix.ENFILE, unix.ENOSPC:
		return ErrFull
	case unix.ENOMEM, unix.ENOBUFS:
		return ErrNoMemory
	case unix.EINTR, unix.ERESTART, unix.EAGAIN:
		return nft.ErrChanged
	case unix.EPERM, unix.EACCES:
		return fs.ErrPermission
	}
	return nil
}

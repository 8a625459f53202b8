package nfset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// From include/uapi/linux/netfilter/nf_tables.h; golang.org/x/sys/unix has not all.
	elemKeyEnd   = 10 // NFTA_SET_ELEM_KEY_END
	elemExprs    = 11 // NFTA_SET_ELEM_EXPRESSIONS
	connCount    = 1  // NFTA_CONNLIMIT_COUNT
	connFlags    = 2  // NFTA_CONNLIMIT_FLAGS
	flagInverted = 1  // NFT_LIMIT_F_INV, NFT_CONNLIMIT_F_INV
	flagCatchAll = 2  // NFT_SET_ELEM_CATCHALL

	// What nft itself writes into user data (libnftnl's udata.h).
	userComment = 0 // NFTNL_UDATA_SET_ELEM_COMMENT
	userFlags   = 1 // NFTNL_UDATA_SET_ELEM_FLAGS
	userOpen    = 1 // the range has no end node
	maxComment  = 127

	nested          = unix.NLA_F_NESTED
	attributeHeader = 4
	typeMask        = 0x3fff                  // NLA_TYPE_MASK
	headerSize      = unix.SizeofNlMsghdr + 4 // with nfgenmsg
	batchSize       = headerSize              // of the begin and of the end
	// fullMessage leaves room for one more element below the 65535 bytes that
	// the length of a nested attribute counts to.
	fullMessage = 65535 - 1024
	maxKey      = 64 // NFT_DATA_VALUE_MAXLEN
)

// batch is one transaction while it is written, and the memory for the next.
type batch struct {
	buf      []byte
	first    uint32 // sequence number of the begin message
	messages []message
	list     int // where the open list of elements begins; 0 is none open
}

// message is one message of a batch, for those that errors name.
type message struct {
	at   int
	set  Set
	verb uint16
}

func (b *batch) begin(sequence uint32) {
	b.first = sequence
	b.buf, b.messages, b.list = b.buf[:0], b.messages[:0], 0
	at := b.header(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, sequence, unix.AF_UNSPEC)
	binary.BigEndian.PutUint16(b.buf[at+unix.SizeofNlMsghdr+2:], unix.NFNL_SUBSYS_NFTABLES)
	b.end32(at)
	b.messages = append(b.messages, message{at: at})
}

// end closes the batch and asks for one answer, on the last message.
func (b *batch) end() {
	b.close()
	last := b.messages[len(b.messages)-1].at
	b.flags(last, unix.NLM_F_ACK)
	at := b.header(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, b.next(), unix.AF_UNSPEC)
	binary.BigEndian.PutUint16(b.buf[at+unix.SizeofNlMsghdr+2:], unix.NFNL_SUBSYS_NFTABLES)
	b.end32(at)
}

func (b *batch) flags(at int, more uint16) {
	flags := b.buf[at+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|more)
}

// next is the sequence number of the next message.
func (b *batch) next() uint32 { return b.first + uint32(len(b.messages)) } //nolint:gosec // a batch has some thousands at most

// empty says whether nothing is in it.
func (b *batch) empty() bool { return len(b.messages) < 2 }

func (b *batch) header(kind, flags uint16, sequence uint32, family byte) (at int) {
	at = len(b.buf)
	var h [headerSize]byte
	binary.NativeEndian.PutUint16(h[4:], kind)
	binary.NativeEndian.PutUint16(h[6:], flags)
	binary.NativeEndian.PutUint32(h[8:], sequence)
	h[unix.SizeofNlMsghdr] = family
	b.buf = append(b.buf, h[:]...)
	return at
}

func (b *batch) end32(at int) {
	binary.NativeEndian.PutUint32(b.buf[at:], uint32(len(b.buf)-at)) //nolint:gosec // messages are far smaller
}

// message begins a message about elements of a set.
func (b *batch) message(verb, flags uint16, s Set) {
	b.close()
	at := b.header(unix.NFNL_SUBSYS_NFTABLES<<8|verb, unix.NLM_F_REQUEST|flags, b.next(), s.family())
	b.messages = append(b.messages, message{at, s, verb})
	b.text(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table)
	b.text(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	b.list = b.open(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
}

// bare is a message about a whole set.
func (b *batch) bare(verb uint16, s Set) {
	b.close()
	at := b.header(unix.NFNL_SUBSYS_NFTABLES<<8|verb, unix.NLM_F_REQUEST, b.next(), s.family())
	b.messages = append(b.messages, message{at, s, verb})
	b.text(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table)
	b.text(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	b.end32(at)
}

// takeBack removes the open message, in which no element stands yet.
func (b *batch) takeBack() {
	last := len(b.messages) - 1
	b.buf, b.messages, b.list = b.buf[:b.messages[last].at], b.messages[:last], 0
}

// close ends the open message.
func (b *batch) close() {
	if b.list == 0 {
		return
	}
	b.shut(b.list)
	b.end32(b.messages[len(b.messages)-1].at)
	b.list = 0
}

// full says whether the open message takes no more.
func (b *batch) full() bool { return b.list == 0 || len(b.buf)-b.list > fullMessage }

func (b *batch) open(kind uint16) (at int) {
	at = len(b.buf)
	b.buf = append(b.buf, 0, 0, 0, 0)
	binary.NativeEndian.PutUint16(b.buf[at+2:], kind|nested)
	return at
}

func (b *batch) shut(at int) {
	binary.NativeEndian.PutUint16(b.buf[at:], uint16(len(b.buf)-at)) //nolint:gosec // see full
}

func (b *batch) attribute(kind uint16, size int) {
	at := len(b.buf)
	b.buf = append(b.buf, 0, 0, 0, 0)
	binary.NativeEndian.PutUint16(b.buf[at:], uint16(4+size)) //nolint:gosec // sizes are checked before
	binary.NativeEndian.PutUint16(b.buf[at+2:], kind)
}

var zeros [4]byte

func (b *batch) pad() { b.buf = append(b.buf, zeros[:-len(b.buf)&3]...) }

func (b *batch) text(kind uint16, s string) {
	b.attribute(kind, len(s)+1)
	b.buf = append(append(b.buf, s...), 0)
	b.pad()
}

func (b *batch) bytes(kind uint16, v []byte) {
	b.attribute(kind, len(v))
	b.buf = append(b.buf, v...)
	b.pad()
}

func (b *batch) u32(kind uint16, v uint32) {
	b.attribute(kind, 4)
	b.buf = binary.BigEndian.AppendUint32(b.buf, v)
}

func (b *batch) u64(kind uint16, v uint64) {
	b.attribute(kind, 8)
	b.buf = binary.BigEndian.AppendUint64(b.buf, v)
}

func (b *batch) key(kind uint16, key []byte) {
	at := b.open(kind)
	b.bytes(unix.NFTA_DATA_VALUE, key)
	b.shut(at)
}

var errKey = errors.New("a key has 1 to 64 bytes, and the ends of a range the same number")

// element writes one element. With only, nothing but what names it is written:
// that is enough to delete it.
func (b *batch) element(s Set, e Element, only bool) error {
	if !e.CatchAll && (len(e.Key) == 0 || len(e.Key) > maxKey) || e.End != nil && len(e.End) != len(e.Key) {
		return fmt.Errorf("set %s: %w", s.Name, errKey)
	}
	if len(e.Comment) > maxComment {
		return fmt.Errorf("set %s element %s: a comment of %d bytes, at most %d are kept", s.Name, s.format(e.Key), len(e.Comment), maxComment)
	}
	if b.list == 0 {
		return errors.New("no message is open")
	}
	at := b.open(unix.NFTA_LIST_ELEM)
	if e.CatchAll {
		b.u32(unix.NFTA_SET_ELEM_FLAGS, flagCatchAll)
	} else {
		b.key(unix.NFTA_SET_ELEM_KEY, e.Key)
	}
	var last []byte
	if e.End != nil {
		last = e.End
	} else {
		last = e.Key
	}
	if s.Kind == Concatenated && !e.CatchAll {
		b.key(elemKeyEnd, last)
	}
	var end [maxKey]byte
	open := s.Kind == Interval && !e.CatchAll && !after(end[:len(last)], last)
	if !only {
		b.attachments(e, open)
	}
	b.shut(at)
	if s.Kind == Interval && !e.CatchAll && !open {
		at = b.open(unix.NFTA_LIST_ELEM)
		b.u32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
		b.key(unix.NFTA_SET_ELEM_KEY, end[:len(last)])
		b.shut(at)
	}
	return nil
}

// after puts the key behind key into to; it is false behind the last one.
func after(to, key []byte) bool {
	copy(to, key)
	for i := len(to) - 1; i >= 0; i-- {
		to[i]++
		if to[i] != 0 {
			return true
		}
	}
	return false
}

// before puts the key before key into to; it is false before the first one.
func before(to, key []byte) bool {
	copy(to, key)
	for i := len(to) - 1; i >= 0; i-- {
		to[i]--
		if to[i] != 0xff {
			return true
		}
	}
	return false
}

func (b *batch) attachments(e Element, open bool) {
	if e.Verdict.Does != None {
		data := b.open(unix.NFTA_SET_ELEM_DATA)
		verdict := b.open(unix.NFTA_DATA_VERDICT)
		b.u32(unix.NFTA_VERDICT_CODE, uint32(verdictCodes[e.Verdict.Does])) //nolint:gosec // the kernel reads the same bits as signed
		if e.Verdict.Chain != "" {
			b.text(unix.NFTA_VERDICT_CHAIN, e.Verdict.Chain)
		}
		b.shut(verdict)
		b.shut(data)
	}
	if e.Timeout > 0 {
		b.u64(unix.NFTA_SET_ELEM_TIMEOUT, milliseconds(e.Timeout))
	}
	if e.Expires > 0 {
		b.u64(unix.NFTA_SET_ELEM_EXPIRATION, milliseconds(e.Expires))
	}
	if e.Comment != "" || open {
		b.userData(e.Comment, open)
	}
	if e.Counted {
		expr := b.open(unix.NFTA_SET_ELEM_EXPR)
		b.text(unix.NFTA_EXPR_NAME, "counter")
		data := b.open(unix.NFTA_EXPR_DATA)
		b.u64(unix.NFTA_COUNTER_BYTES, e.Bytes)
		b.u64(unix.NFTA_COUNTER_PACKETS, e.Packets)
		b.shut(data)
		b.shut(expr)
	}
}

// milliseconds rounds up: a time-out is never cut short.
func milliseconds(d time.Duration) uint64 {
	return uint64((d + time.Millisecond - 1) / time.Millisecond) //nolint:gosec // positive
}

func (b *batch) userData(text string, open bool) {
	size := 0
	if text != "" {
		size += 2 + len(text) + 1
	}
	if open {
		size += 6
	}
	b.attribute(unix.NFTA_SET_ELEM_USERDATA, size)
	if text != "" {
		b.buf = append(b.buf, userComment, byte(len(text)+1))
		b.buf = append(append(b.buf, text...), 0)
	}
	if open {
		b.buf = append(b.buf, userFlags, 4)
		b.buf = binary.NativeEndian.AppendUint32(b.buf, userOpen)
	}
	b.pad()
}

package nfset

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// tries is how often a set is read again when others change it meanwhile.
const tries = 20

// Dump reads a set. It calls begin at the start of every try, since a change of
// the ruleset by anybody spoils what was read up to then; an element is good
// until each returns. Elements of interval sets come sorted, in either
// direction. After ErrUnfinished the last try has read the set to its end, but
// not at one moment: that does for a set that nobody edits.
//
// The kernel walks to where it stopped for every 32 KiB that it gives
// (nft_rbtree_walk, nft_rhash_walk), so the time grows with the square of the
// elements: 20,000 ranges of IPv6 take 40 ms, 96,000 take 650.
//
// It counts how many elements it gave and passes over as many, and a hash grows
// in a worker after elements have been added: in the meantime their order
// changes, so that some come twice and as many not at all. Such a dump is torn. It also
// passes by as many as have ended and were collected since its last message, thousands
// where thousands end at once, and nothing reports that: who has to know that an element
// is not there asks for it (Lookup).
func (c *Conn) Dump(ctx context.Context, s Set, begin func(), each func(Element) error) error {
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		begin()
		torn, err := c.dump(s, each)
		if err != nil || !torn {
			return err
		}
		if try == tries {
			return &Error{Doing: doing(unix.NFT_MSG_GETSETELEM), Set: s, cause: ErrUnfinished}
		}
		time.Sleep(time.Duration(try) * time.Millisecond)
	}
}

func (c *Conn) dump(s Set, each func(Element) error) (torn bool, err error) {
	c.sequence++
	b := &c.batch
	b.buf, b.messages, b.list = b.buf[:0], b.messages[:0], 0
	b.first = c.sequence
	b.bare(unix.NFT_MSG_GETSETELEM, s)
	b.flags(0, unix.NLM_F_DUMP)
	if err := c.send(b.buf); err != nil {
		return false, fmt.Errorf("ask for set %s %s: %w", s.Table, s.Name, err)
	}
	var seen keys
	if s.Kind == Exact {
		each = seen.noting(each)
	}
	p := pairs{set: s, each: each}
	var failed error
	parts := 0
	var moment []byte // the end of the ruleset's generation that the parts are of
	for {
		n, err := c.receive(true)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			torn = true
			continue
		case err != nil:
			return false, fmt.Errorf("read set %s %s: %w", s.Table, s.Name, err)
		}
		done := false
		err = eachMessage(c.answers[:n], func(m []byte) error {
			if binary.NativeEndian.Uint32(m[8:]) != c.sequence {
				return nil
			}
			torn = torn || binary.NativeEndian.Uint16(m[6:])&unix.NLM_F_DUMP_INTR != 0
			switch kind := binary.NativeEndian.Uint16(m[4:]); kind {
			case unix.NLMSG_DONE:
				done = true
				if len(m) >= unix.SizeofNlMsghdr+4 {
					return c.refusal(s, unix.Errno(-int32(binary.NativeEndian.Uint32(m[unix.SizeofNlMsghdr:])))) //nolint:gosec // the kernel's own sign
				}
			case unix.NLMSG_ERROR:
				done = true
				a, _ := parseAnswer(m)
				return c.refusal(s, a.errno)
			default:
				// The kernel flags no torn dump of elements, but says in each part of
				// which generation it is.
				if len(m) >= headerSize {
					if moment == nil {
						moment = bytes.Clone(m[headerSize-2 : headerSize])
					}
					torn = torn || !bytes.Equal(moment, m[headerSize-2:headerSize])
				}
				parts++
				if failed == nil {
					failed = parseElements(m, &p)
				}
			}
			return nil
		})
		if err != nil {
			return false, err
		}
		if done {
			break
		}
	}
	// The socket is read to the end in any case: it is to be used again.
	if failed == nil {
		failed = p.finish()
	}
	torn = torn || parts > 1 && seen.twice()
	if torn && errors.Is(failed, errOrder) {
		failed = nil // it is read once more
	}
	return torn, failed
}

func (c *Conn) refusal(s Set, number unix.Errno) error {
	if number == 0 {
		return nil
	}
	return &Error{Doing: doing(unix.NFT_MSG_GETSETELEM), Set: s, Errno: number, cause: causeOf(number, message{set: s, verb: unix.NFT_MSG_GETSETELEM}, false)}
}

// Lookup reads one element of a set by its key; it is false where there is none.
// Of sets of kind Exact alone.
func (c *Conn) Lookup(ctx context.Context, s Set, key []byte) (found Element, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return Element{}, false, err
	}
	p := pairs{set: s, each: func(e Element) error { found, ok = e.clone(), true; return nil }}
	answer, err := c.ask(s, func(b *batch) error {
		b.message(unix.NFT_MSG_GETSETELEM, 0, s)
		defer b.close()
		return b.element(s, Element{Key: key}, true)
	}, func(m []byte) error { return parseElements(m, &p) })
	if err == nil && answer.errno != 0 {
		if problem := c.batch.problem(answer); !errors.Is(problem, ErrNoElement) {
			err = problem
		}
	}
	return found, ok, err
}

func (e Element) clone() Element {
	e.Key, e.End = bytes.Clone(e.Key), bytes.Clone(e.End)
	return e
}

var errShort = errors.New("a netlink message that is cut off")

func eachMessage(data []byte, f func(m []byte) error) error {
	for len(data) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(data))
		if size < unix.SizeofNlMsghdr || size > len(data) {
			return errShort
		}
		if err := f(data[:size]); err != nil {
			return err
		}
		data = data[min((size+3)&^3, len(data)):]
	}
	return nil
}

// eachAttribute calls f with the kind of every attribute, without flags.
func eachAttribute(data []byte, f func(kind uint16, v []byte) error) error {
	for len(data) >= 4 {
		size := int(binary.NativeEndian.Uint16(data))
		if size < 4 || size > len(data) {
			return errShort
		}
		kind := binary.NativeEndian.Uint16(data[2:]) & typeMask
		if err := f(kind, data[4:size]); err != nil {
			return err
		}
		data = data[min((size+3)&^3, len(data)):]
	}
	return nil
}

// parseElements reads one message of a dump.
func parseElements(m []byte, p *pairs) error {
	if binary.NativeEndian.Uint16(m[4:]) != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWSETELEM || len(m) < headerSize {
		return nil
	}
	return eachAttribute(m[headerSize:], func(kind uint16, list []byte) error {
		if kind != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return nil
		}
		return eachAttribute(list, func(kind uint16, body []byte) error {
			if kind != unix.NFTA_LIST_ELEM {
				return nil
			}
			n, err := p.parser.node(body)
			if err != nil {
				return err
			}
			return p.node(n)
		})
	})
}

// node is what the kernel keeps: an element, or the end of one.
type node struct {
	key, keyEnd []byte
	flags       uint32
	Element
}

// parser keeps the last name of a chain: maps have few, and many elements.
type parser struct{ chain string }

func parseNode(body []byte) (node, error) { return new(parser).node(body) }

func (p *parser) node(body []byte) (n node, err error) {
	n.Forever = true
	err = eachAttribute(body, func(kind uint16, v []byte) error {
		switch kind {
		case unix.NFTA_SET_ELEM_KEY:
			n.key, err = value(v)
		case elemKeyEnd:
			n.keyEnd, err = value(v)
		case unix.NFTA_SET_ELEM_FLAGS:
			if len(v) != 4 {
				return errShort
			}
			n.flags = binary.BigEndian.Uint32(v)
		case unix.NFTA_SET_ELEM_DATA:
			n.Verdict, err = p.verdict(v)
		case unix.NFTA_SET_ELEM_TIMEOUT:
			n.Timeout, err = duration(v)
		case unix.NFTA_SET_ELEM_EXPIRATION:
			n.Forever = false
			n.Expires, err = duration(v)
		case unix.NFTA_SET_ELEM_USERDATA:
			n.Comment = commentOf(v)
		case unix.NFTA_SET_ELEM_EXPR:
			err = n.expression(v)
		case elemExprs:
			err = eachAttribute(v, func(_ uint16, one []byte) error { return n.expression(one) })
		}
		return err
	})
	return n, err
}

func value(v []byte) (key []byte, err error) {
	err = eachAttribute(v, func(kind uint16, body []byte) error {
		if kind == unix.NFTA_DATA_VALUE {
			key = body
		}
		return nil
	})
	if err == nil && len(key) > maxKey {
		err = errKey
	}
	return key, err
}

func (p *parser) verdict(data []byte) (out Verdict, err error) {
	err = eachAttribute(data, func(kind uint16, v []byte) error {
		if kind != unix.NFTA_DATA_VERDICT {
			return nil
		}
		return eachAttribute(v, func(kind uint16, v []byte) error {
			switch {
			case kind == unix.NFTA_VERDICT_CODE && len(v) == 4:
				code := int32(binary.BigEndian.Uint32(v)) //nolint:gosec // the kernel's own sign
				for does, c := range verdictCodes {
					if c == code && Does(does) != None {
						out.Does = Does(does)
					}
				}
			case kind == unix.NFTA_VERDICT_CHAIN:
				name := bytes.TrimRight(v, "\x00")
				if string(name) != p.chain {
					p.chain = string(name)
				}
				out.Chain = p.chain
			}
			return nil
		})
	})
	return out, err
}

func duration(v []byte) (time.Duration, error) {
	if len(v) != 8 {
		return 0, errShort
	}
	ms := binary.BigEndian.Uint64(v)
	if ms > uint64((1<<63-1)/time.Millisecond) {
		return 1<<63 - 1, nil
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// commentOf finds the comment in what nft keeps with an element: type, length
// and value of one byte, one byte and length bytes.
func commentOf(data []byte) string {
	for len(data) >= 2 {
		kind, size := data[0], int(data[1])
		if 2+size > len(data) {
			return ""
		}
		if kind == userComment {
			return string(bytes.TrimRight(data[2:2+size], "\x00"))
		}
		data = data[2+size:]
	}
	return ""
}

// expression reads one expression of an element; the kernel gives its name first.
func (n *node) expression(expr []byte) error {
	var is *Expression // nil is a counter
	return eachAttribute(expr, func(kind uint16, v []byte) error {
		switch {
		case kind == unix.NFTA_EXPR_NAME:
			if name := string(bytes.TrimRight(v, "\x00")); name != "counter" {
				n.Does = append(n.Does, Expression{Name: name})
				is = &n.Does[len(n.Does)-1]
			}
		case kind == unix.NFTA_EXPR_DATA && is == nil:
			n.Counted = true
			return eachAttribute(v, n.counted)
		case kind == unix.NFTA_EXPR_DATA:
			return eachAttribute(v, is.read)
		}
		return nil
	})
}

func (n *node) counted(kind uint16, v []byte) error {
	switch {
	case len(v) != 8:
	case kind == unix.NFTA_COUNTER_BYTES:
		n.Bytes = binary.BigEndian.Uint64(v)
	case kind == unix.NFTA_COUNTER_PACKETS:
		n.Packets = binary.BigEndian.Uint64(v)
	}
	return nil
}

// read reads one attribute of an expression.
func (x *Expression) read(kind uint16, v []byte) error {
	var long uint64
	var short uint32
	switch len(v) {
	case 8:
		long = binary.BigEndian.Uint64(v)
	case 4:
		short = binary.BigEndian.Uint32(v)
	default:
		return nil
	}
	switch {
	case x.Name == "limit" && kind == unix.NFTA_LIMIT_RATE:
		x.Packets = long
	case x.Name == "limit" && kind == unix.NFTA_LIMIT_UNIT:
		x.Per = time.Duration(min(long, uint64(1<<63-1)/uint64(time.Second))) * time.Second //nolint:gosec // bounded
	case x.Name == "limit" && kind == unix.NFTA_LIMIT_BURST:
		x.Burst = short
	case x.Name == "limit" && kind == unix.NFTA_LIMIT_TYPE:
		x.Bytes = short == unix.NFT_LIMIT_PKT_BYTES
	case x.Name == "limit" && kind == unix.NFTA_LIMIT_FLAGS, x.Name == "connlimit" && kind == connFlags:
		x.Over = short&flagInverted != 0
	case x.Name == "connlimit" && kind == connCount:
		x.Most = short
	}
	return nil
}

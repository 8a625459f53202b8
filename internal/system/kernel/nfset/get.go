package nfset

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	setCount   = 20 // NFTA_SET_COUNT, of Linux 6.17 and later
	maxMissing = 64
)

// DumpOf is Dump for a set of kind Exact that is likely to hold these keys and no
// others. Many are asked for one by one, each of which the kernel finds at once, and
// the number of elements that the kernel gives says that there are no others: 300,000
// addresses take 1 s of a processor instead of 5. Where more than a few are missing,
// there are others, or the ruleset changes meanwhile, all is dumped.
func (c *Conn) DumpOf(ctx context.Context, s Set, keys [][]byte, begin func(), each func(Element) error) error {
	if len(keys) >= c.many {
		if err := ctx.Err(); err != nil {
			return err
		}
		begin()
		if all, err := c.get(s, keys, each); all || err != nil {
			return err
		}
	}
	return c.Dump(ctx, s, begin, each)
}

// manyKeys is from how many elements on it is quicker to ask for each than to dump all.
const manyKeys = 50_000

// get reads elements by their keys. It is false where these are not all elements of
// the set at one moment, or where that is not known.
func (c *Conn) get(s Set, keys [][]byte, each func(Element) error) (all bool, err error) {
	var moment []byte
	torn := false
	at := func(m []byte) {
		if moment == nil {
			moment = bytes.Clone(m[headerSize-2 : headerSize])
		}
		torn = torn || !bytes.Equal(moment, m[headerSize-2:headerSize])
	}
	total, missing, found := -1, 0, 0
	answer, err := c.ask(s, func(b *batch) error {
		b.bare(unix.NFT_MSG_GETSET, s)
		return nil
	}, func(m []byte) error {
		at(m)
		return eachAttribute(m[headerSize:], func(kind uint16, v []byte) error {
			if kind == setCount && len(v) == 4 {
				total = int(binary.BigEndian.Uint32(v))
			}
			return nil
		})
	})
	if err != nil || answer.errno != 0 || total < len(keys)-maxMissing || total > len(keys) {
		return false, err
	}
	p := pairs{set: s, each: func(e Element) error {
		found++
		return each(e)
	}}
	parse := func(m []byte) error {
		at(m)
		return parseElements(m, &p)
	}
	questions, stop, err := c.questions(s, keys)
	if err != nil {
		return false, err
	}
	defer stop()
	for q := range questions {
		for err := q.err; ; err = q.send(s) {
			if err != nil {
				return false, err
			}
			before := found
			answer, err := q.conn.take(s, parse)
			switch given := found - before; {
			case err != nil:
				return false, err
			case torn:
				return false, nil
			case answer.errno == 0 && given == len(q.keys):
				q.keys = nil
			case answer.errno == unix.ENOENT && missing < maxMissing && given < len(q.keys):
				// The kernel stops at what it does not find.
				missing++
				q.keys = q.keys[given+1:]
			default:
				return false, nil
			}
			if len(q.keys) == 0 {
				break
			}
		}
		q.answered()
	}
	return found == total, nil
}

// question is a message that asks for elements.
type question struct {
	conn     *Conn
	keys     [][]byte
	err      error
	answered func()
}

// send asks for the first keys, and keeps only these.
func (q *question) send(s Set) error {
	return q.conn.put(s, func(b *batch) error {
		b.message(unix.NFT_MSG_GETSETELEM, 0, s)
		defer b.close()
		for i, key := range q.keys {
			if b.full() {
				q.keys = q.keys[:i]
				break
			}
			if err := b.element(s, Element{Key: key}, true); err != nil {
				return err
			}
		}
		return nil
	})
}

// questions asks for keys, by two sockets in turns: the kernel looks for those of a
// message while it is sent, so one is asked while the answer of the other is read.
func (c *Conn) questions(s Set, keys [][]byte) (out <-chan *question, stop func(), err error) {
	second, err := Open()
	if err != nil {
		return nil, nil, err
	}
	free, asked, stopped := make(chan *Conn, 2), make(chan *question), make(chan struct{})
	free <- c
	free <- second
	var asking sync.WaitGroup
	asking.Go(func() {
		defer close(asked)
		for len(keys) > 0 {
			var q question
			select {
			case q.conn = <-free:
			case <-stopped:
				return
			}
			q.answered = func() { free <- q.conn }
			q.keys = keys
			q.err = q.send(s)
			keys = keys[len(q.keys):]
			select {
			case asked <- &q:
			case <-stopped:
				return
			}
		}
	})
	return asked, func() {
		close(stopped)
		asking.Wait()
		_ = second.Close()
	}, nil
}

// ask sends one message and reads what the kernel answers, all of which is there when
// the message is sent; without an acknowledgement it found no room.
func (c *Conn) ask(s Set, write func(*batch) error, each func(m []byte) error) (answer reply, err error) {
	if err := c.put(s, write); err != nil {
		return answer, err
	}
	return c.take(s, each)
}

// put is the first half of ask.
func (c *Conn) put(s Set, write func(*batch) error) error {
	c.sequence++
	b := &c.batch
	b.buf, b.messages, b.list = b.buf[:0], append(b.messages[:0], message{}), 0
	b.first = c.sequence - 1
	if err := write(b); err != nil {
		return err
	}
	b.flags(0, unix.NLM_F_ACK)
	if err := c.send(b.buf); err != nil {
		return fmt.Errorf("ask for set %s %s: %w", s.Table, s.Name, err)
	}
	return nil
}

// take is the second half of ask.
func (c *Conn) take(s Set, each func(m []byte) error) (answer reply, err error) {
	answer.errno = unix.ENOBUFS
	var failed error
	for {
		n, err := c.receive(false)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return answer, failed
		case errors.Is(err, unix.ENOBUFS):
			continue
		case err != nil:
			return answer, fmt.Errorf("read set %s %s: %w", s.Table, s.Name, err)
		}
		err = eachMessage(c.answers[:n], func(m []byte) error {
			if binary.NativeEndian.Uint32(m[8:]) != c.sequence {
				return nil
			}
			if a, is := parseAnswer(m); is {
				answer = a
			} else if failed == nil && len(m) >= headerSize {
				failed = each(m)
			}
			return nil
		})
		if err != nil {
			return answer, err
		}
	}
}

package nfset

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/nft"
)

const (
	// transaction is how many bytes of elements go into one transaction, where
	// it may be cut: with them, both copies of the message and what the kernel
	// notes for each element of an open transaction stay small.
	transaction = 1 << 20
	// large is from where on the memory for a whole transaction is taken at once.
	large = 64 << 10
	// sendBuffer and receiveBuffer are what is asked of the kernel, which
	// doubles it. A whole transaction has to fit into the former.
	sendBuffer    = 16 << 20
	receiveBuffer = 4 << 20
	// answer is the size of one read: the kernel makes no larger parts of a dump
	// (netlink_recvmsg).
	answer = 32 << 10
	// overhead is what netlink_sendmsg keeps of the send buffer for itself.
	overhead = 32
)

// Conn is a socket. It is for one goroutine at a time.
type Conn struct {
	socket   *nft.Socket
	raw      syscall.RawConn
	limit    int // bytes that one transaction may have, from the size of the send buffer
	cut      int // bytes after which a transaction that may be cut is
	many     int // keys from which on DumpOf asks for each
	sequence uint32
	batch    batch
	answers  *[answer]byte // of buffers, until it is closed
}

// buffers are of who opens a socket for each question, as bans do.
var buffers = sync.Pool{New: func() any { return new([answer]byte) }}

// Open opens a socket in the network namespace of the calling thread; used by
// other threads it stays there.
func Open() (*Conn, error) {
	socket, err := nft.Dial()
	if err != nil {
		return nil, err
	}
	c := &Conn{socket: socket, many: manyKeys, answers: buffers.Get().(*[answer]byte)}
	c.raw, err = socket.SyscallConn()
	if err == nil && socket.Granted == 0 {
		err = c.configure(sendBuffer, receiveBuffer)
	}
	c.allow(socket.Granted)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up a netlink socket: %w", err), c.Close())
	}
	return c, nil
}

// configure asks for buffers, past the machine's limit (net.core.wmem_max)
// where the process may.
func (c *Conn) configure(send, receive int) error {
	if err := c.socket.SetWriteBuffer(send); err != nil {
		return err
	}
	if err := c.socket.SetReadBuffer(receive); err != nil {
		return err
	}
	granted, err := c.socket.WriteBuffer()
	if err != nil {
		return err
	}
	c.socket.Granted = granted
	c.allow(granted)
	// Both make answers about errors small and exact, and neither is needed.
	_ = c.socket.SetOption(netlink.CapAcknowledge, true)
	_ = c.socket.SetOption(netlink.ExtendedAcknowledge, true)
	return nil
}

// allow bounds transactions by a send buffer.
func (c *Conn) allow(granted int) {
	c.limit = granted - overhead
	c.cut = min(transaction, c.limit)
}

// Close closes the socket.
func (c *Conn) Close() error {
	if c.answers != nil {
		buffers.Put(c.answers)
		c.answers = nil
	}
	return c.socket.Close()
}

// Change is one change of what a set holds. Elements that are to be deleted
// have to be there; one that is to be added may be, as it is given. First it is
// deleted, then added.
type Change struct {
	Set    Set
	Flush  bool // everything goes, before anything else
	Delete iter.Seq[Element]
	Add    iter.Seq[Element]
}

// Edit makes the changes in one transaction. It fails with ErrTooLarge where
// the send buffer does not take them.
func (c *Conn) Edit(ctx context.Context, changes ...Change) error {
	return c.edit(ctx, false, changes...)
}

// Fill makes the changes in as many transactions as they need: for sets that no
// rule uses yet, or whose elements may come and go one after the other.
func (c *Conn) Fill(ctx context.Context, changes ...Change) error {
	return c.edit(ctx, true, changes...)
}

// Add adds elements, as Fill does.
func (c *Conn) Add(ctx context.Context, s Set, elements iter.Seq[Element]) error {
	return c.edit(ctx, true, Change{Set: s, Add: elements})
}

// Delete deletes elements, as Fill does.
func (c *Conn) Delete(ctx context.Context, s Set, elements iter.Seq[Element]) error {
	return c.edit(ctx, true, Change{Set: s, Delete: elements})
}

// Drop deletes sets, which no rule uses, in one transaction. It takes next to no
// memory, whatever they hold, and gives that back.
func (c *Conn) Drop(ctx context.Context, sets ...Set) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.sequence++
	c.batch.begin(c.sequence)
	for _, s := range sets {
		c.batch.bare(unix.NFT_MSG_DELSET, s)
	}
	return c.commit()
}

// edit writes the changes and sends what was written when it is enough, where
// the transaction may be cut.
func (c *Conn) edit(ctx context.Context, cut bool, changes ...Change) error {
	w := writer{c: c, ctx: ctx, cut: cut}
	w.begin()
	for _, change := range changes {
		if change.Flush {
			c.batch.bare(unix.NFT_MSG_DELSETELEM, change.Set)
		}
		w.elements(unix.NFT_MSG_DELSETELEM, 0, change.Set, change.Delete)
		w.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, change.Set, change.Add)
	}
	if w.err == nil && !c.batch.empty() {
		w.send()
	}
	return w.err
}

type writer struct {
	c   *Conn
	ctx context.Context
	cut bool
	err error
}

func (w *writer) begin() {
	w.c.sequence++
	w.c.batch.begin(w.c.sequence)
}

func (w *writer) elements(verb, flags uint16, s Set, elements iter.Seq[Element]) {
	if w.err != nil || elements == nil {
		return
	}
	b := &w.c.batch
	limit := w.c.limit
	if w.cut {
		limit = w.c.cut
	}
	first := true
	for e := range elements {
		if first || b.full() {
			b.message(verb, flags, s)
			first = false
		}
		before := len(b.buf)
		if w.cut && before > large {
			b.buf = slices.Grow(b.buf, max(0, w.c.cut-before)) // a new message may have gone over it
		}
		if w.err = b.element(s, e, verb == unix.NFT_MSG_DELSETELEM); w.err != nil {
			return
		}
		if len(b.buf)+batchSize <= limit {
			continue
		}
		// It was one too many: it begins the next transaction.
		b.buf = b.buf[:before]
		if before == b.list+attributeHeader {
			b.takeBack()
		}
		if !w.cut || b.empty() {
			w.err = &Error{Doing: doing(verb), Set: s, cause: ErrTooLarge}
			return
		}
		if w.send(); w.err != nil {
			return
		}
		w.begin()
		b.message(verb, flags, s)
		if w.err = b.element(s, e, verb == unix.NFT_MSG_DELSETELEM); w.err != nil {
			return
		}
	}
	b.close()
}

func (w *writer) send() {
	if w.err = w.ctx.Err(); w.err == nil {
		w.err = w.c.commit()
	}
}

// commit sends the batch. The kernel works it off inside the system call and
// has queued its answers when that returns.
func (c *Conn) commit() error {
	b := &c.batch
	b.end()
	c.sequence = b.next()
	generation := func() (uint32, error) { return nft.GenerationBy(c.socket.Conn) }
	return c.socket.Of.Count(generation, c.exchange)
}

func (c *Conn) exchange() error {
	b := &c.batch
	if err := c.send(b.buf); err != nil {
		return &Error{Doing: doing(b.messages[len(b.messages)-1].verb), Set: b.messages[len(b.messages)-1].set, cause: sendCause(err), Errno: errno(err)}
	}
	return c.outcome()
}

func (c *Conn) send(message []byte) error {
	var sent error
	err := c.raw.Write(func(fd uintptr) bool {
		for {
			sent = unix.Sendto(int(fd), message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
			if !errors.Is(sent, unix.EINTR) {
				break
			}
		}
		return !errors.Is(sent, unix.EAGAIN)
	})
	if err != nil {
		return err
	}
	return sent
}

// outcome reads the answers to a batch. One is asked for, so that one comes; of
// many errors some may have found no room, but the first always does.
func (c *Conn) outcome() error {
	var first *Error
	done := false
	for {
		n, err := c.receive(false)
		switch {
		case errors.Is(err, unix.EAGAIN):
			switch {
			case first != nil:
				return first
			case done:
				return nil
			}
			last := c.batch.messages[len(c.batch.messages)-1]
			return &Error{Doing: doing(last.verb), Set: last.set, cause: ErrNoAnswer}
		case errors.Is(err, unix.ENOBUFS):
			continue // errors come before what was asked for
		case err != nil:
			return fmt.Errorf("read the kernel's answer: %w", err)
		}
		err = eachMessage(c.answers[:n], func(m []byte) error {
			a, ok := parseAnswer(m)
			if !ok || a.sequence-c.batch.first > uint32(len(c.batch.messages)) { //nolint:gosec // wraps for what is older
				return nil
			}
			if a.errno == 0 {
				done = true
			} else if first == nil {
				first = c.batch.problem(a)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

// receive reads once into answers.
func (c *Conn) receive(wait bool) (n int, err error) {
	readErr := c.raw.Read(func(fd uintptr) bool {
		for {
			n, _, err = unix.Recvfrom(int(fd), c.answers[:], unix.MSG_DONTWAIT)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		return !wait || !errors.Is(err, unix.EAGAIN)
	})
	if readErr != nil {
		return 0, readErr
	}
	return n, err
}

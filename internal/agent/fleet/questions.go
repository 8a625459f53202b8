package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"sluice/internal/fleet/wire"
)

// pieceGap is the least time between two pieces of an answer that are not full: who follows a
// log is told of many lines at once.
const pieceGap = 50 * time.Millisecond

// questions are those of one stream that are being answered.
type questions struct {
	mutex sync.Mutex
	of    map[int64]*answer
}

// answer is what a question is answered with, a piece at a time, as far as the controller lets
// it go on. It is the http.ResponseWriter of the request.
type answer struct {
	header http.Header
	cancel context.CancelFunc
	ctx    context.Context //nolint:containedctx // it is that of the request

	mutex    sync.Mutex
	changed  chan struct{} // closed, and rebuilt, when something below changes
	buffer   bytes.Buffer
	flushed  bool      // what is in the buffer is to be sent
	ended    bool      // nothing more comes
	status   int       // 0: nothing is written yet
	pieces   int       // that may be sent
	deadline time.Time // of writing; zero: there is none
}

// begin answers a question, unless too many are being answered: what was asked on a stream before
// counts until it is computed, for nobody. No stream waits for that.
func (qs *questions) begin(ctx context.Context, m *Member, s Stream, q *wire.Question) error {
	asked, cancel := context.WithCancel(ctx)
	a := &answer{header: http.Header{}, cancel: cancel, ctx: asked, changed: make(chan struct{}), pieces: wire.Pieces}
	qs.mutex.Lock()
	_, twice := qs.of[q.Id]
	full := m.answering.Add(1) > wire.MostQuestions
	if !twice && !full {
		if qs.of == nil {
			qs.of = map[int64]*answer{}
		}
		qs.of[q.Id] = a
	}
	qs.mutex.Unlock()
	if twice || full {
		m.answering.Add(-1)
		cancel()
		return m.send(ctx, s, &wire.Message{Answer: &wire.Piece{Id: q.Id, Status: http.StatusTooManyRequests, Last: true}})
	}
	m.running.Go(func() {
		defer m.answering.Add(-1)
		defer cancel()
		var serving sync.WaitGroup
		serving.Go(func() { m.serve(a, q) })
		_ = a.sendAll(ctx, m, s, q.Id) // an error is the end of the stream, or of the question
		cancel()
		serving.Wait()
		qs.mutex.Lock()
		delete(qs.of, q.Id)
		qs.mutex.Unlock()
	})
	return nil
}

// pace lets an answer go on, or ends it.
func (qs *questions) pace(p *wire.Pace) {
	qs.mutex.Lock()
	a := qs.of[p.Id]
	qs.mutex.Unlock()
	switch {
	case a == nil: // it has been answered
	case p.Cancel:
		a.cancel()
	default:
		a.change(func() { a.pieces = min(a.pieces+p.Pieces, wire.Pieces) })
	}
}

// serve has the agent answer.
func (m *Member) serve(a *answer, q *wire.Question) {
	defer a.change(func() { a.ended = true })
	defer func() {
		if p := recover(); p != nil {
			m.note(fmt.Errorf("a question of the fleet, %s %s: %v", q.Method, q.Path, p))
			a.WriteHeader(http.StatusInternalServerError)
		}
	}()
	address := q.Path
	if q.Query != "" {
		address += "?" + q.Query
	}
	r, err := http.NewRequestWithContext(a.ctx, string(q.Method), address, bytes.NewReader(q.Body))
	if err != nil || m.Answers == nil {
		a.WriteHeader(http.StatusNotFound)
		return
	}
	r.Header.Set("Accept", q.Accept)
	m.Answers.ServeHTTP(a, r)
}

// change changes something, and wakes who waits for that.
func (a *answer) change(f func()) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	f()
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.status == 0 {
		a.status = status
	}
}

// Write waits while a piece that is full is not sent.
func (a *answer) Write(text []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	written := 0
	for written < len(text) {
		a.mutex.Lock()
		room, deadline, changed := wire.MostPiece-a.buffer.Len(), a.deadline, a.changed
		a.mutex.Unlock()
		if room > 0 {
			n := min(room, len(text)-written)
			a.change(func() { a.buffer.Write(text[written : written+n]) })
			written += n
			continue
		}
		if err := a.await(changed, deadline); err != nil {
			return written, err
		}
	}
	return written, nil
}

// await waits for a change, until a deadline.
func (a *answer) await(changed <-chan struct{}, deadline time.Time) error {
	var over <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		over = t.C
	}
	select {
	case <-changed:
		return nil
	case <-over:
		return os.ErrDeadlineExceeded
	case <-a.ctx.Done():
		return context.Cause(a.ctx)
	}
}

// FlushError is for http.ResponseController.
func (a *answer) FlushError() error {
	a.change(func() { a.flushed = true })
	return a.ctx.Err()
}

// SetWriteDeadline is for http.ResponseController.
func (a *answer) SetWriteDeadline(at time.Time) error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.deadline = at
	return nil
}

// SetReadDeadline is for http.ResponseController: the request is here whole.
func (a *answer) SetReadDeadline(time.Time) error { return nil }

var errCancelled = errors.New("nobody waits for the answer any longer")

// sendAll sends the pieces until the last one. Its context is that of the stream: a message that
// is cut would end that.
func (a *answer) sendAll(ctx context.Context, m *Member, s Stream, id int64) error {
	for first := true; ; first = false {
		p, err := a.piece(id, first)
		if err != nil {
			return err
		}
		if err := m.send(ctx, s, &wire.Message{Answer: p}); err != nil || p.Last {
			return err
		}
		if len(p.Body) < wire.MostPiece {
			a.rest()
		}
	}
}

// rest is the pause behind a piece that was not full. The end of the answer ends it.
func (a *answer) rest() {
	until := time.Now().Add(pieceGap)
	for {
		a.mutex.Lock()
		over, changed := a.ended || a.buffer.Len() == wire.MostPiece, a.changed
		a.mutex.Unlock()
		if over || a.await(changed, until) != nil {
			return
		}
	}
}

// piece is the next one, once there is one and it may be sent.
func (a *answer) piece(id int64, first bool) (*wire.Piece, error) {
	for {
		a.mutex.Lock()
		n := a.buffer.Len()
		if a.pieces > 0 && (a.ended || n == wire.MostPiece || a.flushed && (first || n > 0)) {
			p := &wire.Piece{Id: id, Body: bytes.Clone(a.buffer.Bytes()), Last: a.ended}
			if first {
				p.Status, p.Type = a.status, a.header.Get("Content-Type")
			}
			a.buffer.Reset()
			a.flushed = false
			a.pieces--
			close(a.changed)
			a.changed = make(chan struct{})
			a.mutex.Unlock()
			return p, nil
		}
		changed := a.changed
		a.mutex.Unlock()
		if a.await(changed, time.Time{}) != nil {
			return nil, errCancelled
		}
	}
}

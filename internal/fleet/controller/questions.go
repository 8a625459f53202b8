package controller

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"sluice/internal/fleet/wire"
	"sluice/web"
)

// How many questions are asked at once. Each has wire.Pieces of wire.MostPiece bytes in memory
// where who asks reads slowly.
const (
	mostQuestions = 256 // by people and programs
	mostOfHost    = 8
	mostOfCaller  = 32 // by one principal
)

// questions are those that hosts have not answered whole.
type questions struct {
	mutex sync.Mutex
	last  int64
	of    map[int64]*question
	late  map[string]int // by host, pieces under way of answers that nobody waits for any more
}

// question is one.
type question struct {
	host, principal string
	log             bool // of many hosts, which takes no place: see mostLogs
	id              int64
	pieces          chan *wire.Piece // as many as may be under way
	gone            chan struct{}    // the stream has ended, or the host has broken the rules
	once            sync.Once        // of gone
}

func (q *question) end() { q.once.Do(func() { close(q.gone) }) }

func (qs *questions) init() { qs.of, qs.late = map[int64]*question{}, map[string]int{} }

// begin takes a place for a question.
func (qs *questions) begin(host, principal string) (*question, error) {
	qs.mutex.Lock()
	defer qs.mutex.Unlock()
	all, ofHost, ofOne := 0, 0, 0
	for _, q := range qs.of {
		if q.log {
			continue
		}
		all++
		if q.host == host {
			ofHost++
		}
		if principal != "" && q.principal == principal {
			ofOne++
		}
	}
	switch {
	case ofHost >= mostOfHost:
		return nil, &wire.Failure{Text: fmt.Sprintf("%s is answering %d questions already", host, ofHost), Kind: wire.KindBusy}
	case ofOne >= mostOfCaller:
		return nil, &wire.Failure{Text: fmt.Sprintf("you are asking hosts %d questions already", ofOne), Kind: wire.KindBusy}
	case all >= mostQuestions:
		return nil, &wire.Failure{Text: fmt.Sprintf("hosts are answering %d questions already", all), Kind: wire.KindBusy}
	}
	return qs.add(host, principal), nil
}

// add is called with the mutex.
func (qs *questions) add(host, principal string) *question {
	qs.last++
	q := &question{host: host, principal: principal, id: qs.last, pieces: make(chan *wire.Piece, wire.Pieces), gone: make(chan struct{})}
	qs.of[q.id] = q
	return q
}

// forget ends a question. What the host may have sent of the rest is not its fault.
func (qs *questions) forget(q *question, whole bool) {
	qs.mutex.Lock()
	defer qs.mutex.Unlock()
	delete(qs.of, q.id)
	if !whole {
		qs.late[q.host] += cap(q.pieces) - len(q.pieces)
	}
}

// answeredBy is the question that a piece answers, and whether one that comes too late was let.
func (qs *questions) answeredBy(host string, p *wire.Piece) (q *question, late bool) {
	qs.mutex.Lock()
	defer qs.mutex.Unlock()
	if q = qs.of[p.Id]; q != nil && q.host == host {
		return q, false
	}
	if late = qs.late[host] > 0; late {
		qs.late[host]--
	}
	return nil, late
}

// left ends the questions to a host that has gone.
func (qs *questions) left(host string) {
	qs.mutex.Lock()
	defer qs.mutex.Unlock()
	delete(qs.late, host)
	for _, q := range qs.of {
		if q.host == host {
			q.end()
		}
	}
}

// answers is called by the hub for each piece.
func (c *Controller) answers(host string, p *wire.Piece) bool {
	q, late := c.questions.answeredBy(host, p)
	if q == nil {
		return late
	}
	select {
	case q.pieces <- p:
		return true
	default: // it has not waited for its turn
		q.end()
		return false
	}
}

// errHostGone says that a host has ended its stream before its answer.
var errHostGone = &wire.Failure{Text: "the host went offline before it had answered", Kind: wire.KindUnavailable}

// ask asks a host. Whoever asks forgets the question when they have done.
func (c *Controller) ask(q *question, is wire.Question) error {
	is.Id = q.id
	message, err := wire.Encode(&wire.Message{Question: &is})
	if err != nil {
		return wrong("%v", err)
	}
	if !c.hub.Question(q.host, message) {
		return offline(q.host)
	}
	return nil
}

var errEnding = &wire.Failure{Text: "the controller ends", Kind: wire.KindUnavailable}

func offline(host string) *wire.Failure {
	return &wire.Failure{Text: fmt.Sprintf("%s is not connected to this controller: where another one of the fleet has it, ask that one", host), Kind: wire.KindUnavailable}
}

// able says why a host cannot be asked.
func (c *Controller) able(host string) error {
	h, has := c.view.Load().hosts[host]
	if !has || !h.Revoked.IsZero() {
		return &wire.Failure{Text: fmt.Sprintf("there is no host %.253q", host), Kind: wire.KindNotFound}
	}
	if _, is := c.hub.Online()[host]; !is {
		return offline(host)
	}
	if k := c.statuses.read(host); k.protocol < wire.LevelQuestions {
		return &wire.Failure{Text: fmt.Sprintf("the agent of %s, of version %s, is unable to answer questions: upgrade it", host, k.version), Kind: wire.KindProtocol}
	}
	return nil
}

// next is the next piece of an answer. The host may send another one once it is read.
func (c *Controller) next(ctx context.Context, q *question) (*wire.Piece, error) {
	select {
	case p := <-q.pieces:
		if !p.Last {
			c.hub.Pace(q.host, wire.Pace{Id: q.id, Pieces: 1})
		}
		return p, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-q.gone:
	}
	select {
	case p := <-q.pieces: // it came before
		return p, nil
	default:
		return nil, errHostGone
	}
}

// drop ends a question, whatever of its answer is still to come.
func (c *Controller) drop(q *question, whole bool) {
	c.questions.forget(q, whole)
	if !whole {
		c.hub.Pace(q.host, wire.Pace{Id: q.id, Cancel: true})
	}
}

// RestoreHost has a host load once more what it runs.
func (o operator) RestoreHost(w http.ResponseWriter, r *http.Request, host string) {
	who := as(r)
	err := o.host(who, host)
	if err == nil {
		err = o.able(host)
	}
	if err == nil {
		err = o.Store.RestoreAsked(r.Context(), who.Who, host)
	}
	if err == nil {
		var message []byte
		if message, err = wire.Encode(&wire.Message{Restore: &wire.Restore{By: strings.ToValidUTF8(who.Who[:min(len(who.Who), mostBy)], "")}}); err == nil && !o.hub.Question(host, message) {
			err = offline(host)
		}
	}
	o.done(w, nil, err)
}

// mostBy is how many bytes of who asks a host is told.
const mostBy = 253

// askHost passes a request on to the agent of a host, and its answer back.
func (o operator) askHost(w http.ResponseWriter, r *http.Request) {
	who, host := as(r), r.PathValue("host")
	err := o.host(who, host)
	if err == nil {
		err = o.able(host)
	}
	body, tooLong := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MostQuestion))
	if err == nil && tooLong != nil {
		err = wrong("the request is wrong: %v", tooLong)
	}
	var q *question
	if err == nil {
		q, err = o.questions.begin(host, who.principal())
	}
	if err != nil {
		o.done(w, nil, err)
		return
	}
	whole := false
	defer func() { o.drop(q, whole) }()
	_, path, _ := strings.Cut(r.URL.EscapedPath(), "/agent/")
	accept := r.Header.Get("Accept")
	if web.WantsEvents(r) {
		accept = lines
	}
	err = o.ask(q, wire.Question{Method: wire.Method(r.Method), Path: "/" + path, Query: r.URL.RawQuery, Accept: accept, Body: body})
	if err == nil {
		whole, err = o.passOn(w, r, who, q)
	}
	if err != nil {
		o.done(w, nil, err)
	}
}

// passOn writes an answer as it comes, and says whether that was all of it. An error is for who
// asks, to whom nothing was written.
func (o operator) passOn(w http.ResponseWriter, r *http.Request, who caller, q *question) (whole bool, err error) {
	out := lasting{w, eventWrite}
	rc := http.NewResponseController(out)
	_, _ = rc.SetReadDeadline(time.Time{}), rc.SetWriteDeadline(time.Time{}) // an agent may think for longer
	ctx, stop := context.WithCancelCause(r.Context())
	defer stop(nil)
	beats := time.NewTicker(eventBeat)
	defer beats.Stop()
	go func() {
		for {
			select {
			case <-beats.C:
				now, err := o.still(r, who)
				if err == nil {
					err = o.host(now, q.host)
				}
				if err != nil {
					stop(err)
					return
				}
			case <-o.events.ended:
				stop(errEnding)
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	in := &reply{c: o.Controller, ctx: ctx, q: q}
	first, err := in.next()
	if err != nil {
		return false, err
	}
	if web.WantsEvents(r) && first.Status == http.StatusOK && first.Type == lines {
		err := web.Events(out, in)
		stop(nil) // of who reads it
		return err == nil && in.last, nil
	}
	w.Header().Set("Content-Type", cmp.Or(first.Type, "application/octet-stream"))
	w.WriteHeader(cmp.Or(first.Status, http.StatusOK))
	for p := first; ; {
		if _, err := out.Write(p.Body); err != nil || rc.Flush() != nil || p.Last {
			return p.Last, nil
		}
		if p, err = in.next(); err != nil {
			panic(http.ErrAbortHandler) // so that who reads does not take the half for the whole
		}
	}
}

// lines is the media type of answers of an agent that come as it does something.
const lines = "application/x-ndjson"

// reply reads the body of an answer.
type reply struct {
	c    *Controller
	ctx  context.Context //nolint:containedctx // it is that of the request
	q    *question
	rest []byte
	last bool
}

func (in *reply) next() (*wire.Piece, error) {
	p, err := in.c.next(in.ctx, in.q)
	if err == nil {
		in.rest, in.last = p.Body, p.Last
	}
	return p, err
}

func (in *reply) Read(to []byte) (int, error) {
	for len(in.rest) == 0 {
		if in.last {
			return 0, io.EOF
		}
		if _, err := in.next(); err != nil {
			return 0, err
		}
	}
	n := copy(to, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}

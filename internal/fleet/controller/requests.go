package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
)

func shownRequest(is store.Request, whole bool) api.Request {
	words := is.Asks
	if is.State != store.RequestRefused || len(is.Body) > 0 || words == "" { // what would be done is said by its body, which the ID holds
		words = asks(is)
	}
	out := api.Request{
		Id: is.ID, What: is.What, Asks: words, State: api.RequestState(is.State), Who: is.Who, Method: is.Method, Path: is.Path, Asked: is.Asked, Expires: is.Expires,
		Decided: is.Decided, By: is.By, Alone: is.Alone, Why: is.Why, Failure: is.Failure,
	}
	if whole && json.Valid(is.Body) {
		out.Body = is.Body
	}
	if whole && json.Valid(is.Answer) {
		out.Answer = is.Answer
	}
	return out
}

// waiting is a request with what has to be known to decide on it.
type waiting struct {
	store.Request
	op    api.Operation
	at    *url.URL
	asker caller // as they are now, for the operation
	gone  error  // why the asker may ask no more, a *wire.Failure
	of    concern
}

// look reads what has to be known of a request.
func (c *Controller) look(ctx context.Context, is store.Request) (waiting, error) {
	w := waiting{Request: is}
	if is.Operation == store.Enrolling {
		return w.host()
	}
	var err error
	if w.at, err = url.ParseRequestURI(is.Path); err != nil {
		return w, wrong("request %s cannot be read: %v", is.ID, err)
	}
	for _, op := range api.Operations() {
		if op.ID == is.Operation {
			w.op = op
		}
	}
	body, known := suspendable(is.Operation)
	if !known || w.op.Approve == "" {
		return w, wrong("request %s is for %s, which this version of the controller does not have", is.ID, is.Operation)
	}
	if body != nil && len(is.Body) > 0 {
		if err := json.Unmarshal(is.Body, body); err != nil {
			return w, wrong("request %s cannot be read: %v", is.ID, err)
		}
	}
	w.asker, err = c.again(ctx, is.Who, is.Access)
	if f := (*wire.Failure)(nil); errors.As(err, &f) && f.Kind != wire.KindUnavailable {
		w.gone, err = f, nil
	}
	if err != nil {
		return w, err
	}
	asked, _ := w.asker.to(w.op.Role) // without the role: of all hosts
	w.of, err = c.concerns(is.Operation, w.at, body, asked)
	return w, err
}

// host is that of a host that asks to be let in, for the hosts with the labels of its token.
func (w waiting) host() (waiting, error) {
	w.op = api.Operation{ID: w.Operation, Role: api.Admin, Within: true, Approve: w.What}
	w.asker = caller{Who: w.Who, session: w.Access}
	var is store.Asking
	if len(w.Body) > 0 { // of one that an older version refused it is gone
		if err := json.Unmarshal(w.Body, &is); err != nil {
			return w, wrong("request %s cannot be read: %v", w.ID, err)
		}
	}
	w.of.labels = named(is.Host, is.Labels)
	return w, nil
}

// again is who asked before, with the rights that they have now. Of a person who has logged out
// or whose session has ended these are what access of fleet.yaml gives.
func (c *Controller) again(ctx context.Context, who, access string) (caller, error) {
	if access == "" {
		return caller{Who: who, Role: api.Admin}, nil
	}
	a, err := c.Store.AccessOf(ctx, access)
	c.answered(err)
	if errors.Is(err, store.ErrNotFound) {
		return caller{Who: who, session: access}, unknownCaller(who + " is not known any more")
	}
	if err != nil {
		return caller{}, err
	}
	is, err := c.callerOf(ctx, a)
	if err != nil {
		return caller{}, err
	}
	if a.Role == "" {
		return is, nil
	}
	return is, c.over(a)
}

// may says that a caller could do themselves what a request asks for.
func (c *Controller) may(who caller, w waiting) bool {
	who, has := who.to(w.op.Role)
	return has && (who.Hosts == nil || w.op.Within) && c.covers(who, w.of)
}

// shows says that a caller may know of a request: it is theirs, or for hosts of theirs.
func (c *Controller) shows(who caller, w waiting) bool {
	return who.is(w.asker) || c.covers(who, w.of)
}

func (o operator) Requests(w http.ResponseWriter, r *http.Request, params api.RequestsParams) {
	who := as(r)
	all, err := o.Store.Requests(r.Context(), params.All)
	o.answered(err)
	out := api.Requests{Requests: []api.Request{}}
	for _, is := range all {
		if err == nil {
			is, err = o.Store.Request(r.Context(), is.ID) // with its body
		}
		if errors.Is(err, store.ErrNotFound) { // it was removed meanwhile
			err = nil
			continue
		}
		if err != nil {
			break
		}
		if who.Hosts != nil {
			found, err := o.look(r.Context(), is)
			if err != nil || !o.shows(who, found) {
				continue
			}
		}
		out.Requests = append(out.Requests, o.asOfNow(is, false))
	}
	o.done(w, out, err)
}

// asOfNow is a request as it is now.
func (o operator) asOfNow(is store.Request, whole bool) api.Request {
	out := shownRequest(is, whole)
	switch {
	case out.State == api.RequestWaiting && !is.Expires.After(o.Now()):
		out.State = api.RequestExpired
	case out.State == api.RequestApproved && is.Operation != store.Enrolling && o.Now().Sub(is.Decided) > 2*answerTime:
		out.State, out.Failure = api.RequestFailed, "the controller ended while it was done: see whether it is, and ask again where it is not"
	}
	return out
}

// find is a request that a caller may know of.
func (o operator) find(r *http.Request, id string) (waiting, error) {
	is, err := o.Store.Request(r.Context(), id)
	o.answered(err)
	if err != nil {
		return waiting{}, err
	}
	found, err := o.look(r.Context(), is)
	if err == nil && !o.shows(as(r), found) {
		err = fmt.Errorf("request %.64q: %w", id, store.ErrNotFound)
	}
	return found, err
}

func (o operator) Request(w http.ResponseWriter, r *http.Request, id string) {
	found, err := o.find(r, id)
	if err != nil {
		o.done(w, nil, err)
		return
	}
	o.done(w, o.asOfNow(found.Request, true), nil)
}

func (o operator) Refuse(w http.ResponseWriter, r *http.Request, id string) {
	why, fine := in[api.Why](w, r)
	if !fine {
		return
	}
	who := as(r)
	found, err := o.find(r, id)
	if err == nil && !who.is(found.asker) && !o.may(who, found) {
		err = unpermitted("%s may not do this, and so refuses it to nobody", who.Who)
	}
	if err == nil {
		err = o.Store.Decide(r.Context(), id, who.Who, store.RequestRefused, why.Why, false)
	}
	o.decided(w, r, id, err)
}

// decided answers with a request as it became.
func (o operator) decided(w http.ResponseWriter, r *http.Request, id string, err error) {
	o.answered(err)
	var is store.Request
	if err == nil {
		is, err = o.Store.Request(r.Context(), id)
	}
	if err != nil {
		o.done(w, nil, err)
		return
	}
	o.done(w, o.asOfNow(is, true), nil)
}

func (o operator) Approve(w http.ResponseWriter, r *http.Request, id string) {
	asked, fine := in[api.Approval](w, r)
	if !fine {
		return
	}
	who := as(r)
	found, err := o.find(r, id)
	if err == nil {
		err = o.mayApprove(who, found, asked.Alone)
	}
	if err == nil {
		err = o.Store.Decide(context.WithoutCancel(r.Context()), id, who.Who, store.RequestApproved, asked.Why, asked.Alone)
	}
	if err == nil && found.Operation != store.Enrolling { // whose host comes back by itself
		failure, answer := o.carryOut(r.Context(), found)
		err = o.Store.Performed(context.WithoutCancel(r.Context()), id, failure, answer)
	}
	o.decided(w, r, id, err)
}

// mayApprove says why somebody may not approve a request.
func (o operator) mayApprove(who caller, w waiting, alone bool) error {
	local := who.session == "" && w.asker.session == "" && w.gone == nil
	switch {
	case w.State == store.RequestWaiting && w.Sum() != w.ID:
		return unpermitted("request %s is not what was asked for: somebody has changed it in the database", w.ID)
	case who.program:
		return unpermitted("%s is a program's: a person approves, who has logged in", who.Who)
	case alone && !local:
		return unpermitted("alone is for what was asked on the controller's own machine, and there")
	case !alone && !who.isAnother(w.asker):
		return unpermitted("%s has asked for this, or one of the two was given access by the other, or both by one: somebody else approves it", w.Who)
	case !o.may(who, w):
		return unpermitted("%s may not do this for all hosts that it is for, and so approves it to nobody", who.Who)
	}
	return nil
}

// carryOut does what was approved, as whoever asked, with what they may now.
func (o operator) carryOut(ctx context.Context, w waiting) (failure string, answer []byte) {
	if w.gone != nil {
		return w.gone.Error(), nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	out, err := o.perform(ctx, w.asker, w.Method, w.at, w.Body, w.Asked)
	if err != nil {
		return err.Error(), nil
	}
	if out.status >= http.StatusOK && out.status < http.StatusMultipleChoices {
		if out.body.Len() > mostSuspended {
			return "", nil
		}
		return "", out.body.Bytes()
	}
	f := &wire.Failure{}
	if err := json.Unmarshal(out.body.Bytes(), f); err != nil || f.Text == "" {
		return fmt.Sprintf("the answer is %d", out.status), nil
	}
	return f.Text, nil
}

// perform does what somebody has asked for at some time, as if it were approved.
func (o operator) perform(ctx context.Context, who caller, method string, at *url.URL, body []byte, asked time.Time) (*kept, error) {
	ctx = context.WithValue(context.WithValue(ctx, callerKey{}, who), approvedKey{}, asked)
	r, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out := &kept{header: http.Header{}}
	o.operations().ServeHTTP(out, r)
	return out, nil
}

// kept is an answer in memory.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *kept) Header() http.Header { return k.header }

func (k *kept) WriteHeader(status int) {
	if k.status == 0 {
		k.status = status
	}
}

func (k *kept) Write(text []byte) (int, error) {
	k.WriteHeader(http.StatusOK)
	return k.body.Write(text)
}

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/work"
	"sluice/internal/base/view"
	"sluice/internal/engine/apply"
)

// worked has a process of its own do an operation, and answers with what came of it.
func (q *request) worked(operation string, in any) {
	answer := q.answer(q.w, q.Request)
	order := work.Order{Operation: operation, Wait: q.Wait}
	var err error
	if in != nil {
		order.Request, err = json.Marshal(in)
	}
	if err == nil && q.ofFleet() {
		err = givesNoPolicy(order.Request)
	}
	if err == nil {
		err = q.begin()
	}
	if err != nil {
		answer.End(nil, err)
		return
	}
	order.By, order.Session = q.by, q.session
	if namesFiles[operation] {
		if order.Root, err = q.theirRoot(); err != nil {
			answer.End(nil, err)
			return
		}
		defer order.Root.Close()
		if q.peer.UID != 0 {
			order.Folder = policies
			if q.may(q.peer) == read {
				order.Reader = &view.Reader{UID: q.peer.UID, Groups: append(slices.Clone(q.peer.Groups), q.peer.GID)}
			}
		}
	}
	result, err := q.work(order, answer)
	answer.End(result, err) // which may take a slow reader a while
}

// readsLocked are the operations that take the lock and change nothing. Whoever asks for them
// without a pause must not keep it from whoever changes the firewall.
var readsLocked = map[string]bool{"status": true, "verify": true, "plan": true, "takeLists": true}

// work has a process do an order, when there is room for one more of the caller's.
func (q *request) work(o work.Order, answer *api.Answer) (json.RawMessage, error) {
	user := strconv.FormatUint(uint64(q.peer.UID), 10)
	if o.Bounded = q.peer.UID != 0 && work.Bounded[o.Operation]; o.Bounded {
		all := q.bounded
		if q.ofFleet() {
			all = q.boundedOfFleet
		}
		leave, err := all.Take(q.Context(), user)
		if err != nil {
			return nil, notBegun(err)
		}
		defer leave()
	}
	if q.peer.UID != 0 && readsLocked[o.Operation] {
		leave, err := q.space.readLocked.Take(q.Context(), user)
		if err != nil {
			return nil, notBegun(err)
		}
		defer func() { time.AfterFunc(leftTime, leave) }()
	}
	if o.Operation == "top" {
		return q.looks(o, answer)
	}
	places := q.workers[q.may(q.peer):]
	if q.ofFleet() {
		places = append([]chan struct{}{q.asks}, places[change-read:]...)
	}
	if o.Operation == "updateCountries" {
		places = append([]chan struct{}{q.updates}, places...)
	}
	for _, places := range places {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		case <-q.Context().Done():
			return nil, notBegun(context.Cause(q.Context()))
		}
	}
	return work.Run(q.Context(), q.Command, o, answer.Tell)
}

// looks has a process look at the host for as long as the caller reads what it tells.
func (q *request) looks(o work.Order, answer *api.Answer) (json.RawMessage, error) {
	free, err := q.tops.take(q.peer.UID)
	if err != nil {
		return nil, err
	}
	defer free()
	ctx, stop := context.WithCancel(q.Context())
	defer stop()
	return work.Run(ctx, q.Command, o, func(l api.Line) {
		if answer.Tell(l); answer.Err() != nil {
			stop()
		}
	})
}

// changed has the space change the firewall, and answers with what came of it.
func changed[T any](q *request, do func(context.Context, firewall) (T, error)) {
	awaited(q, func(ctx context.Context, tell func(api.Line)) (out T, err, waited error) {
		wall := q.wallFor(tell)
		waited = q.do(ctx, func() { out, err = do(q.Context(), wall) })
		return out, err, waited
	})
}

// awaited tries until no other command is at work, or the caller waits no longer, and
// answers with what came of it. Try waits with its context for its turn; waited is why it
// got none.
func awaited[T any](q *request, try func(ctx context.Context, tell func(api.Line)) (out T, err, waited error)) {
	answer := q.answer(q.w, q.Request)
	if err := q.begin(); err != nil {
		answer.End(nil, err)
		return
	}
	var lines chan api.Line
	var begun sync.Once
	var writing sync.WaitGroup
	tell := func(l api.Line) {
		begun.Do(func() {
			lines = make(chan api.Line, lineCount)
			writing.Go(func() {
				for l := range lines {
					answer.Tell(l)
				}
			})
		})
		select {
		case lines <- l:
		default: // nobody waits for a slow reader
		}
	}
	defer quieten()
	var out T
	var err error
	deadline := time.Now().Add(q.Wait)
	for told := false; ; told = true {
		var busy *apply.BusyError
		var waited error
		ctx, stop := context.WithTimeoutCause(q.Context(), max(time.Until(deadline), busyTick), errWaited)
		out, err, waited = try(ctx, tell)
		stop()
		switch {
		case errors.Is(waited, errWaited):
			err = &apply.BusyError{Holder: "another change of the agent"}
		case waited != nil:
			err = notBegun(waited)
		case errors.As(err, &busy) && time.Now().Before(deadline):
			if !told {
				tell(api.Line{Note: busy.Waiting(q.Wait)})
			}
			time.Sleep(busyTick)
			continue
		}
		break
	}
	if lines != nil {
		close(lines)
		writing.Wait()
	}
	answer.End(out, work.Failed(err, q.Here, out))
}

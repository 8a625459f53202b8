package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/engine/apply"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/netns"
	"sluice/internal/system/kernel/peer"
)

// request is one that was let in.
type request struct {
	*server
	*space // that is meant, where one is
	*http.Request
	api.Meant
	w       http.ResponseWriter
	caller  *caller
	peer    *peer.Peer
	by      apply.Author
	session *host.SSHClient
	most    int64 // bytes of its body
	free    func()
}

type requestKey struct{}

func of(r *http.Request) *request { return r.Context().Value(requestKey{}).(*request) }

// judged lets requests in that may be answered; without a handler none may.
func (s *server) judged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.ProtocolHeader, strconv.Itoa(api.Level))
		w.Header().Set(api.VersionHeader, s.version)
		q := &request{server: s, Request: r, w: w, free: func() {}}
		defer func() { q.free() }()
		if q.caller, _ = r.Context().Value(callerKey{}).(*caller); q.caller != nil {
			q.peer = q.caller.peer
			q.caller.half.Store(false)
		}
		if err := q.judge(next != nil); err != nil {
			s.answer(w, r).End(nil, err)
			return
		}
		q.Request = r.WithContext(context.WithValue(r.Context(), requestKey{}, q))
		if q.space != nil {
			ctx, stop := context.WithCancelCause(q.Context())
			defer stop(nil)
			defer context.AfterFunc(q.space.ctx, func() { stop(context.Cause(q.space.ctx)) })()
			q.Request = q.WithContext(ctx)
		}
		next.ServeHTTP(w, q.Request)
	})
}

func (q *request) judge(routed bool) (err error) {
	// Of what is refused the rest of the body is read too.
	_ = http.NewResponseController(q.w).SetReadDeadline(time.Now().Add(bodyTime)) // which a test's writer has not
	o, served := operations[q.Pattern]
	if !routed || !served {
		return refused(api.NotServed, "the agent does not serve %s %.100q", q.Method, q.URL.Path)
	}
	if q.ofFleet() && !q.fleetMay.Allow(private[q.Pattern]) {
		return notForFleet(q.fleetMay)
	}
	if q.peer == nil || q.may(q.peer) < o.right {
		if o.right == change {
			return noChange()
		}
		return refused(api.NotAllowed, "only root and those named in the agent's file may read the firewall (group sluice by default)")
	}
	if q.Meant, err = api.MeantBy(q.Request); err != nil {
		return err
	}
	if q.most = o.body; q.most == 0 && q.ContentLength != 0 {
		return refused(api.BadRequest, "%s has no body", q.Pattern)
	}
	if name := q.PathValue("namespace"); name != "" {
		return q.meant(name)
	}
	return nil
}

// meant finds the space, and refuses what is of another state than the agent's.
func (q *request) meant(name string) error {
	if name == own && q.ofFleet() {
		name = q.ownName
	}
	s, err := q.spaces.of(name)
	switch {
	case err != nil:
		return refused(api.NotServed, "the agent does not serve network namespace %.100q: %v", name, err)
	case s == nil:
		return refused(api.NotServed, "the agent does not serve network namespace %.100q", name)
	case q.State != "" && q.State != s.Host.State:
		return refused(api.OtherState, "the agent keeps its state in %s", s.Host.State)
	case q.State != "" && !q.sameState():
		return refused(api.OtherState, "for the caller %s is another folder than for the agent", q.State)
	case name == own && !q.ofFleet() && !q.beside():
		return refused(api.OtherNamespace, "the caller is in another network namespace than the agent")
	}
	q.space = s
	return nil
}

// beside says whether the caller is in the agent's network namespace.
func (q *request) beside() bool {
	theirs, err := netns.Open(fmt.Sprintf("/proc/%d/ns/net", q.peer.PID))
	if err != nil {
		return false
	}
	defer theirs.Close()
	return theirs.Number() == q.here.Number() && q.peer.There()
}

// sent reads the body of a request.
func sent[T any](q *request) (v T, err error) {
	if q.most > small && (q.ContentLength < 0 || q.ContentLength > small) {
		places := q.bodies[0]
		switch {
		case q.peer.UID == 0:
			places = q.bodies[1]
		case q.ofFleet():
			places = q.bodies[2]
		}
		select {
		case places <- struct{}{}:
			q.free = func() { <-places }
		case <-q.Context().Done():
			return v, notBegun(context.Cause(q.Context()))
		}
		_ = http.NewResponseController(q.w).SetReadDeadline(time.Now().Add(bodyTime))
	}
	return api.Read[T](q.w, q.Request, q.most)
}

// begin finds out who asks.
func (q *request) begin() error {
	// The request is here; what is read by now is that the caller has gone.
	_ = http.NewResponseController(q.w).SetReadDeadline(time.Time{})
	q.by, q.session = q.caller.who()
	if err := q.by.Because(q.Reason); err != nil {
		return refused(api.BadRequest, "%v", err)
	}
	return nil
}

// notBegun is why something was not begun.
func notBegun(err error) error {
	if errors.Is(err, errGone) {
		return refused(api.NotServed, "%v", err)
	}
	return err
}

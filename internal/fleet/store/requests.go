package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice/internal/base/english"
)

// Request is what somebody asked for and a second person has to approve.
type Request struct {
	ID        string // of the content, see [Request.Sum]
	What      string // as the fleet names what wants approval
	Operation string // its id in the interface
	Method    string
	Path      string // with the query
	Body      []byte // of one that was refused it is gone, except for that of a host
	Asks      string // what for, in words, which stay when Body is gone; "" for a host
	Who       string // asked, as the audit names them
	Access    string // the id of the access by which they asked; "": on the controller's machine
	Asked     time.Time
	Expires   time.Time
	State     RequestState
	Decided   time.Time
	By        string
	Alone     bool // by whoever asked
	Why       string
	Failure   string // why it was not done
	Answer    []byte // what the operation answered
}

// Enrolling is the operation of a host that waits until it is let in; Access is the id of its
// token, and Body an [Asking].
const Enrolling = "enrol"

// Asking is a host that asks to be enrolled by a token that wants a person's approval.
type Asking struct {
	Host   string            `json:"host"`
	Key    string            `json:"key"` // SHA-256 of its SubjectPublicKeyInfo, hexadecimal
	Token  string            `json:"token"`
	Labels map[string]string `json:"labels"`
}

// RequestState is how far a request is. One that waits behind its end is over.
type RequestState string

// States of a request.
const (
	RequestWaiting  RequestState = "waiting"
	RequestApproved RequestState = "approved" // and not done yet
	RequestDone     RequestState = "done"
	RequestFailed   RequestState = "failed"
	RequestRefused  RequestState = "refused"
)

// requestFor is how long a request waits.
const requestFor = 7 * 24 * time.Hour

// So many requests wait at most, and of one who asks.
const (
	mostRequests   = 100
	mostRequestsOf = 20
	mostHosts      = 100 // by one token
)

// Sum is the ID of a request with this content. That of a host is the same whenever it asks.
func (r *Request) Sum() string {
	asked := r.Asked.UnixMicro()
	if r.Operation == Enrolling {
		asked = 0
	}
	h := sha256.New()
	for _, part := range []string{r.Operation, r.Method, r.Path, r.Who, r.Access, fmt.Sprint(asked), string(r.Body)} {
		fmt.Fprintf(h, "%d %s\n", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Ask keeps a request that waits from now on: ErrTooMany where too many do.
func (s *Store) Ask(ctx context.Context, r Request) (Request, error) {
	r.Asked = time.UnixMicro(s.micros()).UTC()
	r.Who, r.Asks, r.State, r.Expires = plain(r.Who), plain(r.Asks), RequestWaiting, r.Asked.Add(requestFor)
	if r.Body == nil {
		r.Body = []byte{}
	}
	r.ID = r.Sum()
	return r, s.write(ctx, func(t *tx) error {
		if r.Access != "" { // it may be withdrawn at this moment, and then all that it asked for is refused
			var withdrawn int64
			err := t.one([]any{&withdrawn}, `select withdrawn from access where id = $1 LOCKED`, r.Access)
			if err == nil && withdrawn != 0 {
				err = ErrRevoked
			}
			if err != nil {
				return fmt.Errorf("access %s: %w", r.Access, err)
			}
		}
		var all, own int
		err := t.one([]any{&all, &own}, `select count(*), coalesce(sum(case when who = $1 then 1 else 0 end), 0) from request
			where state = $2 and expires > $3 and operation <> $4`, r.Who, string(RequestWaiting), column(r.Asked), Enrolling)
		switch {
		case err != nil:
			return err
		case own >= mostRequestsOf:
			return fmt.Errorf("%w: %d requests of %s wait for approval", ErrTooMany, own, r.Who)
		case all >= mostRequests:
			return fmt.Errorf("%w: %d requests wait for approval", ErrTooMany, all)
		}
		return t.ask(r)
	})
}

func (t *tx) ask(r Request) error {
	_, err := t.do(`insert into request (id, what, operation, method, path, body, who, access, asked, expires, state, decided, decided_by, alone, why, failure, answer, asks)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0, '', 0, '', '', $12, $13)`,
		r.ID, r.What, r.Operation, r.Method, r.Path, r.Body, r.Who, r.Access, column(r.Asked), column(r.Expires), string(r.State), []byte{}, r.Asks)
	if err != nil {
		return err
	}
	return t.tellOf(r, r.Who, "request.create", map[string]any{"what": r.What, "method": r.Method, "path": r.Path, "bytes": len(r.Body)})
}

// tellOf is tell of what was done about a request, with the words of what it is about.
func (t *tx) tellOf(r Request, who, what string, diff map[string]any) error {
	diff["request"] = r.ID
	if r.Asks != "" {
		diff["asks"] = r.Asks
	}
	return t.tell(who, what, diff)
}

// approved goes on with a host that a person has let in, once. Another one waits from now on, by
// a token that is good, and for no more hosts than that lets in.
func (t *tx) approved(token Token, e Enrolment) error {
	now := time.UnixMicro(t.store.micros()).UTC()
	r := Request{
		What: Enrolling, Operation: Enrolling, Method: "POST", Path: "/v1/enrol?host=" + e.Host, Who: "host:" + e.Host, Access: token.ID,
		Asked: now, Expires: now.Add(requestFor), State: RequestWaiting,
	}
	var err error
	if r.Body, err = json.Marshal(Asking{e.Host, e.Key, token.ID, token.Labels}); err != nil {
		return err
	}
	r.ID = r.Sum()
	is, err := t.request(r.ID)
	if errors.Is(err, ErrNotFound) {
		var waiting int
		err = t.one([]any{&waiting}, `select count(*) from request where access = $1 and operation = $2 and expires > $3 and state in ('waiting', 'approved')`, token.ID, Enrolling, column(now))
		switch {
		case err != nil:
			return err
		case !token.Withdrawn.IsZero() || !token.Expires.After(now) || token.Used >= token.Uses:
			return token.refusal(column(now))
		case token.Used+waiting >= token.Uses || waiting >= mostHosts:
			return fmt.Errorf("%w: too many hosts wait for approval with it", ErrToken)
		}
		is = r
		if err = t.ask(r); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return err
	case is.State == RequestRefused:
		return fmt.Errorf("%w: %s refused this host by it: %q", ErrToken, is.By, is.Why)
	case !is.Expires.After(now):
		return fmt.Errorf("%w: nobody let this host in with it until %s", ErrToken, english.Moment(is.Expires))
	case is.State == RequestWaiting:
		return fmt.Errorf("host %s, key %s: %w: request %s", e.Host, e.Key, ErrPending, is.ID)
	case is.State == RequestApproved:
		return t.must(ErrConflict, `update request set state = $1 where id = $2 and state = $3`, string(RequestDone), is.ID, string(RequestApproved))
	}
	return fmt.Errorf("%w: this host was let in with it already", ErrToken)
}

// Decide approves a request that waits, or refuses it, once: ErrNotFound, and ErrConflict where
// it waits no more.
func (s *Store) Decide(ctx context.Context, id, by string, to RequestState, why string, alone bool) error {
	return s.write(ctx, func(t *tx) error {
		now := s.micros()
		// A host that was let in may be refused until it comes.
		n, err := t.do(`update request set state = $1, decided = $2, decided_by = $3, why = $4, alone = $5 where id = $6 and expires > $2
			and (state = $7 or state = $8 and operation = $9 and $1 = $10)`,
			string(to), now, by, why, number(alone), id, string(RequestWaiting), string(RequestApproved), Enrolling, string(RequestRefused))
		if err != nil {
			return err
		}
		r, err := t.request(id)
		switch {
		case err != nil:
			return err
		case n == 0 && r.State == RequestWaiting:
			return fmt.Errorf("request %s: %w: nobody approved it until %s", id, ErrConflict, english.Moment(r.Expires))
		case n == 0:
			return fmt.Errorf("request %s: %w: it is %s by %s since %s", id, ErrConflict, r.State, r.By, english.Moment(r.Decided))
		}
		what := "request.approve"
		if to == RequestRefused {
			what = "request.refuse"
			if _, err := t.do(`update request set body = $1 where id = $2 and operation <> $3`, []byte{}, id, Enrolling); err != nil {
				return err
			}
		}
		return t.tellOf(r, by, what, map[string]any{"what": r.What, "who": r.Who, "why": why, "alone": alone})
	})
}

// Performed keeps what came of a request that was approved: an answer, or why it failed.
func (s *Store) Performed(ctx context.Context, id, failure string, answer []byte) error {
	state := RequestDone
	if failure != "" {
		state = RequestFailed
	}
	if answer == nil {
		answer = []byte{}
	}
	return s.write(ctx, func(t *tx) error {
		err := t.must(ErrConflict, `update request set state = $1, failure = $2, answer = $3 where id = $4 and state = $5`,
			string(state), failure, answer, id, string(RequestApproved))
		if err != nil {
			return fmt.Errorf("request %s: %w", id, err)
		}
		r, err := t.request(id)
		if err != nil || failure == "" {
			return err
		}
		return t.tellOf(r, r.By, "request.fail", map[string]any{"what": r.What, "who": r.Who, "failure": failure})
	})
}

// Request is one of an ID; ErrNotFound.
func (s *Store) Request(ctx context.Context, id string) (Request, error) {
	return s.request(ctx, s.reader, id)
}

func (t *tx) request(id string) (Request, error) { return t.store.request(t.ctx, t, id) }

func (s *Store) request(ctx context.Context, q querier, id string) (r Request, err error) {
	err = s.query(ctx, q, func(scan func(...any) error) (err error) {
		r, err = scanRequest(scan)
		return err
	}, requestColumns+` where id = $1`, id)
	if err == nil && r.ID == "" {
		err = fmt.Errorf("request %.64q: %w", id, ErrNotFound)
	}
	return r, err
}

// Requests are those that wait, or all of the last month, the newest first, hosts behind the
// others, without bodies and answers: a thousand at most.
func (s *Store) Requests(ctx context.Context, all bool) ([]Request, error) {
	var out []Request
	where, args := ` where state = $1 and expires > $2`, []any{string(RequestWaiting), s.micros()}
	if all {
		where, args = ` where asked > $1`, []any{s.Now().Add(-forgotten).UnixMicro()}
	}
	err := s.query(ctx, s.reader, func(scan func(...any) error) error {
		r, err := scanRequest(scan)
		out = append(out, r)
		return err
	}, shortColumns+where+` order by case when operation = 'enrol' then 1 else 0 end, asked desc, id limit 1000`, args...)
	return out, err
}

// PruneRequests removes what was asked for more than a month ago and is over.
func (s *Store) PruneRequests(ctx context.Context) error {
	return s.write(ctx, func(t *tx) error {
		_, err := t.do(`delete from request where expires < $1`, s.Now().Add(-forgotten).UnixMicro())
		return err
	})
}

// refuseOf refuses what waits of an access that somebody else than its owner ends, and says
// how much that is.
func (t *tx) refuseOf(access, by string) (int, error) {
	var owner string
	err := t.one([]any{&owner}, `select who from access where id = $1 LOCKED`, access)
	if err != nil || owner == by {
		return 0, err
	}
	return t.refuseAll(by, "what they asked by was withdrawn", `access = $1 and operation <> 'enrol' and state = 'waiting'`, access)
}

// refuseHost refuses what else waits, or may come, as a host.
func (t *tx) refuseHost(host, by, why string) error {
	_, err := t.refuseAll(by, why, `who = $1 and operation = 'enrol' and state in ('waiting', 'approved')`, "host:"+host)
	return err
}

func (t *tx) refuseAll(by, why, where, is string) (int, error) {
	var all []Request
	err := t.store.query(t.ctx, t, func(scan func(...any) error) error {
		r, err := scanRequest(scan)
		all = append(all, r)
		return err
	}, shortColumns+` where `+where+` LOCKED`, is)
	for _, r := range all {
		if err == nil {
			_, err = t.do(`update request set state = 'refused', decided = $1, decided_by = $2, why = $3, body = case when operation = $4 then body else $5 end where id = $6`,
				t.store.micros(), by, why, Enrolling, []byte{}, r.ID)
		}
		if err == nil {
			err = t.tellOf(r, by, "request.refuse", map[string]any{"why": why})
		}
	}
	return len(all), err
}

const requestColumns = `select id, what, operation, method, path, body, who, access, asked, expires, state, decided, decided_by, alone, why, failure, answer, asks from request`

// shortColumns are those without what may be large.
var shortColumns = strings.NewReplacer("body", "'' as body", "answer", "'' as answer").Replace(requestColumns)

func scanRequest(scan func(...any) error) (r Request, err error) {
	var state string
	var asked, expires, decided, alone int64
	err = scan(&r.ID, &r.What, &r.Operation, &r.Method, &r.Path, &r.Body, &r.Who, &r.Access, &asked, &expires, &state, &decided, &r.By, &alone, &r.Why, &r.Failure, &r.Answer, &r.Asks)
	r.State, r.Asked, r.Expires, r.Decided, r.Alone = RequestState(state), moment(asked), moment(expires), moment(decided), alone != 0
	return r, err
}

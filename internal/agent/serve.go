package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/config"
	"sluice/internal/agent/work"
	"sluice/internal/base/turns"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/language/bans"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/netns"
	"sluice/internal/system/kernel/peer"
)

// What a request may take.
const (
	headerTime  = 5 * time.Second
	bodyTime    = 30 * time.Second
	idleTime    = 2 * time.Minute
	endTime     = 10 * time.Second // for what is under way when the agent ends
	headerBytes = 16 << 10
	lineCount   = 64 // of what is told, that a slow reader may be behind
	busyTick    = 100 * time.Millisecond
	readWorkers = 2                            // processes for who may read, of some 100 MB each
	askWorkers  = 2                            // for what a fleet asks
	mostWorkers = readWorkers + askWorkers + 2 // with one for who may change the firewall, and one for root
	mostLarge   = 2                            // bodies of more than small that are held, and as many of root's, and of the fleet's
	leftTime    = 500 * time.Millisecond       // for others to take the lock that who is not root had
)

// firewall is what is asked of a host; engine.Host is one.
type firewall interface {
	History() (*apply.History, error)
	Text(generation int) (*apply.Text, error)
	Unban(ctx context.Context, what []bans.Named) (*apply.Banned, error)
	Sync(ctx context.Context) (*apply.Synced, error)
	DropsFrom(ctx context.Context, from engine.DropsFrom, c engine.DropChoice, seen func(engine.Dropped), counted func(engine.DropCounts)) (*engine.DropCounts, error)
	WatchEntries(ctx context.Context, q engine.EntryWatch, seen func(engine.WatchedEntry)) (*engine.WatchedEntries, error)
	LogKept(ctx context.Context, q engine.LogQuestion, grown func() <-chan struct{}, seen func(engine.Logged)) (*engine.LogAnswer, error)
}

// server answers requests.
type server struct {
	api.ServerInterface // nil: what operations has not is let in to no handler
	spaces              *spaces
	version             string
	here                *netns.Namespace // the agent's own
	ownName             string           // of its space
	fleetMay            config.Questions
	reads               config.IDs
	changes             config.IDs
	peerOf              func(net.Conn) (*peer.Peer, error)
	wall                func(engine.Host) firewall // tests put another there
	open                connections
	refusals            refusals
	// A process takes a place of each from its caller's right on.
	workers [all + 1]chan struct{}
	// Of those of a fleet first one of asks, and none of readers.
	asks chan struct{}
	// Who is not root takes turns at what is bounded, by user; the fleet's are of its own.
	bounded, boundedOfFleet *turns.Turns
	// A large body has a place, root's in the second, the fleet's in the third, from before it is read to the answer.
	bodies [3]chan struct{}
	logs   readers
	tops   readers
	// Of updates of the country data, which may take minutes, one has a place of workers.
	updates    chan struct{}
	publishers []string // of country data, by the agent's file
	scraper    *scraper
}

func (a *Agent) newServer(here *netns.Namespace) *server {
	s := &server{
		spaces: &a.spaces, version: a.Host.Version, here: here, ownName: a.name(),
		workers: [...]chan struct{}{read: make(chan struct{}, readWorkers), change: make(chan struct{}, mostWorkers-1), all: make(chan struct{}, mostWorkers)},
		asks:    make(chan struct{}, askWorkers), bounded: turns.New(), boundedOfFleet: turns.New(),
		reads: a.MayRead, changes: a.MayChange, fleetMay: a.Questions,
		refusals: refusals{every: refusalsTime},
		bodies:   [...]chan struct{}{make(chan struct{}, mostLarge), make(chan struct{}, mostLarge), make(chan struct{}, mostLarge)},
		updates:  make(chan struct{}, 1), publishers: a.Publishers,
		scraper: a.scraper,
		logs:    readers{what: "reading the log or following the connection table", ofUser: readersOfUser, most: mostReaders},
		tops:    readers{what: "looking at these figures", ofUser: lookersOfUser, most: mostLookers},
		peerOf:  func(c net.Conn) (*peer.Peer, error) { return peer.Of(c.(*net.UnixConn)) },
		wall:    func(h engine.Host) firewall { return &h },
	}
	if a.Alerts != nil {
		s.refusals.tell = a.Alerts.Line
	}
	s.open = connections{open: map[net.Conn]*connection{}, refused: s.refusals.add}
	return s
}

// serve answers until the context ends.
func (a *Agent) serve(ctx context.Context, h *http.Server, l net.Listener) {
	h.ErrorLog = log.New(noted(a.note), "", 0)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		until, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), endTime, errWaited)
		defer stop()
		if h.Shutdown(until) != nil {
			_ = h.Close() // their contexts end, and with them the changes
		}
	}()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		a.note(err)
	}
	<-ended
}

// noted is where net/http tells of what it cannot do.
type noted func(error)

func (n noted) Write(text []byte) (int, error) {
	n(errors.New(strings.TrimSpace(string(text))))
	return len(text), nil
}

type callerKey struct{}

// caller is who has a connection.
type caller struct {
	peer    *peer.Peer
	half    atomic.Bool // a request has begun to come
	once    sync.Once
	by      apply.Author
	session *host.SSHClient
}

// who says who it is, which is found out once.
func (c *caller) who() (apply.Author, *host.SSHClient) {
	c.once.Do(func() {
		c.by, c.session = apply.Caller(c.peer.PID, int(c.peer.UID))
		if !c.peer.There() { // it may be that of who has his number by now
			c.by, c.session = apply.Caller(0, int(c.peer.UID))
		}
	})
	return c.by, c.session
}

func (s *server) http() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("/", s.judged(nil))
	return &http.Server{
		Handler: api.HandlerWithOptions(s, api.StdHTTPServerOptions{
			BaseRouter: mux, Middlewares: []api.MiddlewareFunc{s.judged},
			ErrorHandlerFunc: func(w http.ResponseWriter, r *http.Request, err error) {
				s.answer(w, r).End(nil, refused(api.BadRequest, "%v", err))
			},
		}),
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: headerBytes,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			p, err := s.peerOf(c)
			if err != nil {
				_ = c.Close()
				return ctx
			}
			of := &caller{peer: p}
			if out := s.open.add(c, of); out != nil {
				_ = out.Close()
			}
			return context.WithValue(ctx, callerKey{}, of)
		},
		ConnState: s.open.turned,
	}
}

// right is what a caller may do.
type right int

const (
	nothing right = iota
	read
	change
	all // of root
)

func (r right) String() string {
	return string([]api.YouMay{api.YouMayNothing, api.YouMayRead, api.YouMayChange, api.YouMayChange}[r])
}

func (s *server) may(p *peer.Peer) right {
	groups := append(slices.Clone(p.Groups), p.GID)
	switch {
	case p.UID == 0:
		return all
	case p.UID == fleetUser && s.fleetMay != config.None:
		return read
	case s.changes.Has(p.UID, groups...):
		return change
	case s.reads.Has(p.UID, groups...):
		return read
	}
	return nothing
}

func refused(kind api.Kind, format string, args ...any) *api.Failure {
	return &api.Failure{Text: fmt.Sprintf(format, args...), Exit: 2, Kind: kind}
}

func noChange() error {
	return refused(api.NotAllowed, "only root and those named in the agent's file may change the firewall")
}

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
		}
	}
	result, err := q.work(order, answer)
	answer.End(result, err) // which may take a slow reader a while
}

// readsLocked are the operations that take the lock and change nothing. Whoever asks for them
// without a pause must not keep it from who changes the firewall.
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

package agent

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/config"
	"sluice/internal/base/turns"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/language/bans"
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
	readWorkers = 2                            // processes for whoever may read, of some 100 MB each
	askWorkers  = 2                            // for what a fleet asks
	mostWorkers = readWorkers + askWorkers + 2 // with one for whoever may change the firewall, and one for root
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

// noted is where net/http reports what it cannot do.
type noted func(error)

func (n noted) Write(text []byte) (int, error) {
	n(errors.New(strings.TrimSpace(string(text))))
	return len(text), nil
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

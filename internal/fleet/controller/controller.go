package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/base/turns"

	"sluice/internal/base/english"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/hub"
	"sluice/internal/fleet/judge"
	"sluice/internal/fleet/notices"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/apart"
)

// Options are what a controller is made of.
type Options struct {
	Dir     string // keys and trust.json, and the socket of commands
	Store   *store.Store
	Version string
	// Controllers are where hosts reach this one, HOST:PORT.
	Controllers []string
	Web         *Web             // nil: it serves no people but on its socket
	Now         func() time.Time // time.Now unless set
	Note        func(error)      // what went wrong that nobody waits for
	Notices     *notices.Config  // who hears of what is wrong; nil: nobody
	// Sign signs the policy with a draft, and puts its blobs into the store; nil: it has no key.
	Sign  func(ctx context.Context, draft string) (*api.Publish, error)
	Fetch []string // command line of the process that asks for lists; none: this one does
}

// Controller serves a fleet.
type Controller struct {
	Options
	online *trust.Online
	hub    *hub.Hub
	view   atomic.Pointer[view]
	trust  atomic.Pointer[trust.Metadata]

	database   atomic.Pointer[string] // why it does not answer, and since when; nil: it does
	publishes  sync.Mutex             // one at a time
	refreshing sync.Mutex             // so that no view follows a newer one
	statuses   statuses
	driver     driver
	summaries  summaries
	feeds      feeds
	telling    telling
	contents   contents
	patches    patches
	living     living
	applied    applied
	bounds     banBounds
	held       held
	offers     offers
	issues     issues
	provider   provider
	events     events
	listed     atomic.Pointer[[]int64] // the bundles of targets.json
	listens    string
	documents  documents
	regroup    chan struct{}
	meter      meter
	noticing   noticing
	lists      keptLists
	lately     lately
	judge      *judge.Judge
	verifying  verifying
	filling    chan *judge.Asked // of which answers are to be kept
	questions  questions
	samples    samples
	logs       logs
	examined   examined
	moved      chan error // the database is the fleet's no more
}

// How long ending may take.
const (
	drainTime = 5 * time.Second
	endTime   = 5 * time.Second
)

// mostConnections is what agents and others have open at once on one controller.
const mostConnections = 25_000

// New reads a controller's directory and its database, which has to answer now.
func New(ctx context.Context, o Options) (*Controller, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Note == nil {
		o.Note = func(error) {}
	}
	c := &Controller{Options: o, regroup: make(chan struct{}, 1), moved: make(chan error, 1), filling: make(chan *judge.Asked, 1)}
	c.statuses.init()
	c.documents.init()
	c.applied.init()
	c.driver.init()
	c.questions.init()
	c.verifying.turns = turns.New()
	c.events.init(rand.Text()[:8])
	c.meter.init()
	c.noticing.init(o.Notices)
	c.contents.bundles = map[int64]*content{}
	c.judge = judge.New(judge.Options{State: c.Dir, Lists: trust.URLLists, Facts: func(hash string) ([]byte, error) {
		return c.Store.Facts(context.WithoutCancel(ctx), hash)
	}})
	c.lists.wake, c.lists.lack = make(chan struct{}, 1), apart.Once(func(text string) { c.Note(errors.New(text)) })
	c.patches.slots, c.patches.wait = make(chan struct{}, mostPatching), patchWait
	var err error
	if c.online, err = trust.OpenOnline(o.Dir); err != nil {
		return nil, err
	}
	c.hub = hub.New(hub.Options{Joined: c.joined, Said: c.said, Left: c.left, Answered: c.answers, Claimed: c.claimed})
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Fleet is the name of the fleet.
func (c *Controller) Fleet() string { return c.online.State().Fleet }

// begin makes the fleet of a new database, or sees that it is this one.
func (c *Controller) begin(ctx context.Context) error {
	is := c.online.State()
	has, err := c.Store.Fleet(ctx)
	switch {
	case errors.Is(err, store.ErrNotFound):
		if err := c.Store.Create(ctx, self, is.Fleet, is.Incarnation); err != nil {
			return err
		}
		if is.TargetsVersion > 0 {
			defer c.Note(errors.New("the database is new, though bundles were published before: it knows no host; if a copy of the one before is left, put that in its place"))
		}
	case err != nil:
		return err
	case has.Name != is.Fleet:
		return fmt.Errorf("the database is of fleet %s, and %s of %s", has.Name, c.Dir, is.Fleet)
	}
	if err := c.older(ctx); err != nil { // before the incarnation is one that nothing was signed in
		return err
	}
	if err := c.incarnate(ctx); err != nil {
		return err
	}
	if err := c.statuses.load(ctx, c.Store); err != nil {
		return err
	}
	if err := c.refresh(ctx); err != nil {
		return err
	}
	if _, err := c.documents.follow(&c.view); err != nil {
		return err
	}
	if err := c.loadLiving(ctx); err != nil {
		return err
	}
	if is.TargetsVersion > 0 {
		return c.signHead(ctx)
	}
	c.keep(c.online.Metadata())
	return nil
}

// self is who does in the audit what nobody asked for.
const self = "controller"

// incarnate gives the database the incarnation that the policy keys signed.
func (c *Controller) incarnate(ctx context.Context) error {
	signed := c.online.State().Incarnation
	has, err := c.Store.Fleet(ctx)
	if err != nil || has.Incarnation >= signed {
		return err
	}
	if err := c.endAll(ctx, "the database was restored"); err != nil {
		return err
	}
	return c.Store.NewIncarnation(ctx, self, signed)
}

// Run is Serve, and answers people and programs on the socket, and where Web says.
func (c *Controller) Run(ctx context.Context, agents net.Listener) error {
	l, err := c.listen()
	if err != nil {
		return err
	}
	defer os.Remove(api.Socket(c.Dir))
	c.listens = agents.Addr().String()
	commands := c.commands()
	commands.RegisterOnShutdown(c.events.end)
	serving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if c.Web != nil {
		people, err := c.people()
		if err != nil {
			return errors.Join(err, l.Close())
		}
		people.RegisterOnShutdown(c.events.end)
		defer end(ctx, people)
		go func() {
			if err := c.servePeople(people); err != nil {
				stop(err)
			}
		}()
	}
	go func() {
		if err := commands.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			stop(err)
		}
	}()
	err = c.Serve(serving, agents)
	end(ctx, commands)
	if cause := context.Cause(serving); ctx.Err() == nil && cause != nil {
		err = errors.Join(err, cause)
	}
	return err
}

// end ends a server, in endTime.
func end(ctx context.Context, s *http.Server) {
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if s.Shutdown(ending) != nil {
		_ = s.Close()
	}
}

// Serve serves agents on a listener of TCP until ctx ends. Then it tells them to come back,
// and ends.
func (c *Controller) Serve(ctx context.Context, agents net.Listener) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){c.follow, c.drive, c.writeStatuses, c.signHourly, c.gather, c.keepLists, c.sight, c.pruneHourly, c.lookForEvents, c.live, c.keepAppliedOn, c.notice, c.shareBans, c.fill} {
		loops.Go(func() { loop(work) })
	}
	server := c.agents()
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(hub.Paced(agents, mostConnections), "", "") }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	case err = <-c.moved:
	}
	draining, cancel := context.WithTimeout(work, drainTime)
	defer cancel()
	err = errors.Join(err, c.hub.Drain(draining))
	end(ctx, server)
	stop()
	loops.Wait()
	c.signLast(context.WithoutCancel(ctx))
	return err
}

// answered keeps whether the database answers. Errors that are its answers say that it does.
func (c *Controller) answered(err error) {
	if err == nil || store.Answered(err) {
		c.database.Store(nil)
		return
	}
	if f := (*wire.Failure)(nil); errors.Is(err, context.Canceled) || errors.As(err, &f) { // which the database did not say
		return
	}
	text := fmt.Sprintf("since %s: %s", english.Moment(c.Now()), err)
	if c.database.CompareAndSwap(nil, &text) {
		c.Note(fmt.Errorf("the database does not answer, the last snapshot is served: %w", err))
	}
}

// away is why the database does not answer, "" while it does.
func (c *Controller) away() string {
	if text := c.database.Load(); text != nil {
		return *text
	}
	return ""
}

// signEvery is how often timestamp.json is signed again; it is good for a day.
const signEvery = time.Hour

func (c *Controller) signHourly(ctx context.Context) {
	for range ticks(ctx, signEvery) {
		if c.online.State().TargetsVersion > 0 {
			if err := c.sign(ctx); err != nil {
				c.Note(err)
			}
		}
	}
}

// sign signs what is fresh, with the head of the audit, and has agents told.
func (c *Controller) sign(ctx context.Context) error {
	err := c.older(ctx)
	c.answered(err)
	if err != nil {
		return err
	}
	return c.signHead(ctx)
}

// signHead is sign, whatever was signed before.
func (c *Controller) signHead(ctx context.Context) error {
	f, err := c.Store.Fleet(ctx)
	c.answered(err)
	if err != nil {
		return err
	}
	m, err := c.online.Refresh(f.Head.String(), c.Now())
	if err != nil {
		return err
	}
	c.keep(m)
	if message := c.signed(); message != nil {
		c.hub.TellAll(hub.Trust, message)
	}
	return nil
}

// keep has agents be told of what is signed from now on.
func (c *Controller) keep(m trust.Metadata) {
	var listed []int64
	for _, b := range c.online.State().Bundles {
		listed = append(listed, b.Number)
	}
	c.listed.Store(&listed)
	c.trust.Store(&m)
}

// ticks sends at a distance until ctx ends.
func ticks(ctx context.Context, every time.Duration) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		defer close(out)
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
			select {
			case out <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

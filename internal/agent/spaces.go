package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"sync"
	"time"

	"sluice/internal/agent/config"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/system/kernel/netns"
)

// spaces are the namespaces that are served, and why others are not, by how callers name
// them.
type spaces struct {
	mutex    sync.Mutex
	open     map[string]*space
	refused  map[string]error
	ended    chan *space // that has closed all that it had
	drops    engine.DropWatch
	answers  http.Handler // of what a fleet asks
	fleetMay config.Questions
	closing  sync.WaitGroup
}

// of is the space of a name, and where there is none why it is refused, if it is.
func (s *spaces) of(name string) (*space, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if at := s.open[name]; at != nil && at.ctx.Err() == nil {
		return at, nil
	}
	return nil, s.refused[name]
}

// all are those that are open, by name.
func (s *spaces) all() map[string]*space {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	out := maps.Clone(s.open)
	maps.DeleteFunc(out, func(_ string, at *space) bool { return at.ctx.Err() != nil })
	return out
}

// whyNot are the reasons of those that are refused.
func (s *spaces) whyNot() map[string]error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return maps.Clone(s.refused)
}

// refuse notes that a namespace is not served, or with nil that it may be, and says whether
// that is new.
func (s *spaces) refuse(name string, err error) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	before := s.refused[name]
	if err == nil {
		delete(s.refused, name)
	} else {
		s.refused[name] = err
	}
	return err != nil && (before == nil || before.Error() != err.Error())
}

// begin opens the agent's own space.
func (a *Agent) begin(ctx context.Context, here *netns.Namespace) error {
	a.spaces.open, a.spaces.refused, a.spaces.ended = map[string]*space{}, map[string]error{}, make(chan *space)
	a.turn = make(chan struct{}, 1)
	err := a.open(ctx, a.Site, here, nil)
	if a.spaces.refuse(a.name(), err) {
		a.note(err)
		if err := a.nowReady(); err != nil {
			a.note(err)
		}
	}
	return err
}

// open begins to serve a namespace, until the context of its space ends. It closes the
// namespace then, if that is named.
func (a *Agent) open(ctx context.Context, site *Site, at, named *netns.Namespace) error {
	release, err := site.Host.FollowAlone()
	var taken *apply.TakenError
	if errors.As(err, &taken) {
		return err
	}
	if err != nil {
		site.note(err) // a disk that is read-only
		release = func() {}
	}
	var newer *apply.NewerError
	if _, err := site.Host.History(); errors.As(err, &newer) {
		release()
		return err
	}
	name, all := site.name(), &a.spaces
	s := newSpace(ctx, site, at)
	s.own, s.all = named == nil, all
	all.mutex.Lock()
	all.open[name] = s
	all.mutex.Unlock()
	all.tellFleet()
	all.closing.Go(func() {
		var ready func() error
		if named == nil {
			ready = a.nowReady
		}
		s.live(ready, func() { a.due(site).Lists(s.ctx, a.Lists, len(a.Publishers) > 0) }, &all.drops)
		s.end(nil)
		release()
		if named != nil {
			_ = named.Close()
		}
		all.mutex.Lock()
		delete(all.open, name)
		all.mutex.Unlock()
		all.tellFleet()
		select {
		case all.ended <- s:
		case <-ctx.Done():
		}
	})
	return nil
}

// errGone says that a namespace is not there any more, or is another one by now.
var errGone = errors.New("the network namespace is gone")

// keep opens the namespaces that are to be served as they come, and closes them as they go,
// until the context ends. The error is that of the agent's own.
func (a *Agent) keep(ctx context.Context, here *netns.Namespace) error {
	var watching sync.WaitGroup
	defer a.spaces.closing.Wait()
	defer watching.Wait()
	seen := make(chan map[string]uint64)
	if len(a.Namespaces) > 0 {
		watching.Go(func() { a.watch(ctx, seen) })
	}
	now := map[string]uint64{}
	for anew := false; ; {
		a.meet(ctx, here, now, anew)
		var again <-chan time.Time
		if len(a.spaces.whyNot()) > 0 {
			again = time.After(againTime)
		}
		select {
		case <-ctx.Done():
			return nil
		case now = <-seen:
			anew = true
		case <-again:
			anew = true
		case s := <-a.spaces.ended:
			anew = false
			switch err := context.Cause(s.ctx); {
			case s.at == here:
				return err
			case !errors.Is(err, errGone) && a.spaces.refuse(s.name(), err):
				a.notServed(s.name(), err)
			}
		}
	}
}

func (a *Agent) watch(ctx context.Context, seen chan<- map[string]uint64) {
	for ctx.Err() == nil {
		err := netns.Watch(ctx, func(now map[string]uint64) {
			select {
			case seen <- now:
			case <-ctx.Done():
			}
		})
		if err == nil {
			continue
		}
		a.note(err)
		select {
		case <-ctx.Done():
		case <-time.After(againTime):
		}
	}
}

// meet makes the spaces those of the namespaces that are there now, by their numbers; those
// that were refused are tried again or not.
func (a *Agent) meet(ctx context.Context, here *netns.Namespace, now map[string]uint64, anew bool) {
	for name, s := range a.spaces.all() {
		if s.at != here && now[name] != uint64(s.at.Number()) {
			s.end(errGone)
		}
	}
	a.spaces.mutex.Lock()
	have := maps.Clone(a.spaces.open) // and what is about to close
	a.spaces.mutex.Unlock()
	refused := a.spaces.whyNot()
	for name := range refused {
		if _, there := now[name]; !there && name != a.name() {
			a.spaces.refuse(name, nil)
		}
	}
	if have[a.name()] == nil && anew {
		if err := a.open(ctx, a.Site, here, nil); a.spaces.refuse(a.name(), err) {
			a.note(err)
		}
	}
	for name := range now {
		wanted := slices.ContainsFunc(a.Namespaces, func(p string) bool { matched, _ := path.Match(p, name); return matched })
		if !wanted || have[name] != nil || refused[name] != nil && !anew {
			continue
		}
		if err := a.enter(ctx, here, name); a.spaces.refuse(name, err) {
			a.notServed(name, err)
		}
	}
}

func (a *Agent) notServed(name string, err error) {
	a.note(fmt.Errorf("network namespace %s is not served: %w", name, err))
}

// enter begins to serve a namespace of ip-netns(8).
func (a *Agent) enter(ctx context.Context, here *netns.Namespace, name string) error {
	at, err := netns.Named(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is told of that next
	}
	if err != nil {
		return err
	}
	site, err := a.Named(name)
	if err == nil && at.Number() == here.Number() {
		err = errors.New("it is the agent's own")
	}
	if err == nil {
		err = a.open(ctx, site, at, at)
	}
	if err != nil {
		_ = at.Close()
	}
	return err
}

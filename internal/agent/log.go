package agent

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/work"
	"sluice/internal/base/ring"
	"sluice/internal/engine"
	"sluice/internal/words"
)

// keptLog is what the rules of a namespace have logged.
type keptLog struct {
	ring *ring.Ring
	why  error // why no more comes; nil: it does
}

// keepLog keeps what is logged until the namespace ends. What fails is tried again, and takes
// nothing from the rules.
func (s *space) keepLog() {
	if s.LogSize == 0 {
		return
	}
	said := ""
	failed := func(err error) bool {
		if err == nil || s.ctx.Err() != nil {
			return false
		}
		if err.Error() != said {
			said = err.Error()
			s.note(err)
		}
		select {
		case <-time.After(againTime):
		case <-s.ctx.Done():
		}
		return true
	}
	to, err := s.Host.OpenLog(s.LogSize)
	for failed(err) {
		to, err = s.Host.OpenLog(s.LogSize)
	}
	if err != nil {
		return
	}
	defer to.Close()
	defer s.log.Store(nil)
	h := *s.Host
	h.Netns = s.at
	for s.ctx.Err() == nil {
		s.log.Store(&keptLog{ring: to})
		err := h.KeepLog(s.ctx, to, s.meter.Log, func(err error) {
			if err == nil {
				err = errors.New("what is logged is kept again")
			}
			s.note(err)
		})
		s.log.Store(&keptLog{to, err})
		failed(err)
	}
}

// How many read the log, or follow the connection table, at a time, and how many look at a
// host, each by a process of its own.
const (
	readersOfUser = 4
	mostReaders   = 16 // who are not root, and as many by the fleet
	lookersOfUser = 2
	mostLookers   = 4 // who are not root, and as many by the fleet
)

// readers are who reads an answer without an end.
type readers struct {
	what         string // they do
	ofUser, most int

	mutex sync.Mutex
	of    map[uint32]int // by user
	all   int            // except for root's and the fleet's
}

// take is a place among them, unless there are too many.
func (r *readers) take(user uint32) (free func(), err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	local := user != 0 && user != fleetUser
	switch {
	case user == fleetUser && r.of[user] >= r.most: // who asks by a fleet are several, and have places of their own
		return nil, refused(api.Busy, "%d others are %s by the fleet", r.most, r.what)
	case user != fleetUser && r.of[user] >= r.ofUser:
		return nil, refused(api.Busy, "the same user is %s %d times already", r.what, r.ofUser)
	case local && r.all >= r.most:
		return nil, refused(api.Busy, "%d others are %s", r.most, r.what)
	}
	count := func(n int) {
		if r.of[user] += n; r.of[user] == 0 {
			delete(r.of, user)
		}
		if local {
			r.all += n
		}
	}
	if r.of == nil {
		r.of = map[uint32]int{}
	}
	count(1)
	return func() {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		count(-1)
	}, nil
}

// stream begins what is told here as it comes, a line at a time, by whoever has a place among
// those who read. What has no end is given in lines alone; that it is read is said at once.
func (q *request) stream(answer *api.Answer, endless bool) (end func(), err error) {
	if endless && !api.WantsLines(q.Request) {
		return nil, refused(api.BadRequest, "without an end, the answer is given only in lines (Accept: %s)", api.Lines)
	}
	free, err := q.logs.take(q.peer.UID)
	if err != nil {
		return nil, err
	}
	if err := q.begin(); err != nil {
		free()
		return nil, err
	}
	if endless {
		answer.Begin()
	}
	return func() { free(); quieten() }, nil
}

// WatchEntries tells what happens to entries of the connection table, as Log does.
func (s *server) WatchEntries(w http.ResponseWriter, r *http.Request, _ string) {
	q := of(r)
	in, err := sent[engine.EntryWatch](q)
	answer := q.answer(w, q.Request)
	var end func()
	if err == nil {
		end, err = q.stream(answer, in.Seconds == 0)
	}
	if err != nil {
		answer.End(nil, err)
		return
	}
	defer end()
	ctx, stop := context.WithCancel(q.Context())
	defer stop()
	var out *engine.WatchedEntries
	err = q.at.Do(func() (err error) {
		out, err = q.wallFor(answer.Tell).WatchEntries(ctx, in, func(e engine.WatchedEntry) {
			if answer.Entry(e); answer.Err() != nil {
				stop()
			}
		})
		return err
	})
	answer.End(out, work.Failed(err, q.Here, out))
}

// most says whether a packet is one too many in its second, and tells how many were before.
func most(n int) func(tell func(api.Line)) bool {
	begun, shown, skipped := time.Time{}, 0, 0
	return func(tell func(api.Line)) bool {
		if now := time.Now(); now.Sub(begun) >= time.Second {
			if skipped > 0 {
				tell(api.Line{Skipped: skipped})
			}
			begun, shown, skipped = now, 0, 0
		}
		if shown == n {
			skipped++
			return true
		}
		shown++
		return false
	}
}

// Log gives what was logged. It is read here, a packet at a time: who follows may stay for
// days, which is not for a process that has a place among few.
func (s *server) Log(w http.ResponseWriter, r *http.Request, _ string, in api.LogParams) {
	q := of(r)
	answer := q.answer(w, q.Request)
	kept := q.log.Load()
	if kept == nil {
		answer.End(nil, refused(api.NotServed, "the agent keeps no log: its file has size: none in log"))
		return
	}
	end, err := q.stream(answer, in.Follow)
	if err != nil {
		answer.End(nil, err)
		return
	}
	defer end()
	if in.Follow && kept.why != nil {
		answer.Warn(q.space.Host.Words(kept.why))
	}
	ctx, stop := context.WithCancel(q.Context())
	defer stop()
	skips := func(func(api.Line)) bool { return false }
	if in.Follow && in.Most > 0 {
		skips = most(in.Most)
	}
	out, err := q.wallFor(answer.Tell).LogKept(ctx, engine.LogQuestion{
		LogChoice: engine.LogChoice{Source: in.Source, Service: in.Service, Country: in.Country, Line: in.Line, Called: words.LogFlags},
		Since:     in.Since, Follow: in.Follow, Number: in.Number,
	}, kept.ring.Grown, func(l engine.Logged) {
		if skips(answer.Tell) {
			return
		}
		if answer.Logged(l); answer.Err() != nil {
			stop()
		}
	})
	answer.End(out, work.Failed(err, q.Here, out))
}

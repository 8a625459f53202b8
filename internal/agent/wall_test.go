package agent

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/base/ring"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/language/bans"
	"sluice/internal/system/kernel/netns"
	"sluice/internal/system/kernel/peer"
)

// enough is for what comes at once on a machine that has the time.
const enough = 2 * time.Minute

// wall answers in place of a host.
type wall struct {
	banned, lifted, synced atomic.Int32
	ban                    func() (*apply.Banned, error)                // may be nil
	sync                   func(context.Context) (*apply.Synced, error) // may be nil
	rested                 atomic.Int32
}

func (w *wall) History() (*apply.History, error) { return &apply.History{Boot: 3}, nil }

func (w *wall) Text(n int) (*apply.Text, error) { return nil, &apply.MissingError{Generation: n} }

func (w *wall) BanFleet(context.Context, apply.FleetBanning) (*apply.FleetBanned, error) {
	return &apply.FleetBanned{Proved: true}, nil
}

func (w *wall) Ban(_ context.Context, group []apply.Asked) []apply.Answered {
	var out []apply.Answered
	for _, a := range group {
		w.banned.Add(1)
		if w.ban != nil {
			done, err := w.ban()
			out = append(out, apply.Answered{Banned: done, Err: err})
			continue
		}
		out = append(out, apply.Answered{Banned: &apply.Banned{Banned: len(a.List)}})
	}
	return out
}

func (w *wall) Rest(context.Context) { w.rested.Add(1) }

func (w *wall) Close(context.Context) {}

func (w *wall) Unban(_ context.Context, what []bans.Named) (*apply.Banned, error) {
	w.lifted.Add(1)
	return &apply.Banned{Lifted: len(what)}, nil
}

func (w *wall) Sync(ctx context.Context) (*apply.Synced, error) {
	w.synced.Add(1)
	if w.sync != nil {
		return w.sync(ctx)
	}
	return &apply.Synced{}, nil
}

func (w *wall) LogKept(ctx context.Context, q engine.LogQuestion, grown func() <-chan struct{}, seen func(engine.Logged)) (*engine.LogAnswer, error) {
	if q.Follow {
		more := grown()
		seen(engine.Logged{Number: 1, Hook: "input", Prefix: q.Source})
		select {
		case <-ctx.Done():
		case <-more:
			seen(engine.Logged{Number: 2, Hook: "input"})
			<-ctx.Done()
		}
	}
	return &engine.LogAnswer{}, nil
}

func (w *wall) DropsFrom(ctx context.Context, _ engine.DropsFrom, c engine.DropChoice, seen func(engine.Dropped), counted func(engine.DropCounts)) (*engine.DropCounts, error) {
	if c.Reason == "" {
		return &engine.DropCounts{}, nil
	}
	seen(engine.Dropped{Reason: c.Reason})
	counted(engine.DropCounts{Packets: 1})
	<-ctx.Done()
	return &engine.DropCounts{Packets: 2}, nil
}

func (w *wall) WatchEntries(ctx context.Context, q engine.EntryWatch, seen func(engine.WatchedEntry)) (*engine.WatchedEntries, error) {
	if q.Seconds == 0 {
		seen(engine.WatchedEntry{Event: "missed", Missed: uint32(q.Port)})
		<-ctx.Done()
	}
	return &engine.WatchedEntries{Events: 3}, nil
}

// tested is a server whose callers are who the test says they are.
type tested struct {
	*server
	*wall
	path   string
	kept   *ring.Ring
	caller atomic.Pointer[peer.Peer]
}

const readersGroup = 4004

func newTested(t testing.TB) *tested {
	t.Helper()
	here, err := netns.Here()
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{Site: &Site{
		Host: &engine.Host{State: "/srv/state", Host: &apply.Host{Namespace: "shop", Version: "7"}},
		Here: " --netns shop", Command: []string{"/bin/sh", "-c", `echo '{"result":{}}'`},
	}}
	s := newSpace(t.Context(), a.Site, here)
	a.spaces.open, a.spaces.refused = map[string]*space{"shop": s}, map[string]error{"mail": &apply.NewerError{}}
	a.scraper = &scraper{spaces: &a.spaces, note: func(err error) { t.Error(err) }}
	out := &tested{server: a.newServer(here), wall: &wall{}}
	s.keep = func(*apply.Host) keeper { return out.wall }
	out.kept, err = ring.Open(t.TempDir(), ring.Least)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.kept.Close() })
	s.log.Store(&keptLog{ring: out.kept})
	out.caller.Store(root)
	out.reads.Groups = []uint32{readersGroup}
	out.changes.Users = []uint32{changer.UID}
	out.peerOf = func(c net.Conn) (*peer.Peer, error) {
		p, err := peer.Of(c.(*net.UnixConn))
		if err == nil {
			as := out.caller.Load()
			p.UID, p.GID, p.Groups = as.UID, as.GID, as.Groups
		}
		return p, err
	}
	out.server.wall = func(engine.Host) firewall { return out.wall }
	var working sync.WaitGroup
	working.Go(func() { _ = s.run() })
	t.Cleanup(func() { s.end(nil); working.Wait(); _ = here.Close() })
	return out
}

// listen has it serve on a socket.
func (s *tested) listen(t *testing.T) {
	t.Helper()
	s.path = filepath.Join(t.TempDir(), "s")
	l, free, err := listen(s.path)
	if err != nil {
		t.Fatal(err)
	}
	h := s.http()
	go func() { _ = h.Serve(l) }()
	t.Cleanup(func() { _ = h.Close(); free() })
}

func (s *tested) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(enough))
	return c
}

// ask is an answer with its body.
func (s *tested) ask(t *testing.T, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	c := s.dial(t)
	defer c.Close()
	r, err := http.NewRequest(method, "http://sluice"+path, strings.NewReader(body)) //nolint:noctx // the connection has a deadline
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if err := r.Write(c); err != nil {
		t.Log(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
	}
	return answer.StatusCode, string(text)
}

// bodies are what operations are asked with.
var bodies = map[string]string{
	"POST /v1/namespaces/{namespace}/bans":        `{"bans":[{"what":"192.0.2.1"}]}`,
	"POST /v1/namespaces/{namespace}/bans/lift":   `{"what":["192.0.2.1"]}`,
	"POST /v1/namespaces/{namespace}/allows":      `{"what":"192.0.2.1"}`,
	"POST /v1/namespaces/{namespace}/allows/lift": `{"what":"192.0.2.1"}`,
	"POST /v1/namespaces/{namespace}/sets":        `{"set":"shop","what":["192.0.2.1"]}`,
	"POST /v1/namespaces/{namespace}/sets/remove": `{"set":"shop","what":["192.0.2.1"]}`,
	"POST /v1/namespaces/{namespace}/verify":      `{"own":true}`,
	"POST /v1/namespaces/{namespace}/rollback":    `{}`,
	"POST /v1/namespaces/{namespace}/apply":       `{"policy":{"file":"a","directory":"/etc/sluice"}}`,
	"POST /v1/namespaces/{namespace}/plan":        `{"policy":{"file":"a","directory":"/etc/sluice"}}`,
	"POST /v1/namespaces/{namespace}/check":       `{"policy":{"file":"a","directory":"/etc/sluice","texts":{"a":"version: 1"}}}`,
	"POST /v1/namespaces/{namespace}/doctor":      `{}`,
	"POST /v1/namespaces/{namespace}/reach":       `{}`,
	"POST /v1/namespaces/{namespace}/map":         `{"service":"ssh"}`,
	"POST /v1/namespaces/{namespace}/diff":        `{"policy":{"file":"a","directory":"/etc/sluice"}}`,
	"POST /v1/namespaces/{namespace}/refresh":     `{}`,

	"POST /v1/namespaces/{namespace}/countries/update": `{}`,
	"POST /v1/namespaces/{namespace}/explain":          `{}`,
	"POST /v1/namespaces/{namespace}/query":            `{}`,
	"POST /v1/namespaces/{namespace}/entries":          `{}`,
	"POST /v1/namespaces/{namespace}/entries/delete":   `{"port":22}`,
	"POST /v1/namespaces/{namespace}/entries/watch":    `{"seconds":1}`,
	"POST /v1/namespaces/{namespace}/lists/plan":       `{"list":"a","gzip":""}`,
	"POST /v1/namespaces/{namespace}/top":              `{"every-ns":1000000000}`,
	"POST /v1/namespaces/{namespace}/drops":            `{"seconds":1}`,
	"POST /v1/namespaces/{namespace}/tuning":           `{"for":"conntrack","persist":true}`,
	"POST /v1/namespaces/{namespace}/tuning/plan":      `{}`,
	"POST /v1/namespaces/{namespace}/tuning/revert":    `{}`,
}

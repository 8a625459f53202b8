package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/agent/api"
	"sluice/internal/agent/config"
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

var (
	root    = &peer.Peer{PID: 1}
	reader  = &peer.Peer{UID: 4000, GID: 4000, Groups: []uint32{readersGroup}}
	changer = &peer.Peer{UID: 4002, GID: 4002}
	nobody  = &peer.Peer{UID: 4001, GID: 4001}
)

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

// TestRights asks for each operation as everybody who may, and may not.
func TestRights(t *testing.T) {
	s := newTested(t)
	s.listen(t)
	for pattern, o := range operations {
		method, path, _ := strings.Cut(strings.NewReplacer("{namespace}", "shop", "{generation}", "7").Replace(pattern), " ")
		for as, may := range map[*peer.Peer]right{root: change, changer: change, reader: read, nobody: nothing} {
			s.caller.Store(as)
			headers := []string{}
			if strings.HasSuffix(pattern, "/top") {
				headers = []string{"Accept", api.Lines}
			}
			status, text := s.ask(t, method, path, bodies[pattern], headers...)
			if refused := status == http.StatusForbidden; refused != (may < o.right) || status == http.StatusNotFound || may >= o.right && status != http.StatusOK && o.right != nothing && !strings.Contains(pattern, "{generation}") {
				t.Errorf("user %d, %s: %d %s", as.UID, pattern, status, text)
			}
		}
	}
	if s.banned.Load() != 2 || s.lifted.Load() != 2 || s.synced.Load() != 2 { // by root and by who may
		t.Errorf("%d bans, %d lifts, %d syncs", s.banned.Load(), s.lifted.Load(), s.synced.Load())
	}
	for as, want := range map[*peer.Peer]int{reader: http.StatusForbidden, changer: http.StatusOK} {
		s.caller.Store(as)
		if status, text := s.ask(t, http.MethodPost, "/v1/namespaces/shop/drops", `{"seconds":1,"trace":true}`); status != want {
			t.Errorf("user %d traces: %d %s", as.UID, status, text)
		}
	}
	s.caller.Store(reader)
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if _, text := s.ask(t, http.MethodGet, "/v1", ""); text != `{"host":"`+name+`","namespaces":["shop"],"not-served":[{"namespace":"mail","why":"`+(&apply.NewerError{}).Error()+`"}],"protocols":[1],"version":"7","you":{"may":"read","user":"4000"}}`+"\n" {
		t.Error(text)
	}
}

// TestRefused asks for what is refused before anything is done.
func TestRefused(t *testing.T) {
	s := newTested(t)
	s.listen(t)
	const ban = "/v1/namespaces/shop/bans"
	for name, c := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		kind               api.Kind
	}{
		"no such path":    {http.MethodGet, "/v2", "", nil, 404, api.NotServed},
		"another method":  {http.MethodDelete, ban, "", nil, 404, api.NotServed},
		"not served":      {http.MethodPost, "/v1/namespaces/shop/format", "{}", nil, 404, api.NotServed},
		"other namespace": {http.MethodPost, "/v1/namespaces/mail/bans", bodies["POST /v1/namespaces/{namespace}/bans"], nil, 404, api.NotServed},
		"other state":     {http.MethodPost, ban, "{}", []string{api.StateHeader, "/srv/other"}, 421, api.OtherState},
		"protocol":        {http.MethodPost, ban, "{}", []string{api.ProtocolHeader, "9"}, 426, api.OtherProtocol},
		"no JSON":         {http.MethodPost, ban, "rubbish", nil, 400, api.BadRequest},
		"unknown field":   {http.MethodPost, ban, `{"bans":[],"more":1}`, nil, 400, api.BadRequest},
		"nothing":         {http.MethodPost, ban, `{"bans":[]}`, nil, 400, api.BadRequest},
		"no address":      {http.MethodPost, ban, `{"bans":[{"what":"x"}]}`, nil, 400, api.BadRequest},
		"no country":      {http.MethodPost, ban, `{"bans":[{"what":"EN"}]}`, nil, 400, api.BadRequest},
		"too short":       {http.MethodPost, ban, `{"bans":[{"what":"192.0.2.1"}],"for":0.5}`, nil, 400, api.BadRequest},
		"too long":        {http.MethodPost, ban, `{"bans":[{"what":"192.0.2.1"}],"for":1e18}`, nil, 400, api.BadRequest},
		"no number":       {http.MethodGet, "/v1/namespaces/shop/generations/x", "", nil, 400, api.BadRequest},
		"reason":          {http.MethodPost, ban + "?reason=a%0Ab", bodies["POST /v1/namespaces/{namespace}/bans"], nil, 400, api.BadRequest},
		"body":            {http.MethodPost, "/v1/namespaces/shop/sync", "{}", nil, 400, api.BadRequest},
		"large":           {http.MethodPost, ban, `{"bans":[{"what":"` + strings.Repeat("x", large) + `"}]}`, nil, 413, api.TooLarge},
		"text":            {http.MethodPost, "/v1/namespaces/shop/apply", `{"policy":{"text":"version: 1"}}`, nil, 400, api.BadRequest},
		"no file":         {http.MethodPost, "/v1/namespaces/shop/map", `{"policy":{"file":"","texts":{"a":""}}}`, nil, 400, api.BadRequest},
		"a file":          {http.MethodPost, "/v1/namespaces/shop/countries/update", `{"from":["dbip","/etc/shadow"]}`, nil, 400, api.BadRequest},
		"none such":       {http.MethodGet, "/v1/namespaces/shop/generations/7", "", nil, 422, ""},
	} {
		status, text := s.ask(t, c.method, c.path, c.body, c.headers...)
		var f api.Failure
		if err := json.Unmarshal([]byte(text), &f); err != nil || status != c.status || f.Kind != c.kind || f.Exit == 0 {
			t.Errorf("%s: %d %s %v", name, status, text, err)
		}
		if name == "none such" && !strings.Contains(f.Text, "hint: sluice history --netns shop lists") {
			t.Errorf("the hint is not that of the command: %s", text)
		}
	}
	if s.banned.Load() != 0 || s.synced.Load() != 0 {
		t.Error("something was done")
	}
}

// TestRootAlone asks for what nobody else may.
func TestRootAlone(t *testing.T) {
	s := newTested(t)
	s.listen(t)
	for operation, body := range map[string]string{
		"apply": `"options":{"force":true}`, "apply ": `"options":{"no-verify":true}`, "apply  ": `"building":{"no-expect":true}`, "apply    ": "texts", "plan": `"building":{"no-expect":true}`,
		"rollback": `"options":{"force":true}`, "refresh": `"force":true`,
		"countries/update": `"from":["dbip"]`, "countries/update ": `"force":true`, "countries/update  ": `"sha256":"00"`, "countries/update   ": `"date":"2026-06-01"`,
	} {
		for as, want := range map[*peer.Peer]int{root: http.StatusOK, changer: http.StatusForbidden} {
			s.caller.Store(as)
			asked := "{" + body + "}"
			if operation == "apply    " {
				asked = `{"policy":{"file":"/etc/sluice/a","texts":{"/etc/sluice/a":"version: 1"}}}`
			} else if strings.HasPrefix(operation, "apply") || operation == "plan" {
				asked = `{"policy":{"file":"/etc/sluice/a"},` + body + "}"
			}
			status, text := s.ask(t, http.MethodPost, "/v1/namespaces/shop/"+strings.TrimSpace(operation), asked)
			if status != want || want != http.StatusOK && !strings.Contains(text, "only root may") {
				t.Errorf("user %d, %s %s: %d %s", as.UID, operation, body, status, text)
			}
		}
	}
}

// TestWorkersForAll has a fleet and readers take all the processes that they get: what is bounded
// takes one of the readers'. There is one left for who may change the firewall, and one for root.
func TestWorkersForAll(t *testing.T) {
	s := newTested(t)
	s.listen(t)
	began := filepath.Join(t.TempDir(), "began")
	if err := unix.Mkfifo(began, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(began, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	_ = pipe.SetDeadline(time.Now().Add(enough))
	lines := bufio.NewReader(pipe)
	s.spaces.open["shop"].Command = []string{"/bin/sh", "-c", `echo $(cat) >"$0"; exec sleep 600`, began}
	connected := 0
	s.fleetMay = config.All
	for _, c := range []struct {
		as        *peer.Peer
		operation string
		begin     int
	}{{peer.Self(fleetUser), "entries", askWorkers}, {reader, "query", 1}, {reader, "explain", 1}, {changer, "rollback", 1}, {root, "restore", 1}} {
		s.caller.Store(c.as)
		for range mostWorkers {
			body := bodies["POST /v1/namespaces/{namespace}/"+c.operation]
			fmt.Fprintf(s.dial(t), "POST /v1/namespaces/shop/%s HTTP/1.1\r\nHost: sluice\r\nContent-Length: %d\r\n\r\n%s", c.operation, len(body), body)
			connected++
		}
		await(t, "a connection", func() bool {
			s.open.mutex.Lock()
			defer s.open.mutex.Unlock()
			return len(s.open.open) == connected
		})
		for began := 0; began < c.begin; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("user %d, %s: %v", c.as.UID, c.operation, err)
			}
			if strings.Contains(line, `"operation":"`+c.operation) {
				began++
			}
		}
	}
}

// TestLockLeft has readers ask for what takes the lock: one has it at a time, and then nobody.
func TestLockLeft(t *testing.T) {
	s := newTested(t)
	s.listen(t)
	times := filepath.Join(t.TempDir(), "times")
	s.spaces.open["shop"].Command = []string{"/bin/sh", "-c", `date +%s%N >>"$0"; sleep 0.01; date +%s%N >>"$0"; echo '{"result":{}}'`, times}
	var asking sync.WaitGroup
	s.caller.Store(reader)
	for _, path := range []string{"plan", "plan", "verify"} {
		asking.Go(func() {
			if status, text := s.ask(t, http.MethodPost, "/v1/namespaces/shop/"+path, bodies["POST /v1/namespaces/{namespace}/"+path]); status != http.StatusOK {
				t.Errorf("%s: %d %s", path, status, text)
			}
		})
	}
	asking.Wait()
	text, err := os.ReadFile(times)
	if err != nil {
		t.Fatal(err)
	}
	var at []int64
	for line := range strings.Lines(string(text)) {
		n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, n)
	}
	if len(at) != 6 {
		t.Fatalf("%d times", len(at))
	}
	for i := 1; i < 5; i += 2 {
		if left := time.Duration(at[i+1] - at[i]); left < leftTime {
			t.Errorf("the lock was left for %s", left)
		}
	}
}

// TestBusy waits for another command as long as the caller wants, and does other work
// meanwhile.
func TestBusy(t *testing.T) {
	s := newTested(t)
	s.listen(t)
	free := make(chan struct{})
	s.ban = func() (*apply.Banned, error) {
		select {
		case <-free:
			return &apply.Banned{Banned: 1}, nil
		default:
			return nil, &apply.BusyError{Holder: "process 7"}
		}
	}
	const path, body = "/v1/namespaces/shop/bans", `{"bans":[{"what":"192.0.2.1"}]}`
	if status, text := s.ask(t, http.MethodPost, path, body, api.WaitHeader, "0"); status != http.StatusConflict || !strings.Contains(text, "process 7 is changing the firewall") {
		t.Errorf("%d %s", status, text)
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		_, text := s.ask(t, http.MethodPost, path, body, api.WaitHeader, "600", "Accept", api.Lines)
		if want := `{"note":"waiting at most 10m0s for process 7"}` + "\n" + `{"result":{"banned":1,"in-force":false}}` + "\n"; text != want {
			t.Errorf("%s", text)
		}
	})
	for s.banned.Load() < 3 {
		time.Sleep(time.Millisecond)
	}
	if status, text := s.ask(t, http.MethodPost, "/v1/namespaces/shop/sync", ""); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	close(free)
	asking.Wait()
}

// TestCallerGone ends a change whose caller has gone.
func TestCallerGone(t *testing.T) {
	s := newTested(t)
	s.listen(t)
	begun, ended := make(chan struct{}), make(chan error)
	s.sync = func(ctx context.Context) (*apply.Synced, error) {
		close(begun)
		select {
		case <-ctx.Done():
		case <-time.After(enough):
		}
		ended <- ctx.Err()
		return nil, ctx.Err()
	}
	c := s.dial(t)
	fmt.Fprint(c, "POST /v1/namespaces/shop/sync HTTP/1.1\r\nHost: sluice\r\nContent-Length: 0\r\n\r\n")
	<-begun
	_ = c.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestBansTogether: what waits is banned together, and answered one by one; then it rests.
func TestBansTogether(t *testing.T) {
	s := newTested(t)
	s.listen(t)
	begun, free := make(chan struct{}, 1), make(chan struct{})
	n := 0
	s.ban = func() (*apply.Banned, error) {
		select {
		case begun <- struct{}{}:
			<-free
		default:
		}
		if n++; n == 3 {
			return nil, errors.New("not this one")
		}
		return &apply.Banned{Banned: n}, nil
	}
	const path, body = "/v1/namespaces/shop/bans", `{"bans":[{"what":"192.0.2.1"}]}`
	var asking sync.WaitGroup
	var good, bad atomic.Int32
	ask := func() {
		switch status, text := s.ask(t, http.MethodPost, path, body); {
		case status == http.StatusOK:
			good.Add(1)
		case strings.Contains(text, "not this one"):
			bad.Add(1)
		default:
			t.Errorf("%d %s", status, text)
		}
	}
	asking.Go(ask)
	<-begun
	for range 9 {
		asking.Go(ask)
	}
	close(free)
	asking.Wait()
	if good.Load() != 9 || bad.Load() != 1 {
		t.Errorf("%d were banned, %d refused", good.Load(), bad.Load())
	}
	for until := time.Now().Add(enough); s.rested.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it never rests")
		}
	}
}

// TestManyConnections keeps room for root, and closes who is idle for longest.
func TestManyConnections(t *testing.T) {
	s := newTested(t)
	heard := s.heard()
	s.listen(t)
	s.caller.Store(nobody)
	var open []net.Conn
	for range mostOfUser + 1 {
		open = append(open, s.dial(t))
	}
	if _, err := open[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) && err == nil {
		t.Errorf("the first one stays: %v", err)
	}
	awaitLine(t, heard, "a connection is closed: too many are open 4001 too-many")
	for user := range mostConnections/mostOfUser + 1 {
		s.caller.Store(&peer.Peer{UID: uint32(5000 + user)})
		for range mostOfUser {
			s.dial(t)
		}
	}
	s.caller.Store(root)
	if status, text := s.ask(t, http.MethodGet, "/v1", ""); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	s.open.mutex.Lock()
	defer s.open.mutex.Unlock()
	if many := len(s.open.open); many > mostConnections {
		t.Errorf("%d connections", many)
	}
}

// TestOneAgent lets the socket to one, and takes it over from one that was killed.
func TestOneAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, free, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	var taken *apply.TakenError
	if _, _, err := listen(path); !errors.As(err, &taken) {
		t.Errorf("two agents: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	free()
	l, free, err = listen(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	free()
}

// FuzzConnection has a connection send anything. Nothing of the agent's breaks by it, and
// a ban is one that was asked for.
func FuzzConnection(f *testing.F) {
	body := bodies["POST /v1/namespaces/{namespace}/bans"]
	for _, text := range []string{
		"GET /v1 HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/namespaces/shop/generations HTTP/1.1\r\nHost: x\r\n\r\n",
		fmt.Sprintf("POST /v1/namespaces/shop/bans?reason=x HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\nSluice-Wait: 0\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
		"POST /v1/namespaces/shop/bans/lift HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"what\r\n0\r\n\r\n",
		"POST /v1/namespaces/shop/sync HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
		"GET /v1/namespaces/%2e%2e/generations/-1 HTTP/1.0\r\nSluice-Protocol: 1\r\nSluice-State: /\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := newTested(t)
		s.caller.Store(root)
		panicked := &bytes.Buffer{}
		h := s.http()
		h.ErrorLog = nil
		h.Handler = recovered(h.Handler, panicked)
		l := &once{conns: make(chan net.Conn, 1)}
		ours, theirs := pair(t)
		l.conns <- theirs
		var serving sync.WaitGroup
		serving.Go(func() { _ = h.Serve(l) })
		serving.Go(func() { _, _ = io.Copy(io.Discard, ours) })
		_ = ours.SetWriteDeadline(time.Now().Add(enough))
		_, _ = ours.Write(text)
		_ = ours.(*net.UnixConn).CloseWrite()
		_ = h.Shutdown(t.Context())
		_ = ours.Close()
		serving.Wait()
		if panicked.Len() > 0 {
			t.Errorf("%q: %s", text, panicked)
		}
		if s.banned.Load() > 0 && !bytes.Contains(text, []byte("bans")) {
			t.Errorf("%q bans", text)
		}
	})
}

func pair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, end := range ends {
		f := os.NewFile(uintptr(end), "end")
		if conns[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return conns[0], conns[1]
}

func recovered(next http.Handler, told io.Writer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if broken := recover(); broken != nil && broken != any(http.ErrAbortHandler) {
				fmt.Fprint(told, broken)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// once accepts what it is given.
type once struct{ conns chan net.Conn }

func (o *once) Accept() (net.Conn, error) {
	c, more := <-o.conns
	if !more {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (o *once) Close() error { close(o.conns); return nil }

func (o *once) Addr() net.Addr { return &net.UnixAddr{} }

package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"sluice/internal/engine/apply"
	"sluice/internal/system/kernel/peer"
)

var (
	root    = &peer.Peer{PID: 1}
	reader  = &peer.Peer{UID: 4000, GID: 4000, Groups: []uint32{readersGroup}}
	changer = &peer.Peer{UID: 4002, GID: 4002}
	nobody  = &peer.Peer{UID: 4001, GID: 4001}
)

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
	if s.banned.Load() != 2 || s.lifted.Load() != 2 || s.synced.Load() != 2 { // by root and by whoever may
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
// takes one of the readers'. There is one left for whoever may change the firewall, and one for root.
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

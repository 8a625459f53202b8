package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/agent/alert"
	"sluice/internal/agent/api"
	"sluice/internal/base/addrset"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/bans"
	"sluice/internal/system/kernel/netns"
)

// testHost is one with an agent, and with namespaces that come and go.
type testHost struct {
	t      *testing.T
	state  string
	socket string
	prefix string // of the names
	with   []func(*Site)
	agent  *Agent
}

// newHost starts an agent of a namespace that nobody else uses.
func newHost(t *testing.T, with ...func(*Site)) *testHost {
	t.Helper()
	net := testnet.New(t)
	h := &testHost{t: t, state: t.TempDir(), socket: filepath.Join(t.TempDir(), "s"), prefix: fmt.Sprintf("sl-agent-p%d-", os.Getpid()), with: with}
	h.agent = &Agent{Site: h.site(""), Socket: h.socket, Named: func(name string) (*Site, error) { return h.site(name), nil }, Namespaces: []string{h.prefix + "*"}}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := net.Unnamed("own").Do(func() error { return h.agent.Run(ctx) }); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	await(t, "a socket", func() bool { _, err := os.Stat(h.socket); return err == nil })
	return h
}

func (h *testHost) site(name string) *Site {
	out, err := engine.NewHost(h.state, name, "tested")
	if err != nil {
		h.t.Fatal(err)
	}
	out.Note = func(text string) { h.t.Log(name, text) }
	out.Words = error.Error
	alerts := alert.New(nil, "")
	alerts.Print = func(text string) { h.t.Log("alert", text) }
	site := &Site{Host: out, Command: []string{"/bin/false"}, Told: func(*apply.Synced) {}, Alerts: alerts}
	for _, f := range h.with {
		f(site)
	}
	return site
}

func await(t *testing.T, what string, there func() bool) {
	t.Helper()
	for until := time.Now().Add(enough); !there(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%s never comes", what)
		}
	}
}

func (h *testHost) ip(words ...string) {
	h.t.Helper()
	if out, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
		h.t.Fatalf("ip %s: %v %s", words, err, out)
	}
}

// make makes a namespace, and awaits that it is served.
func (h *testHost) make(label string) (name string) {
	h.t.Helper()
	name = h.prefix + label
	h.ip("netns", "add", name)
	h.t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	h.wantServed(name, true)
	return name
}

func (h *testHost) wantServed(name string, want bool) {
	h.t.Helper()
	await(h.t, fmt.Sprintf("%s served: %v", name, want), func() bool {
		s, _ := h.agent.spaces.of(name)
		return (s != nil) == want
	})
}

const testedPolicy = `version: 1
input:
  default: drop
  rules:
    - allow tcp/22
`

// load loads a policy in a namespace, as a command does.
func (h *testHost) load(name string) {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(testedPolicy), 0o600); err != nil {
		h.t.Fatal(err)
	}
	one := h.site(name).Host
	at, err := netns.Named(name)
	if err != nil {
		h.t.Fatal(err)
	}
	defer at.Close()
	one.Netns, one.Wait, one.Note = at, enough, nil
	if _, err := one.Apply(h.t.Context(), engine.Request{File: file}, apply.Options{}); err != nil {
		h.t.Fatal(err)
	}
}

// ask asks by a connection of its own.
func (h *testHost) ask(method, path, body string) (int, string) {
	c, err := net.Dial("unix", h.socket)
	if err != nil {
		h.t.Error(err)
		return 0, ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(enough))
	r, err := http.NewRequest(method, "http://sluice/v1"+path, strings.NewReader(body)) //nolint:noctx // the connection has a deadline
	if err == nil {
		err = r.Write(c)
	}
	var answer *http.Response
	if err == nil {
		answer, err = http.ReadResponse(bufio.NewReader(c), r)
	}
	if err != nil {
		h.t.Error(err)
		return 0, ""
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(answer.Body); err != nil {
		h.t.Error(err)
	}
	return answer.StatusCode, text.String()
}

// ban bans an address, and says what was answered instead where it was not.
func (h *testHost) ban(name, address string) error {
	status, text := h.ask(http.MethodPost, "/namespaces/"+name+"/bans", fmt.Sprintf(`{"bans":[{"what":%q}]}`, address))
	var out apply.Banned
	if err := json.Unmarshal([]byte(text), &out); err != nil || status != http.StatusOK || out.Banned != 1 || !out.InForce {
		return fmt.Errorf("%d %s %w", status, text, err)
	}
	return nil
}

func (h *testHost) wantHolds(name, address string) {
	h.t.Helper()
	out, err := exec.Command("ip", "netns", "exec", name, "nft", "list", "ruleset").CombinedOutput()
	if err != nil || !strings.Contains(string(out), address) {
		h.t.Errorf("%s does not hold %s: %v %s", name, address, err, out)
	}
}

// TestManySpaces serves 20 namespaces at once, each with what is its own.
func TestManySpaces(t *testing.T) {
	h := newHost(t)
	const many = 20
	var names []string
	for i := range many {
		name := h.make(fmt.Sprint(i))
		h.load(name)
		names = append(names, name)
	}
	var asking sync.WaitGroup
	for i, name := range names {
		asking.Go(func() {
			for n := range 5 {
				if err := h.ban(name, fmt.Sprintf("198.51.%d.%d", 100+i, n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	asking.Wait()
	for i, name := range names {
		out, err := exec.Command("ip", "netns", "exec", name, "nft", "list", "ruleset").CombinedOutput()
		if own := fmt.Sprintf("198.51.%d.", 100+i); err != nil || strings.Count(string(out), own) != 5 || strings.Count(string(out), "198.51.") != 5 {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
	_, text := h.ask(http.MethodGet, "", "")
	var about api.About
	if err := json.Unmarshal([]byte(text), &about); err != nil || len(about.Namespaces) != many+1 || about.Namespaces[0] != own || len(about.NotServed) > 0 {
		t.Errorf("%v %s", err, text)
	}
}

// TestBansBesideCommands: what the agent bans and what commands do beside it is all there.
func TestBansBesideCommands(t *testing.T) {
	h := newHost(t)
	name := h.make("beside")
	h.load(name)
	command := h.site(name).Host
	at, err := netns.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	command.Netns, command.Wait, command.Note = at, enough, nil
	const each = 30
	var asking sync.WaitGroup
	for who := range 4 {
		asking.Go(func() {
			for i := range each {
				address := netip.AddrFrom4([4]byte{198, 51, byte(100 + who), byte(i)})
				if who > 0 {
					if err := h.ban(name, address.String()); err != nil {
						t.Errorf("%s by the agent: %v", address, err)
					}
					continue
				}
				in := apply.Banning{List: []bans.Named{{What: addrset.Range{From: address, To: address}}}}
				if out, err := command.Ban(t.Context(), in); err != nil || !out.InForce {
					t.Errorf("%s by a command: %+v %v", address, out, err)
				}
				if i%10 == 0 {
					if _, err := command.Unban(t.Context(), in.List[:1]); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	asking.Wait()
	list, err := command.Bans(t.Context())
	if want := 4*each - each/10; err != nil || len(list) != want {
		t.Errorf("%d bans, want %d, %v", len(list), want, err)
	}
	for _, b := range list {
		if !b.InForce {
			t.Errorf("%+v", b)
		}
	}
	if s, err := command.Status(t.Context(), true); err != nil || len(s.Drift) > 0 {
		t.Errorf("%+v %v", s, err)
	}
}

// TestSpaceGone: what waits in a namespace that goes is answered, nothing keeps it, and one
// of the same name is another.
func TestSpaceGone(t *testing.T) {
	h := newHost(t)
	name, watching := h.make("gone"), h.make("watching")
	h.load(name)
	if err := h.ban(name, "198.51.100.1"); err != nil {
		t.Fatal(err)
	}
	// Its device goes with it.
	h.ip("-n", name, "link", "add", "inside", "type", "veth", "peer", "name", "outside", "netns", watching)
	s, err := h.agent.spaces.of(name)
	if err != nil {
		t.Fatal(err)
	}
	begun, waited := make(chan struct{}), make(chan error, 1)
	go func() { _ = s.do(t.Context(), func() { close(begun); <-s.ctx.Done() }) }()
	<-begun
	go func() { waited <- h.ban(name, "198.51.100.2") }()
	h.ip("netns", "del", name)
	if err := <-waited; err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("what waited for a namespace that is gone: %v", err)
	}
	await(t, "the end of the namespace", func() bool {
		return exec.Command("ip", "-n", watching, "link", "show", "outside").Run() != nil
	})
	if err := h.ban(name, "198.51.100.3"); err == nil || !strings.Contains(err.Error(), string(api.NotServed)) {
		t.Errorf("a namespace that is gone is served: %v", err)
	}
	h.ip("netns", "add", name)
	h.wantServed(name, true)
	if again, _ := h.agent.spaces.of(name); again == s {
		t.Error("it is the one of before")
	}
	h.load(name)
	if err := h.ban(name, "198.51.100.4"); err != nil {
		t.Error(err)
	}
	h.wantHolds(name, "198.51.100.1")
	h.wantHolds(name, "198.51.100.4")
	if !errors.Is(context.Cause(s.ctx), errGone) {
		t.Errorf("it ended by %v", context.Cause(s.ctx))
	}
}

// TestSpacesLeaveNothing: no descriptors, goroutines or memory stay of namespaces that come
// and go.
func TestSpacesLeaveNothing(t *testing.T) {
	h := newHost(t)
	round := func() {
		name := h.make("round")
		h.load(name)
		if err := h.ban(name, "198.51.100.1"); err != nil {
			t.Fatal(err)
		}
		h.ip("netns", "del", name)
		await(t, "the end of it", func() bool {
			h.agent.spaces.mutex.Lock()
			defer h.agent.spaces.mutex.Unlock()
			return h.agent.spaces.open[name] == nil
		})
	}
	type left struct{ descriptors, goroutines, threads, heap int }
	now := func() (l left) {
		debug.FreeOSMemory()
		list := func(folder string) int {
			all, err := os.ReadDir(folder)
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return left{list("/proc/self/fd"), runtime.NumGoroutine(), list("/proc/self/task"), int(m.HeapAlloc)}
	}
	rounds := 50
	if testing.Short() {
		rounds = 10
	}
	await(t, "the count of what the kernel drops, which stays", func() bool {
		s, _ := h.agent.spaces.of(own)
		return s != nil && s.drops.Load() != nil
	})
	for range 5 {
		round()
	}
	before := now()
	for range rounds {
		round()
	}
	after := now()
	t.Logf("before %+v, after %+v", before, after)
	if after.descriptors > before.descriptors+2 || after.goroutines > before.goroutines+5 || after.threads > before.threads+10 || after.heap > before.heap+1<<20 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

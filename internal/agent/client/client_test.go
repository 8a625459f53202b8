package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/agent/api"
	"sluice/internal/base/addrset"
	"sluice/internal/base/exposition"
	"sluice/internal/base/packet"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/language/bans"
	"sluice/internal/program"
	"sluice/internal/prove/explain"
	"sluice/internal/prove/query"
)

// agent answers each request as its test wants, and keeps what was asked.
type agent struct {
	api.ServerInterface // nil: what no command asks for

	asked  []string
	meant  api.Meant
	answer func(*api.Answer)

	request *http.Request // the last one
}

func (a *agent) take(operation string, w http.ResponseWriter, r *http.Request, namespace string) {
	body, _ := io.ReadAll(r.Body)
	a.asked = append(a.asked, strings.TrimSpace(operation+" "+namespace+" "+r.URL.RawQuery+string(body)))
	a.meant, _ = api.MeantBy(r)
	a.request = r
	a.answer(api.NewAnswer(w, r))
}

func (a *agent) About(w http.ResponseWriter, r *http.Request) { a.take("about", w, r, "") }

func (a *agent) Apply(w http.ResponseWriter, r *http.Request, n string) { a.take("apply", w, r, n) }

func (a *agent) Bans(w http.ResponseWriter, r *http.Request, n string)  { a.take("bans", w, r, n) }
func (a *agent) Ban(w http.ResponseWriter, r *http.Request, n string)   { a.take("ban", w, r, n) }
func (a *agent) Unban(w http.ResponseWriter, r *http.Request, n string) { a.take("unban", w, r, n) }

func (a *agent) PastBans(w http.ResponseWriter, r *http.Request, n string) {
	a.take("past bans", w, r, n)
}

func (a *agent) Allows(w http.ResponseWriter, r *http.Request, n string) { a.take("allows", w, r, n) }

func (a *agent) Allow(w http.ResponseWriter, r *http.Request, n string) { a.take("allow", w, r, n) }

func (a *agent) Disallow(w http.ResponseWriter, r *http.Request, n string) {
	a.take("disallow", w, r, n)
}

func (a *agent) LivingSets(w http.ResponseWriter, r *http.Request, n string) {
	a.take("sets", w, r, n)
}

func (a *agent) AddToSet(w http.ResponseWriter, r *http.Request, n string) {
	a.take("add to set", w, r, n)
}

func (a *agent) RemoveFromSet(w http.ResponseWriter, r *http.Request, n string) {
	a.take("remove from set", w, r, n)
}

func (a *agent) Plan(w http.ResponseWriter, r *http.Request, n string)   { a.take("plan", w, r, n) }
func (a *agent) Remove(w http.ResponseWriter, r *http.Request, n string) { a.take("remove", w, r, n) }

func (a *agent) Restore(w http.ResponseWriter, r *http.Request, n string) { a.take("restore", w, r, n) }

func (a *agent) Refresh(w http.ResponseWriter, r *http.Request, n string) { a.take("refresh", w, r, n) }

func (a *agent) Explain(w http.ResponseWriter, r *http.Request, n string) { a.take("explain", w, r, n) }

func (a *agent) Entries(w http.ResponseWriter, r *http.Request, n string) {
	a.take("entries", w, r, n)
}

func (a *agent) DeleteEntries(w http.ResponseWriter, r *http.Request, n string) {
	a.take("delete entries", w, r, n)
}

func (a *agent) Drops(w http.ResponseWriter, r *http.Request, n string) { a.take("drops", w, r, n) }

func (a *agent) WatchEntries(w http.ResponseWriter, r *http.Request, n string) {
	a.take("watch entries", w, r, n)
}
func (a *agent) Top(w http.ResponseWriter, r *http.Request, n string) { a.take("top", w, r, n) }

func (a *agent) PlanTable(w http.ResponseWriter, r *http.Request, n string) {
	a.take("plan table", w, r, n)
}
func (a *agent) Tune(w http.ResponseWriter, r *http.Request, n string)   { a.take("tune", w, r, n) }
func (a *agent) Untune(w http.ResponseWriter, r *http.Request, n string) { a.take("untune", w, r, n) }

func (a *agent) Query(w http.ResponseWriter, r *http.Request, n string) { a.take("query", w, r, n) }

func (a *agent) Confirm(w http.ResponseWriter, r *http.Request, n string) { a.take("confirm", w, r, n) }

func (a *agent) History(w http.ResponseWriter, r *http.Request, n string) { a.take("history", w, r, n) }

func (a *agent) Generation(w http.ResponseWriter, r *http.Request, n string, generation int) {
	a.take("generation", w, r, n+" "+string(rune('0'+generation)))
}

func (a *agent) Rollback(w http.ResponseWriter, r *http.Request, n string) {
	a.take("rollback", w, r, n)
}

func (a *agent) Status(w http.ResponseWriter, r *http.Request, n string, _ api.StatusParams) {
	a.take("status", w, r, n)
}

func (a *agent) Log(w http.ResponseWriter, r *http.Request, n string, _ api.LogParams) {
	a.take("log", w, r, n)
}

func (a *agent) Metrics(w http.ResponseWriter, r *http.Request, n string) { a.take("metrics", w, r, n) }

func (a *agent) Scrape(w http.ResponseWriter, r *http.Request) { a.take("scrape", w, r, "") }

func (a *agent) Sync(w http.ResponseWriter, r *http.Request, n string) { a.take("sync", w, r, n) }

func (a *agent) UpdateCountries(w http.ResponseWriter, r *http.Request, n string) {
	a.take("update countries", w, r, n)
}

func (a *agent) UndoCountries(w http.ResponseWriter, r *http.Request, n string) {
	a.take("undo countries", w, r, n)
}

func (a *agent) Verify(w http.ResponseWriter, r *http.Request, n string) { a.take("verify", w, r, n) }

// local counts what is done by the command itself.
type local struct {
	Door
	banned int
}

func (l *local) Ban(context.Context, apply.Banning) (*apply.Banned, error) {
	l.banned++
	return &apply.Banned{Banned: 7}, nil
}

func (l *local) Verify(context.Context, *engine.Subject, bool) (*engine.Verified, error) {
	return nil, errors.New("here")
}

// listening is a host whose agent is a.
func listening(t *testing.T, a *agent) (*Host, *local) {
	t.Helper()
	here := &local{}
	h := &Host{Door: here, Meant: api.Meant{State: "/srv/x", Wait: time.Second}, Socket: filepath.Join(t.TempDir(), "s")}
	if a != nil {
		l, err := net.Listen("unix", h.Socket)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: api.Handler(a)}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close() })
	}
	return h, here
}

// Each method asks the operation that the document has for it, and gives its result.
func TestOperations(t *testing.T) {
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	what := addrset.MustParseRange("192.0.2.0/24")
	for want, c := range map[string]struct {
		ask    func(*Host) (any, error)
		answer any
	}{
		"metrics -":          {func(h *Host) (any, error) { return h.Metrics(ctx) }, []exposition.Family{{Name: "a", Samples: []exposition.Sample{{Value: 3}}}}},
		"status -":           {func(h *Host) (any, error) { return h.Status(ctx, true) }, &apply.Status{Boot: 3}},
		"status - fast=true": {func(h *Host) (any, error) { return h.Status(ctx, false) }, &apply.Status{Boot: 3}},
		"history -":          {func(h *Host) (any, error) { return h.History() }, &apply.History{Boot: 3}},
		"generation - 7":     {func(h *Host) (any, error) { return h.Text(7) }, &apply.Text{Generation: &apply.Generation{Number: 7}}},
		"bans -":             {func(h *Host) (any, error) { return h.Bans(ctx) }, []apply.BanEntry{{What: "192.0.2.1"}}},
		"past bans -":        {func(h *Host) (any, error) { return h.PastBans() }, []apply.PastBan{{What: "192.0.2.1", Lifted: true}}},
		`ban - {"bans":[{"reason":"why","what":"192.0.2.0/24"}],"for":90}`: {func(h *Host) (any, error) {
			return h.Ban(ctx, apply.Banning{List: []bans.Named{{What: what, Reason: "why"}}, For: 90 * time.Second})
		}, &apply.Banned{Banned: 1}},
		`unban - {"what":["192.0.2.0/24","DE"]}`: {func(h *Host) (any, error) { return h.Unban(ctx, []bans.Named{{What: what}, {Country: "DE"}}) }, &apply.Banned{Lifted: 1}},
		"allows -":                               {func(h *Host) (any, error) { return h.Allows(ctx) }, []engine.AllowEntry{{InForce: true}}},
		`allow - {"for":90,"service":"ssh","what":"192.0.2.0/24"}`: {func(h *Host) (any, error) {
			return h.Allow(ctx, engine.Allowing{What: what, Service: "ssh", For: 90 * time.Second})
		}, &engine.Allowed{Generation: 3}},
		`disallow - {"force":true,"what":"192.0.2.0/24"}`: {func(h *Host) (any, error) {
			return h.Disallow(ctx, engine.Allowing{What: what, Force: true})
		}, &engine.Allowed{Generation: 3}},
		"sets -": {func(h *Host) (any, error) { return h.LivingSets(ctx) }, []engine.LivingSet{{Name: "shop"}}},
		`add to set - {"for":90,"set":"shop","what":["192.0.2.0/24"]}`: {func(h *Host) (any, error) {
			return h.AddToSet(ctx, engine.SetEdit{Set: "shop", What: []addrset.Range{what}, For: 90 * time.Second})
		}, &engine.SetEdited{Generation: 3}},
		`remove from set - {"force":true,"set":"shop","what":["192.0.2.0/24"]}`: {func(h *Host) (any, error) {
			return h.RemoveFromSet(ctx, engine.SetEdit{Set: "shop", What: []addrset.Range{what}, Force: true})
		}, &engine.SetEdited{Generation: 3}},
		`verify - {"own":true}`: {func(h *Host) (any, error) { return h.Verify(ctx, nil, true) }, &engine.Verified{Verified: &apply.Verified{Boot: 3}}},
		`apply - {"building":{"hits":{"a":1},"no-expect":true,"order":"hits","without":["merge"]},"options":{"confirm":60,"cut":true},"policy":{"directory":"` + at + `","file":"p.yaml"}}`: {func(h *Host) (any, error) {
			return h.Apply(ctx, engine.Request{File: "p.yaml", Without: []string{"merge"}, Order: engine.ByHits, Hits: map[string]uint64{"a": 1}, NoExpect: true}, apply.Options{Confirm: time.Minute, Verify: true, Cut: true})
		}, &apply.Outcome{Generation: 3}},
		`plan - {"building":{"order":"written"},"policy":{"directory":"` + at + `","file":"p.yaml"}}`: {func(h *Host) (any, error) {
			return h.Plan(ctx, engine.Request{File: "p.yaml", Order: engine.AsWritten})
		}, &engine.Plan{Plan: &apply.Plan{From: 3}}},
		`explain - {"live":true,"port":"22","source":"192.0.2.7"}`: {func(h *Host) (any, error) {
			return h.Explain(ctx, engine.Explaining{Question: explain.Question{Source: "192.0.2.7", Port: "22"}, Live: true})
		}, &engine.Explained{}},
		`query - {"hook":"input","service":"ssh","states":["new"],"verdicts":["accept"]}`: {func(h *Host) (any, error) {
			return h.Query(ctx, engine.Querying{Words: query.Words{Service: "ssh", Hook: "input", States: []packet.State{packet.New}}, Verdicts: []program.Verdict{program.Accept}})
		}, &engine.Queried{Policy: "p"}},
		`entries - {"source":"192.0.2.7","by":["state"],"most":3}`: {func(h *Host) (any, error) {
			return h.Entries(ctx, engine.EntryQuestion{EntryChoice: engine.EntryChoice{Source: "192.0.2.7"}, By: []string{"state"}, Most: 3})
		}, &engine.EntryAnswer{Matched: 3}},
		`delete entries - {"port":22}`: {func(h *Host) (any, error) {
			return h.DeleteEntries(ctx, engine.EntryChoice{Port: 22})
		}, &engine.DeletedEntries{Deleted: 3}},
		`plan table - {"expect":20000,"max":7,"time-wait":30}`: {func(h *Host) (any, error) {
			return h.PlanTable(ctx, engine.TableWish{Expect: 20000, Max: 7, TimeWait: 30})
		}, &engine.TablePlan{Left: []string{"a"}}},
		`tune - {"for":"conntrack","settings":[{"name":"a","value":"1"}],"confirm-ns":1000000000,"persist":true,"force":true}`: {func(h *Host) (any, error) {
			return h.Tune(ctx, apply.Tuning{For: apply.TuneTable, Settings: []apply.Setting{{Name: "a", Value: "1"}}, Confirm: time.Second, Persist: true, Force: true})
		}, &apply.Tuned{Files: []string{"a"}}},
		`untune - {"for":"backlog","force":true}`: {func(h *Host) (any, error) { return h.Untune(ctx, apply.Untuning{For: "backlog", Force: true}) }, &apply.Tuned{Files: []string{"b"}}},
		`watch entries - {"port":22,"events":["new"],"most":7,"seconds":0.5}`: {func(h *Host) (any, error) {
			return h.WatchEntries(ctx, engine.EntryWatch{EntryChoice: engine.EntryChoice{Port: 22}, Events: []string{"new"}, Most: 7, Seconds: 0.5}, nil)
		}, &engine.WatchedEntries{Events: 7}},
		`drops - {"reason":"NO_SOCKET","source":"192.0.2.7"}`: {func(h *Host) (any, error) {
			return h.Drops(ctx, engine.DropChoice{Reason: "NO_SOCKET", Source: "192.0.2.7"}, nil, nil)
		}, &engine.DropCounts{Packets: 3}},
		"log - country=NO&follow=true&line=p.yaml%3A7&service=ssh&since=2026-11-28T14%3A00%3A00.5Z&source=192.0.2.7": {func(h *Host) (any, error) {
			return h.Log(ctx, engine.LogQuestion{LogChoice: engine.LogChoice{Source: "192.0.2.7", Service: "ssh", Country: "NO", Line: "p.yaml:7"}, Since: time.Date(2026, 11, 28, 14, 0, 0, 5e8, time.UTC), Follow: true}, nil)
		}, &engine.LogAnswer{Packets: 3}},
		`top - {"every-ns":2000000000,"once":true}`: {func(h *Host) (any, error) {
			return h.Top(ctx, engine.TopQuestion{Every: 2 * time.Second, Once: true}, nil)
		}, &engine.TopAnswer{Looks: 3}},
		"log - number=7": {func(h *Host) (any, error) { return h.Log(ctx, engine.LogQuestion{Number: 7}, nil) }, &engine.LogAnswer{}},
		"log -":          {func(h *Host) (any, error) { return h.Log(ctx, engine.LogQuestion{}, nil) }, &engine.LogAnswer{}},
		"remove -":       {func(h *Host) (any, error) { return h.Remove(ctx) }, &apply.Outcome{}},
		"restore -":      {func(h *Host) (any, error) { return h.Restore(ctx, apply.Restoring{}) }, &apply.Outcome{Generation: 3}},
		`refresh - {"dry-run":true,"sets":["a"]}`: {func(h *Host) (any, error) {
			return h.Refresh(ctx, engine.Refreshing{Sets: []string{"a"}, DryRun: true})
		}, &engine.Refreshed{Lists: []engine.RefreshedList{}, Refreshed: &apply.Refreshed{Generation: 3}}},
		`rollback - {"options":{"force":true,"keep":true,"no-verify":true}}`: {func(h *Host) (any, error) {
			return h.Rollback(ctx, apply.Before, apply.Options{Keep: true, Force: true})
		}, &apply.Outcome{Generation: 3}},
		`rollback - {"generation":7,"options":{}}`: {func(h *Host) (any, error) { return h.Rollback(ctx, 7, apply.Options{Verify: true}) }, &apply.Outcome{Generation: 3}},
		"sync -": {func(h *Host) (any, error) { return h.Sync(ctx) }, &apply.Synced{Generation: 3}},
		"confirm -": {func(h *Host) (any, error) {
			n, err := h.Confirm(ctx)
			return &apply.Outcome{Generation: n}, err
		}, &apply.Outcome{Generation: 3}},
	} {
		a := &agent{answer: func(to *api.Answer) { to.End(c.answer, nil) }}
		h, _ := listening(t, a)
		got, err := c.ask(h)
		if err != nil || !reflect.DeepEqual(got, c.answer) || !slices.Equal(a.asked, []string{want}) {
			t.Errorf("%s: asked %q, got %+v %v", want, a.asked, got, err)
		}
		if a.meant != h.Meant {
			t.Errorf("%s: meant %+v", want, a.meant)
		}
	}
	h, _ := listening(t, &agent{})
	if _, err := h.Verify(ctx, &engine.Subject{}, false); err == nil || err.Error() != "here" {
		t.Errorf("a file was proved elsewhere: %v", err)
	}
}

// A command does itself what no agent has begun, and nothing else.
func TestHere(t *testing.T) {
	ctx := context.Background()
	failing := func(f *api.Failure) func(*api.Answer) { return func(to *api.Answer) { to.End(nil, f) } }
	for name, c := range map[string]struct {
		agent *agent
		here  int
	}{
		"nobody":          {nil, 1},
		"not served":      {&agent{answer: failing(&api.Failure{Text: "x", Exit: 2, Kind: api.NotServed})}, 1},
		"other state":     {&agent{answer: failing(&api.Failure{Text: "x", Exit: 2, Kind: api.OtherState})}, 1},
		"other files":     {&agent{answer: failing(&api.Failure{Text: "x", Exit: 2, Kind: api.OtherFiles})}, 1},
		"other namespace": {&agent{answer: failing(&api.Failure{Text: "x", Exit: 2, Kind: api.OtherNamespace})}, 1},
		"not allowed":     {&agent{answer: failing(&api.Failure{Text: "x", Exit: 2, Kind: api.NotAllowed})}, 0},
		"found":           {&agent{answer: failing(&api.Failure{Text: "x", Exit: 1})}, 0},
		"ended":           {&agent{answer: func(*api.Answer) {}}, 0},
		"done":            {&agent{answer: func(to *api.Answer) { to.End(&apply.Banned{}, nil) }}, 0},
	} {
		h, here := listening(t, c.agent)
		out, err := h.Ban(ctx, apply.Banning{})
		if here.banned != c.here || (c.here == 1) != (err == nil && out.Banned == 7) {
			t.Errorf("%s: %d here, %+v %v", name, here.banned, out, err)
		}
		if f := (*api.Failure)(nil); name == "found" && !errors.As(err, &f) {
			t.Errorf("%s: the exit status is lost: %v", name, err)
		}
	}
}

// Who is neither root nor the caller is asked for nothing.
func TestImpostor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root alone can be another user")
	}
	h, here := listening(t, nil)
	l, err := net.Listen("unix", h.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := &agent{answer: func(to *api.Answer) { to.End(&apply.Banned{Banned: 1}, nil) }}
	s := &http.Server{Handler: api.Handler(a)} //nolint:gosec // it is closed soon
	raw, err := l.(*net.UnixListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = listenAs(4001, int(fd)) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	warned := ""
	h.Told.Warn = func(text string) { warned += text }
	if out, err := h.Ban(t.Context(), apply.Banning{}); err != nil || out.Banned != 7 || here.banned != 1 || len(a.asked) > 0 {
		t.Errorf("%+v %v, asked: %v", out, err, a.asked)
	}
	if want := h.Socket + " is served by user 4001, and not by root: it is not asked"; warned != want {
		t.Error(warned)
	}
}

// listenAs has another user listen.
func listenAs(user uintptr, fd int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become := func(user uintptr) error { // this thread alone
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), user, ^uintptr(0)); errno != 0 {
			return errno
		}
		return nil
	}
	if err := become(user); err != nil {
		return err
	}
	return errors.Join(unix.Listen(fd, 8), become(0))
}

// One connection does for what is asked one after the other, and another where the agent has
// closed it.
func TestKept(t *testing.T) {
	var made atomic.Int32
	var closing atomic.Bool
	h, here := listening(t, nil)
	l, err := net.Listen("unix", h.Socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if closing.Load() {
				w.Header().Set("Connection", "close")
			}
			answer := api.NewAnswer(w, r)
			answer.Note("a")
			answer.End(&apply.Banned{Banned: 1}, nil)
		}),
		ConnState: func(_ net.Conn, to http.ConnState) {
			if to == http.StateNew {
				made.Add(1)
			}
		},
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	ban := func(want int32) {
		t.Helper()
		if out, err := h.Ban(t.Context(), apply.Banning{}); err != nil || out.Banned != 1 || here.banned > 0 || made.Load() != want {
			t.Errorf("%+v %v, %d connections, want %d", out, err, made.Load(), want)
		}
	}
	ban(1)
	ban(1)
	closing.Store(true)
	ban(1)
	ban(2)
	closing.Store(false)
	ban(3)
	_ = h.kept.SetReadDeadline(time.Time{})
	s.SetKeepAlivesEnabled(false) // closes those that are idle
	for until := time.Now().Add(time.Minute); !over(h.kept) && time.Now().Before(until); time.Sleep(time.Millisecond) {
	}
	ban(4)
}

// What is told meanwhile comes before the result; with a failure comes what was done.
func TestTold(t *testing.T) {
	var told bytes.Buffer
	to := func(kind string) func(string) { return func(text string) { told.WriteString(kind + text + " ") } }
	h, _ := listening(t, &agent{answer: func(a *api.Answer) {
		a.Note("a")
		a.Warn("b")
		a.Shout("c")
		a.Progress(apply.Progress{Name: "d"})
		a.End(nil, &api.Failure{Text: "x", Exit: 2, Result: json.RawMessage(`{"generation":3,"moves":null}`)})
	}})
	h.Told = Told{Note: to("note "), Warn: to("warning "), Shout: to("shout "), Progress: func(p apply.Progress) { to("progress ")(p.Name) }}
	out, err := h.Sync(context.Background())
	if err == nil || err.Error() != "x" || out == nil || out.Generation != 3 || told.String() != "note a warning b shout c progress d " {
		t.Errorf("%+v %v, told %q", out, err, told.String())
	}
}

// Ctrl-C is told to the agent, which says what came of it; the next request is another's.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	a := &agent{}
	a.answer = func(to *api.Answer) {
		to.Note("begun")
		select {
		case <-a.request.Context().Done():
			to.End(nil, &api.Failure{Text: "undone", Exit: 2})
		case <-time.After(time.Minute):
		}
	}
	h, here := listening(t, a)
	h.Told.Note = func(string) { cancel() }
	if _, err := h.Ban(ctx, apply.Banning{}); err == nil || err.Error() != "undone" || here.banned > 0 {
		t.Errorf("%v, %d here", err, here.banned)
	}
	if _, err := h.Ban(ctx, apply.Banning{}); !errors.Is(err, context.Canceled) || here.banned > 0 {
		t.Errorf("%v, %d here", err, here.banned)
	}
	a.answer = func(to *api.Answer) { to.End(&apply.Banned{Banned: 1}, nil) }
	if out, err := h.Ban(context.Background(), apply.Banning{}); err != nil || out.Banned != 1 {
		t.Errorf("%+v %v", out, err)
	}
}

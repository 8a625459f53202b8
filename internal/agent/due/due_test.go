package due

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/work"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/engine/schedule"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/geo"
	"sluice/internal/system/kernel/netns"
)

// enough is for what comes at once on a machine that has the time.
const enough = 2 * time.Minute

// tested is a host in a namespace of its own, whose work is done by the test.
type tested struct {
	*Host
	t      *testing.T
	mutex  sync.Mutex
	noted  []string
	worked atomic.Int32
}

func newTested(t *testing.T) *tested {
	t.Helper()
	testnet.Require(t, testnet.Namespaces)
	h, err := engine.NewHost(t.TempDir(), "", "test")
	if err != nil {
		t.Fatal(err)
	}
	if h.Netns, err = netns.Open(testnet.New(t).Unnamed("host").Path()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Netns.Close() })
	h.Wait = enough // for the work that is done beside
	out := &tested{t: t}
	h.Note = func(text string) {
		out.mutex.Lock()
		defer out.mutex.Unlock()
		out.noted = append(out.noted, text)
	}
	out.Host = &Host{Host: h, look: 10 * time.Millisecond, spread: func(time.Duration) time.Duration { return 0 }}
	out.Alert = func(a apply.Alert) { h.Note("alert " + a.Event + " " + a.Set + ": " + a.Text) }
	out.Work = func(ctx context.Context, o work.Order, _ func(api.Line)) (json.RawMessage, error) {
		out.worked.Add(1)
		result, err := o.Do(ctx, h)
		if err != nil {
			return nil, err
		}
		return json.Marshal(result)
	}
	return out
}

func (h *tested) apply(text string) {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.Apply(h.t.Context(), engine.Request{File: file}, apply.Options{Keep: true, Verify: true}); err != nil {
		h.t.Fatal(err)
	}
}

// in lets part of the work of an agent go on until the test ends, or it is stopped.
func (h *tested) in(part func(context.Context)) (stop func()) {
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { part(ctx) })
	stop = func() { end(); running.Wait() }
	h.t.Cleanup(stop)
	return stop
}

// until waits for something.
func (h *tested) until(what string, is func() bool) {
	h.t.Helper()
	for end := time.Now().Add(enough); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.mutex.Lock()
			defer h.mutex.Unlock()
			h.t.Fatalf("not %s; noted %q; plan %+v", what, h.noted, schedule.Read(h.Dir))
		}
	}
}

func (h *tested) told(text string) bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return strings.Contains(strings.Join(h.noted, "\n"), text)
}

// running is the number of the generation that runs.
func (h *tested) running() int {
	h.t.Helper()
	n, _, err := h.RunningNow()
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

func (h *tested) due(of func(apply.Due) bool) apply.Due {
	h.t.Helper()
	s, err := h.Status(h.t.Context(), true)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, d := range s.Due {
		if of(d) {
			return d
		}
	}
	h.t.Fatalf("it is not among what is due: %+v", s)
	return apply.Due{}
}

// A list is asked for when it is due. While it cannot be had its old contents stay, and it
// is asked for again and again.
func TestLists(t *testing.T) {
	h := newTested(t)
	var list atomic.Value
	list.Store("192.0.2.7\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text, _ := list.Load().(string)
		if text == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, text)
	}))
	defer server.Close()
	policy := func(every string) string {
		return fmt.Sprintf("version: 1\nsets:\n  scanners: { url: %q, refresh: %s }\n  never: { url: %q }\ninput:\n  default: drop\n  rules:\n    - allow tcp/22 from [scanners, never]\n", server.URL+"/list.txt", every, server.URL+"/other.txt")
	}
	scanners := func(d apply.Due) bool { return d.List == "scanners" }
	h.apply(policy("1h"))
	if d := h.due(scanners); d.By != "" || d.At.Sub(d.Of) != time.Hour {
		t.Errorf("without an agent: %+v", d)
	}
	list.Store("192.0.2.7\n192.0.2.9\n")
	h.in(func(ctx context.Context) { h.Lists(ctx, true, false) })
	h.until("known to be due", func() bool { return h.due(scanners).By == apply.ByAgent })
	if d := h.due(func(d apply.Due) bool { return d.List == "never" }); !d.At.IsZero() {
		t.Errorf("it is asked for by itself: %+v", d)
	}
	if n := h.worked.Load(); n > 0 {
		t.Errorf("it was asked for %d times before it was due", n)
	}

	// Another policy, which wants it sooner.
	h.apply(policy("1s"))
	list.Store("192.0.2.7\n192.0.2.9\n192.0.2.11\n")
	h.until("refreshed", func() bool { return h.running() > 2 })

	had := h.running()
	list.Store("")
	h.until("told", func() bool { return h.told("alert not-renewed scanners: the list of set scanners: ") && h.told("503") })
	h.until("in the status", func() bool { return strings.Contains(h.due(scanners).Failed, "503") })
	if now := h.running(); now != had {
		t.Errorf("generation %d runs, and not %d", now, had)
	}
	list.Store("192.0.2.7\n192.0.2.9\n192.0.2.11\n192.0.2.13\n")
	h.until("told of", func() bool { return h.told("alert renewed scanners: the list of set scanners could be had again") })
	h.until("refreshed", func() bool { return h.running() > had })
	h.until("fine", func() bool { return h.due(scanners).Failed == "" })
}

// On trial nothing is asked for.
func TestTrial(t *testing.T) {
	h := newTested(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "192.0.2.7\n") }))
	defer server.Close()
	of := outside{Host: h.Host, lists: true}
	text := fmt.Sprintf("version: 1\nsets:\n  scanners: { url: %q, refresh: 1s }\ninput:\n  default: drop\n  rules:\n    - allow tcp/22 from scanners\n", server.URL)
	if tasks, now, err := of.tasks(); len(tasks) > 0 || !now || err != nil {
		t.Errorf("without a policy: %v, %v, %v", tasks, now, err)
	}
	h.apply(text)
	if tasks, now, err := of.tasks(); len(tasks) != 1 || !now || err != nil {
		t.Errorf("%v, %v, %v", tasks, now, err)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(text+"    - allow http\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Watcher = []string{"/bin/sh", "-c", "echo armed >&3"}
	if _, err := h.Apply(t.Context(), engine.Request{File: file}, apply.Options{Confirm: time.Hour, Verify: true}); err != nil {
		t.Fatal(err)
	}
	if tasks, now, err := of.tasks(); now || err != nil {
		t.Errorf("on trial: %v, %v", tasks, err)
	}
	if _, err := h.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if tasks, now, err := of.tasks(); len(tasks) != 1 || !now || err != nil {
		t.Errorf("confirmed: %v, %v, %v", tasks, now, err)
	}
}

// Country data are asked for when they are due, and what they change is taken into the
// rules. What cannot be had, or is far smaller, leaves all as it is.
func TestCountries(t *testing.T) {
	h := newTested(t)
	var data atomic.Value
	data.Store("192.0.2.0,192.0.2.9,NO\n2001:db8::,2001:db8::9,SE\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text, _ := data.Load().(string)
		if text == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, text)
	}))
	defer server.Close()
	from := []string{server.URL + "/countries.csv"}
	if _, err := h.UpdateCountries(t.Context(), engine.UpdatingCountries{From: from}); err == nil {
		t.Error("the built-in data are replaced by those of two networks")
	}
	if _, err := geo.Update(t.Context(), geo.UpdateOptions{StateDir: h.State, From: from, Force: true}); err != nil {
		t.Fatal(err)
	}
	h.apply("version: 1\nsets: { norway: { countries: [NO] } }\ninput:\n  default: drop\n  rules:\n    - allow http from norway\n")
	countries := func(d apply.Due) bool { return d.List == "" }
	if d := h.due(countries); d.By != "" || !d.At.IsZero() {
		t.Errorf("without an agent: %+v", d)
	}

	stop := h.in(func(ctx context.Context) { h.Lists(ctx, true, true) })
	update := h.in(func(ctx context.Context) { h.Countries(ctx, from, time.Second) })
	data.Store("192.0.2.0,192.0.2.11,NO\n2001:db8::,2001:db8::9,SE\n")
	h.until("in the rules", func() bool { return h.running() == 2 })
	if d := h.due(countries); d.By != apply.ByAgent || d.At.IsZero() {
		t.Errorf("with an agent: %+v", d)
	}
	data.Store("192.0.2.0,192.0.2.1,NO\n2001:db8::,2001:db8::9,SE\n")
	h.until("refused", func() bool {
		return h.told("alert not-renewed : newer country data: ") && h.told("keeping the old data")
	})
	h.until("refused in the status", func() bool { return strings.Contains(h.due(countries).Failed, "keeping the old data") })
	data.Store("")
	h.until("told of", func() bool { return h.told("503") })
	if n := h.running(); n != 2 {
		t.Errorf("generation %d runs", n)
	}
	data.Store("192.0.2.0,192.0.2.12,NO\n2001:db8::,2001:db8::9,SE\n")
	h.until("in the rules", func() bool { return h.running() == 3 })
	if !h.told("alert renewed : newer country data could be had again") {
		t.Error("that it goes on is not told")
	}
	update()
	stop()
	if d := h.due(countries); d.By != "" {
		t.Errorf("the agent has ended: %+v", d)
	}
}

// The data that npm has, served over TLS as by two publishers that differ, to a host that
// was offline until now.
func TestRealCountries(t *testing.T) {
	h := newTested(t)
	var offline atomic.Bool
	offline.Store(true)
	var from []string
	for _, p := range []struct{ name, dataset string }{{"whois", "geo-whois-asn-country"}, {"dbip", "dbip-country"}} {
		dir := filepath.Join("..", "..", "..", ".cache", "geo", p.dataset)
		if _, err := os.Stat(filepath.Join(dir, "VERSION")); err != nil {
			testnet.Lacks(t, "the data "+p.dataset, fmt.Errorf("%w\nhint: run scripts/fetch-geo-data", err))
		}
		files := http.FileServer(http.Dir(dir))
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if offline.Load() {
				panic(http.ErrAbortHandler)
			}
			files.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		for _, family := range []string{"4", "6"} {
			from = append(from, p.name+"s="+server.URL+"/"+p.dataset+"-ipv"+family+".csv")
		}
	}
	h.apply("version: 1\nsets: { north: { countries: [NO, SE] } }\nban: [north]\ninput:\n  default: drop\n  rules:\n    - allow http\n")
	h.in(func(ctx context.Context) { h.Lists(ctx, true, true) })
	h.in(func(ctx context.Context) { h.Countries(ctx, from, 2*time.Second) })
	countries := func(d apply.Due) bool { return d.List == "" }
	h.until("told of", func() bool { return h.told("newer country data: ") })
	if d := h.due(countries); d.Failed == "" || d.By != apply.ByAgent {
		t.Errorf("offline: %+v", d)
	}
	if n := h.running(); n != 1 {
		t.Errorf("offline, generation %d runs", n)
	}
	offline.Store(false)
	h.until("in the rules", func() bool { return h.running() > 1 })
	in, err := h.CountriesInUse()
	if err != nil {
		t.Fatal(err)
	}
	if what, err := h.Outside(); err != nil || what.Countries != in {
		t.Errorf("the rules are of other data than those in use: %+v, %v", what, err)
	}
	d, err := geo.Open(h.State)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Info().From; len(got) != 4 || !strings.HasPrefix(got[0], "whoiss=https://") {
		t.Errorf("they are of %q", got)
	}
	if s, err := h.Status(t.Context(), true); err != nil || !s.Fine() {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestMain has the servers of tests trusted.
func TestMain(m *testing.M) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	dir, err := os.MkdirTemp("", "due")
	if err != nil {
		panic(err)
	}
	file := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		panic(err)
	}
	server.Close()
	os.Setenv("SSL_CERT_FILE", file)
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

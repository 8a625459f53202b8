package controller

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// listening is a host that notes the lists that it receives, and reports each as in force.
type listening struct {
	*agent
	mutex sync.Mutex
	told  []*wire.Desired
	plan  func(list, text string) wire.Piece // what a list would do
}

// planned answers a question what a list would do.
func (l *listening) planned(q *wire.Question) *wire.Piece {
	var asks struct {
		List string
		Gzip []byte
	}
	ok(l, json.Unmarshal(q.Body, &asks))
	unpacked, err := gzip.NewReader(bytes.NewReader(asks.Gzip))
	ok(l, err)
	text, err := io.ReadAll(unpacked)
	ok(l, err)
	p := l.plan(asks.List, string(text))
	p.Id, p.Last = q.Id, true
	return &p
}

func (l *listening) hear(conn *wire.Conn) {
	for {
		m, err := conn.Receive(context.Background())
		if err != nil {
			return
		}
		if m.Trust != nil {
			if err := l.trust.Update(trust.Metadata{Roots: m.Trust.Roots, Timestamp: m.Trust.Timestamp, Snapshot: m.Trust.Snapshot, Targets: m.Trust.Targets}, time.Now()); err != nil {
				l.Log(err)
			}
		}
		if m.Question != nil && conn.Send(context.Background(), &wire.Message{Answer: l.planned(m.Question)}) != nil {
			return
		}
		if m.Desired == nil {
			continue
		}
		l.mutex.Lock()
		l.told = append(l.told, m.Desired)
		l.mutex.Unlock()
		if err := l.trust.Accept(m.Desired.Order.Incarnation, m.Desired.Order.Revision); err != nil {
			l.Log(err)
		}
		report := wire.Report{Order: m.Desired.Order, Rollout: m.Desired.Rollout, Bundle: m.Desired.Bundle, Running: m.Desired.Bundle, State: wire.StateConfirmed, Proved: time.Now()}
		for _, doc := range m.Desired.Lists {
			payload, _, err := l.trust.Live(trust.ListKind(doc.Name), doc.Envelope)
			is, wrong := trust.ReadList(doc.Name, payload)
			if err == nil && wrong == nil {
				report.Lists = append(report.Lists, wire.ListReport{Name: doc.Name, Sha256: is.SHA256, Proved: time.Now()})
			}
		}
		if conn.Send(context.Background(), &wire.Message{Report: &report}) != nil {
			return
		}
	}
}

func (l *listening) last() (n int, d *wire.Desired) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if n = len(l.told); n > 0 {
		d = l.told[n-1]
	}
	return n, d
}

// numbered is a list of addresses from a number on.
func numbered(from, to int) string {
	var out strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&out, "198.51.%d.%d\n", i/100, i%100*2)
	}
	return out.String()
}

// TestLiveLists: the controller asks for a live list once, however many hosts there are and
// controllers, and tells those whose policy has it, and no others.
func TestLiveLists(t *testing.T) {
	t.Parallel()
	var served atomic.Value
	var asked, unchanged atomic.Int64
	served.Store(numbered(0, 2000))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		text, _ := served.Load().(string)
		tag := `"` + trust.HashOf([]byte(text)) + `"`
		if r.Header.Get("If-None-Match") == tag {
			unchanged.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", tag)
		_, _ = w.Write([]byte(text))
	}))
	defer server.Close()
	url := server.URL + "/list.txt"
	name := policy.SignedList("scanners", url)
	f := newFleet(t, "example.net")
	f.text += "roll-out: {stages: [100%], settle: none}\n"
	hosts := map[string]*listening{}
	for _, role := range []string{"web", "db"} {
		a, err := f.join(role+"-1", f.token(map[string]string{"role": role}, 1))
		ok(t, err)
		hosts[role] = &listening{agent: a}
		go hosts[role].hear(a.stream(nil))
	}
	signed, err := f.repository.Sign(trust.Signing{Level: 1, File: f.file("fleet.yaml", "", f.text), Parts: []trust.File{
		f.file("parts/10-base.yaml", "", "version: 1\n"),
		f.file("parts/50-db.yaml", "role=db", "version: 1\nhosts: role=db\nsets: {scanners: {url: \""+url+"\", live: true}}\ninput: {default: drop, rules: [drop from scanners]}\n"),
	}, Lists: []trust.File{f.file(trust.URLLists+"/"+name, "role=db", numbered(0, 1990))}}, time.Now(), f.policy)
	ok(t, err)
	_, err = f.give(signed.Bundle.Number)
	ok(t, err)
	list := func() api.LiveListState {
		t.Helper()
		all, err := f.client.Lists(t.Context())
		ok(t, err)
		if len(all.Lists) != 1 {
			t.Fatalf("%+v", all)
		}
		return all.Lists[0]
	}
	holds := func(text string) {
		t.Helper()
		f.until("proved", func() bool { l := list(); return l.Sha256 == trust.HashOf([]byte(text)) && l.Proved == 1 })
		_, d := hosts["db"].last()
		db := hosts["db"].agent
		payload, _, err := db.trust.Live(trust.ListKind(name), d.Lists[0].Envelope)
		ok(t, err)
		is, err := trust.ReadList(name, payload)
		ok(t, err)
		if is.SHA256 != trust.HashOf([]byte(text)) || is.Size != int64(len(text)) {
			t.Errorf("the host received %+v", is)
		}
	}
	holds(numbered(0, 2000))
	if l := list(); l.Set != "scanners" || l.Hosts != 1 || l.Prefixes != 2000 || l.Url != url || l.Failure != "" || l.Checked.IsZero() {
		t.Errorf("%+v", l)
	}
	// Of what changed a host gets the difference, and a host that has no such list nothing.
	told, _ := hosts["web"].last()
	served.Store(numbered(10, 2020))
	_, err = f.client.RefreshList(t.Context(), "scanners", api.ListRefresh{})
	ok(t, err)
	holds(numbered(10, 2020))
	path := wire.PathBlobs + trust.HashOf([]byte(numbered(10, 2020))) + "?from=" + trust.HashOf([]byte(numbered(0, 2000)))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, hosts["db"].client.Base+path, nil)
	ok(t, err)
	r.Header.Set("Accept", wire.ListPatchType)
	answer, err := hosts["db"].client.HTTP.Do(r)
	ok(t, err)
	answer.Body.Close()
	if answer.Header.Get("Content-Type") != wire.ListPatchType || answer.ContentLength > 200 {
		t.Errorf("%d bytes of %s", answer.ContentLength, answer.Header.Get("Content-Type"))
	}
	if _, err := hosts["web"].client.Blob(t.Context(), trust.HashOf([]byte(numbered(10, 2020))), 1<<20, nil); kind(err) != wire.KindNotFound {
		t.Errorf("a list of others: %v", err)
	}
	if now, _ := hosts["web"].last(); now != told {
		t.Errorf("a host without the list was told %d times", now-told)
	}

	// What nobody can mean, and what bans the fleet itself, stays away from hosts.
	db := f.controller.view.Load().hosts["db-1"]
	ok(t, f.controller.Store.SetAddresses(t.Context(), "test", db.ID, []netip.Addr{netip.MustParseAddr("203.0.113.9")}))
	ok(t, f.controller.refresh(t.Context()))
	facts := `{"gateways":["203.0.113.1"],"resolvers":["2001:db8::53"]}`
	_, err = f.controller.Store.PutFacts(t.Context(), db.ID, []byte(facts))
	ok(t, err)
	ok(t, f.controller.refresh(t.Context()))
	hosts["db"].plan = func(list, text string) wire.Piece {
		said := `{"lists":[{}],"sets":[{"name":"scanners"},{"name":"^made","internal":true}]}`
		switch {
		case list != name || !strings.Contains(text, "198.51.0.20\n"):
			t.Errorf("the host is asked about %s: %.40q", list, text)
		case strings.Contains(text, "203.0.113"):
			said = `{"lists":[{}],"sets":[{"name":"scanners"}],"locked-out":"192.0.2.9","flows":[{"protocol":"tcp","from":"203.0.113.7:999","to":"198.51.100.1:22","cut":true},{"protocol":"tcp","from":"203.0.113.8:999","to":"198.51.100.1:22","cut":false,"by":"drop"}]}`
		}
		return wire.Piece{Status: http.StatusOK, Type: "application/json", Body: []byte(said)}
	}
	before := list()
	for _, would := range []struct{ text, is string }{
		{numbered(10, 2020), "10 before, 10 after, +0 -0 unchanged, 0 of 1 answered"},
		{numbered(10, 500), "+0 -1520 refused, 1 of 1 answered, scanners on 1"},
		{numbered(10, 2020) + "203.0.113.0/28\n127.0.0.1\n", "+2 -0 bans 3, 1 of 1 answered, scanners on 1, db-1 ends 1 refuses 1 and locks 192.0.2.9 out"},
	} {
		served.Store(would.text)
		p, err := f.client.PlanList(t.Context(), "scanners")
		ok(t, err)
		is := fmt.Sprintf("+%d -%d", p.Come, p.Go)
		if p.Unchanged {
			is = fmt.Sprintf("%d before, %d after, %s unchanged", p.Before-2000, p.After-2000, is)
		}
		if p.Refused != "" {
			is += " refused"
		}
		if len(p.Bans) > 0 {
			is += fmt.Sprintf(" bans %d", len(p.Bans))
		}
		is += fmt.Sprintf(", %d of %d answered", p.Answered, p.Hosts)
		for _, s := range p.Sets {
			is += fmt.Sprintf(", %s on %d", s.Name, s.Hosts)
		}
		for _, h := range p.Planned {
			is += fmt.Sprintf(", %s ends %d refuses %d and locks %s out", h.Host, h.Ends, h.Refused, h.LockedOut)
		}
		if is != would.is {
			t.Errorf("%s, want %s", is, would.is)
		}
	}
	hosts["db"].plan = func(string, string) wire.Piece {
		return wire.Piece{Status: http.StatusForbidden, Type: "application/json", Body: []byte(`{"error":"this host does not tell"}`)}
	}
	if p, err := f.client.PlanList(t.Context(), "scanners"); err != nil || p.Answered != 0 || len(p.Planned) != 1 || p.Planned[0].Error != "this host does not tell" {
		t.Errorf("%+v %v", p, err)
	}
	if is := list(); is.Sha256 != before.Sha256 || is.Failure != before.Failure || !is.Checked.Equal(before.Checked) {
		t.Errorf("a plan has made %+v of %+v", is, before)
	}
	for _, bad := range []struct {
		text, why string
		how       api.ListRefresh
	}{
		{numbered(10, 500), "it may be truncated", api.ListRefresh{AllowCut: true}},
		{"<html>\n", "list.txt", api.ListRefresh{Force: true}},
		{numbered(10, 2020) + "203.0.113.0/28\n127.0.0.1\n2001:db8::/64\n", "it would cut a controller (127.0.0.1), a name server of db-1 (2001:db8::53), a router of db-1 (203.0.113.1) and host db-1 (203.0.113.9)", api.ListRefresh{Force: true}},
	} {
		served.Store(bad.text)
		if _, err := f.client.RefreshList(t.Context(), "scanners", bad.how); err == nil || !strings.Contains(err.Error(), bad.why) {
			t.Errorf("%v, want %s", err, bad.why)
		}
		if l := list(); l.Failure == "" || l.Failing.IsZero() || l.Sha256 != trust.HashOf([]byte(numbered(10, 2020))) {
			t.Errorf("%+v", l)
		}
	}
	served.Store(numbered(10, 500))
	_, err = f.client.RefreshList(t.Context(), "scanners", api.ListRefresh{Force: true})
	ok(t, err)
	holds(numbered(10, 500))
	_, err = f.client.UndoList(t.Context(), "scanners")
	ok(t, err)
	holds(numbered(10, 2020))
	if l := list(); !l.Undone || !l.Next.IsZero() || l.Failure != "" {
		t.Errorf("%+v", l)
	}
	if _, err := f.client.UndoList(t.Context(), "tor"); kind(err) != wire.KindNotFound {
		t.Errorf("%v", err)
	}

	// The next controller asks for none that is not due, and tells what there was.
	asks := asked.Load()
	ok(t, f.stop())
	f.run()
	f.until("the list", func() bool { return list().Sha256 == trust.HashOf([]byte(numbered(10, 2020))) })
	if asked.Load() != asks {
		t.Errorf("asked %d times more", asked.Load()-asks)
	}
	// Several that read a bundle at once read all of it, each.
	var readers sync.WaitGroup
	for range 50 {
		f.controller.contents.drop([]int64{signed.Bundle.Number})
		for range 8 {
			readers.Go(func() {
				if lists, err := f.controller.listsOf(t.Context(), signed.Bundle.Number); err != nil || len(lists) != 1 {
					t.Errorf("%v %v", lists, err)
				}
			})
		}
		readers.Wait()
	}
	// Of two that come at once one asks.
	ok(t, f.controller.readLists(t.Context()))
	row := f.controller.lists.row(name)
	row.Undone, row.Next = false, time.Time{}
	ok(t, f.controller.Store.PutList(t.Context(), "test", row))
	var claims atomic.Int64
	var both sync.WaitGroup
	for range 8 {
		both.Go(func() {
			if mine, err := f.controller.Store.ClaimList(t.Context(), name, time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			} else if mine {
				claims.Add(1)
			}
		})
	}
	both.Wait()
	if claims.Load() != 1 {
		t.Errorf("%d of 8 ask", claims.Load())
	}
	served.Store(numbered(10, 2020))
	_, err = f.client.RefreshList(t.Context(), "scanners", api.ListRefresh{})
	ok(t, err)
	_, err = f.client.RefreshList(t.Context(), "scanners", api.ListRefresh{})
	ok(t, err)
	if unchanged.Load() == 0 {
		t.Error("the server is never asked whether anything has changed")
	}
	if f.audited("list.change") < 4 {
		t.Error("the audit has no change of a list")
	}
}

// TestLiveListUsers: who uses a list of fleet.yaml is who has a part that names it, or a set
// that is made of it.
func TestLiveListUsers(t *testing.T) {
	t.Parallel()
	texts := map[string][]byte{
		"fleet.yaml": []byte("version: 1\nfleet: example.net\nparts: [a.yaml, b.yaml, c.yaml]\nsets:\n  scan: {url: \"https://lists.example.net/a.txt\", live: true}\n  more: {url: \"https://lists.example.net/b.txt\", live: true, refresh: 10m}\n  all: {union: [scan]}\n"),
		"a.yaml":     []byte("version: 1\nhosts: role=web\ninput: {rules: [drop from all]}\n"),
		"b.yaml":     []byte("version: 1\nhosts: role=db\ninput: {rules: [drop from more]}\n"),
		"c.yaml":     []byte("version: 1\nhosts: role=lb\nsets: {scan-more: [192.0.2.1]}\ninput: {rules: [drop from scan-more]}\n"),
	}
	p, err := policy.Reading{Texts: texts}.ReadFleet("fleet.yaml")
	ok(t, err)
	all, err := liveListsOf(p, &trust.Manifest{})
	ok(t, err)
	var got []string
	for _, l := range all {
		for _, role := range []string{"web", "db", "lb"} {
			if l.used(map[string]string{"role": role}) {
				got = append(got, fmt.Sprint(l.set, " ", l.refresh, " ", role))
			}
		}
	}
	slices.Sort(got)
	if want := []string{"more 10m0s db", "scan 1h0m0s web"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/agent/alert"
	"sluice/internal/engine"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/netns"
)

// published is an address on which an agent answers, and a client in its namespace.
func published(t *testing.T) (*Agent, *http.Client, func() net.Conn, string) {
	t.Helper()
	ns := testnet.New(t).Unnamed("own")
	h := &testHost{t: t, state: t.TempDir()}
	a := &Agent{Site: h.site(""), Metrics: netip.MustParseAddrPort("127.0.0.1:9469")}
	a.Alerts = alert.New(nil, "")
	var here *netns.Namespace
	if err := ns.Do(func() (err error) { here, err = netns.Here(); return err }); err != nil {
		t.Fatal(err)
	}
	s := newSpace(t.Context(), a.Site, here)
	s.meter.Gauges = func(context.Context) (*engine.Gauged, error) { return s.meter.Host.Gauges() }
	a.spaces.open = map[string]*space{own: s}
	a.scraper = &scraper{spaces: &a.spaces, note: func(err error) { t.Error(err) }}
	ctx, stop := context.WithCancel(t.Context())
	var publishing sync.WaitGroup
	publishing.Go(func() { a.publish(ctx, here) })
	t.Cleanup(func() { stop(); publishing.Wait(); _ = here.Close() })
	dial := func() (c net.Conn, err error) {
		err = here.Do(func() (err error) { c, err = net.Dial("tcp", a.Metrics.String()); return err })
		return c, err
	}
	await(t, "the address", func() bool {
		c, err := dial()
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	must := func() net.Conn {
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	client := &http.Client{Timeout: enough, Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return dial() }}}
	return a, client, must, "http://" + a.Metrics.String()
}

// TestPublish asks for metrics, and for what nobody may by an address.
func TestPublish(t *testing.T) {
	_, client, _, at := published(t)
	for asked, want := range map[string]int{
		"GET /metrics": 200, "HEAD /metrics": 200, "POST /metrics": 405, "GET /": 404, "GET /v1": 404, "GET /v1/namespaces/-/status": 404,
		"POST /v1/namespaces/-/sync": 404, "GET /metrics/": 404, "GET /debug/pprof/": 404,
	} {
		method, path, _ := strings.Cut(asked, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, at+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != want || (asked == "GET /metrics") != strings.Contains(string(text), "\nsluice_generation 0\n") {
			t.Errorf("%s: %s\n%s", asked, answer.Status, text)
		}
	}
}

// TestPublishToMany has more connections than are taken at a time say nothing, or half a
// request, and one that reads nothing. Who asks behind them is answered.
func TestPublishToMany(t *testing.T) {
	_, client, dial, at := published(t)
	for i := range 2 * mostScrapers {
		c := dial()
		switch i % 3 {
		case 1:
			_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")
		case 2:
			_, _ = fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 64<<10))
		}
	}
	answer, err := client.Get(at + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(text), "\nsluice_up 1\n") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestScrapeOnce: who asks within a second of another gets the same.
func TestScrapeOnce(t *testing.T) {
	a, _, _, _ := published(t)
	one := a.scraper.scrape()
	a.scraper.read = time.Now().Add(time.Hour) // no moment has gone by since
	if two := a.scraper.scrape(); &one[0] != &two[0] {
		t.Error("it was read twice")
	}
	a.scraper.read = time.Now().Add(-scrapeStands)
	if three := a.scraper.scrape(); &one[0] == &three[0] {
		t.Error("it was not read again")
	}
}

// TestMetricsPrepared: where an address answers, what a generation is read for is read when it
// comes, and not when somebody asks.
func TestMetricsPrepared(t *testing.T) {
	orders := filepath.Join(t.TempDir(), "orders")
	h := newHost(t, func(s *Site) {
		s.Published, s.Command = true, []string{"/bin/sh", "-c", `order=$(cat); echo "$order" >>"$0"; case $order in *'"gauges"'*) echo '{"result":{"runs":{"of":"x"}}}';; *) exit 1;; esac`, orders}
	})
	name := h.make("prepared")
	h.load(name)
	await(t, "what is read ahead", func() bool {
		text, _ := os.ReadFile(orders)
		return strings.Contains(string(text), `"gauges"`)
	})
}

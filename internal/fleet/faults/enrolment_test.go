package faults

import (
	"crypto/tls"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/trust/operator"
	"sluice/internal/fleet/wire"
	"sluice/internal/lab/testnet"
)

// middle is a man in the middle: the router sends to him what hosts say to the controller.
type middle struct {
	mutex sync.Mutex
	asked []string
	roots *wire.Roots // those that he shows; nil: the fleet's
}

// intercept has somebody with a fleet of the same name and keys of its own are in between.
func (f *real) intercept() *middle {
	own := memory(f.T)
	check(os.Chmod(own, 0o700))
	made := must(operator.Init(operator.Options{
		Fleet: fleetName, Repository: own + "/repository", Keys: own + "/keys", Controller: own + "/controller", RootKeys: 1, RootThreshold: 1,
	}, time.Now()))
	online := must(trust.OpenOnline(made.Controller))
	to := must(url.Parse("https://" + controllerAddress))
	passes := httputil.NewSingleHostReverseProxy(to)
	passes.Transport = &http.Transport{DialContext: f.router.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // he does not care
	m := &middle{}
	listener := must(f.router.Listen("0.0.0.0:7443"))
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mutex.Lock()
		m.asked = append(m.asked, r.Method+" "+r.URL.Path)
		roots := m.roots
		m.mutex.Unlock()
		if roots != nil && r.URL.Path == wire.PathRoot {
			wire.Answer(w, http.StatusOK, roots)
			return
		}
		passes.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(tls.NewListener(listener, online.ServerTLS(nil, time.Now))) }()
	f.Cleanup(func() { _ = server.Close() })
	f.router.Nft(fmt.Sprintf("table ip middle { chain to { type nat hook prerouting priority dstnat; ip daddr %s tcp dport 7443 redirect; }; }", controllerHost))
	m.roots = &wire.Roots{Roots: online.Metadata().Roots}
	return m
}

// TestManInTheMiddle has the enrolment of a host go through somebody who can read and answer
// all that passes: nothing but the question for root.json does.
func TestManInTheMiddle(t *testing.T) {
	t.Parallel()
	f := newReal(t, "")
	h, token := f.machines[0], f.token(1)
	m := f.intercept()
	for what, roots := range map[string]*wire.Roots{"not the one that the token names": m.roots, "certificate": nil} {
		m.mutex.Lock()
		m.asked, m.roots = nil, roots
		m.mutex.Unlock()
		err := h.enrol(token, 1)
		m.mutex.Lock()
		asked := strings.Join(m.asked, ", ")
		m.mutex.Unlock()
		if err == nil || !strings.Contains(err.Error(), what) || asked != "GET "+wire.PathRoot {
			t.Errorf("%v; he was asked %s", err, asked)
		}
		if _, err := os.Stat(h.path("host.json")); !os.IsNotExist(err) {
			t.Errorf("it is of the fleet: %v", err)
		}
	}
	f.router.MustRun("nft", "delete", "table", "ip", "middle")
	if err := h.enrol(token, 1); err != nil {
		t.Error(err)
	}
	f.judge()
}

// TestTokenTwiceAtOnce has two hosts enrol by one token at the same time.
func TestTokenTwiceAtOnce(t *testing.T) {
	t.Parallel()
	f := newReal(t, "")
	f.twice()
	f.judge()
}

// twice enrols one of two hosts, and returns the other one.
func (f *real) twice() (refused *machine) {
	f.Helper()
	token := f.token(1)
	errs := make([]error, len(f.machines))
	var both sync.WaitGroup
	for i, h := range f.machines {
		both.Go(func() { errs[i] = h.enrol(token, 1) })
	}
	both.Wait()
	lost := 0
	if errs[0] == nil {
		lost = 1
	}
	if errs[1-lost] != nil || errs[lost] == nil || !strings.Contains(errs[lost].Error(), "used once already") {
		f.Fatal(errs)
	}
	s := must(store.OpenExisting(f.Context(), f.database))
	if hosts := must(s.Hosts(f.Context())); len(hosts) != 1 || hosts[0].ID != f.machines[1-lost].id {
		f.Errorf("the controller has %v", hosts)
	}
	check(s.Close())
	return f.machines[lost]
}

// TestOnPostgres has a controller live on PostgreSQL: two hosts enrol, one of them by a token
// that another had used, bundles are proved, controller and database die and come back.
func TestOnPostgres(t *testing.T) {
	t.Parallel()
	if err := testnet.PostgresHere(); err != nil {
		testnet.Lacks(t, "PostgreSQL", err)
	}
	var server testnet.Postgres
	t.Cleanup(server.Stop)
	check(server.Start())
	f := newReal(t, server.Address("postgres"))
	second := f.twice()
	if err := second.enrol(f.token(1), 1); err != nil {
		t.Fatal(err)
	}
	for _, h := range f.machines {
		h.start()
	}
	f.watch()
	f.release()
	f.all(f.newest)
	f.release()
	f.kill()
	f.run()
	f.all(f.newest)
	check(server.Halt())
	f.sign()
	if err := f.publish(); err == nil {
		t.Error("without a database a bundle is published")
	}
	check(server.Run())
	f.until("it is published", func() string { return why(f.publish()) })
	if out := f.must("audit", "verify"); !strings.Contains(out, "the audit is intact") {
		t.Error(out)
	}
	// In the middle of a roll-out it moves to SQLite, and in that of the next one back.
	f.all(f.newest)
	db := must(sql.Open("pgx", server.Address("postgres")))
	must(db.ExecContext(f.Context(), "create schema again"))
	check(db.Close())
	for _, to := range []string{"sqlite:" + filepath.Join(f.dir, "fleet.db"), server.Address("postgres") + "&search_path=again"} {
		f.release()
		f.must("migrate", "--from", f.database, "--to", to)
		<-f.controller.Done()
		f.database = to
		f.run()
		f.all(f.newest)
	}
	f.end()
}

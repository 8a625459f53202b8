package controller

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// bound is how long a test waits for what has to come.
const bound = time.Minute

// TestStrangersHoldNothing: who has no certificate gets an answer and the end of his
// connection, also where the rest of his request never comes.
func TestStrangersHoldNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	requests := map[string]string{
		"root":   "GET " + wire.PathRoot + " HTTP/1.1\r\nHost: c\r\n\r\n",
		"enrol":  "POST " + wire.PathEnrol + " HTTP/1.1\r\nHost: c\r\nContent-Length: 2\r\n\r\n{}",
		"stream": "GET " + wire.PathAgent + " HTTP/1.1\r\nHost: c\r\nConnection: keep-alive\r\n\r\n",
		"none":   "GET / HTTP/1.1\r\nHost: c\r\n\r\n",
	}
	if !testing.Short() { // as long as a body may take
		requests["no body"] = "POST " + wire.PathEnrol + " HTTP/1.1\r\nHost: c\r\nContent-Length: 1000\r\n\r\n"
		requests["no body for nobody"] = "POST / HTTP/1.1\r\nHost: c\r\nContent-Length: 1000\r\n\r\n"
	}
	for name, text := range requests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := tls.Dial("tcp", f.address, trust.RootTLS())
			ok(t, err)
			defer conn.Close()
			ok(t, conn.SetDeadline(time.Now().Add(bound)))
			_, err = io.WriteString(conn, text)
			ok(t, err)
			in := bufio.NewReader(conn)
			answer, err := http.ReadResponse(in, nil)
			ok(t, err)
			defer answer.Body.Close()
			if _, err := io.Copy(io.Discard, answer.Body); err != nil {
				t.Error(err)
			}
			if _, err := in.ReadByte(); err == nil || strings.Contains(err.Error(), "timeout") {
				t.Errorf("the connection goes on: %v", err)
			}
		})
	}
}

// TestIssuedSeldom: a host that asks for certificates all the time fills neither the store
// nor the audit.
func TestIssuedSeldom(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token := f.token(nil, 1)
	a, err := f.join("web-1", token)
	ok(t, err)
	for range 3 * mostIssued {
		if _, err = a.client.Renew(t.Context(), &wire.Renew{Request: a.request()}); err != nil {
			break
		}
	}
	if kind(err) != wire.KindBusy || !strings.Contains(err.Error(), "web-1 has had 5 certificates") {
		t.Errorf("renew: %v", err)
	}
	again := &wire.Enrol{Secret: token.Secret, Host: "web-1", Request: a.request()}
	if _, err := a.client.Enrol(t.Context(), again); kind(err) != wire.KindBusy {
		t.Errorf("enrol: %v", err)
	}
	if _, err := f.join("web-2", f.token(nil, 1)); err != nil {
		t.Errorf("another host: %v", err)
	}
	if n := f.audited("certificate.issue"); n != mostIssued+1 {
		t.Errorf("%d certificates", n)
	}
}

// audited is how many entries of the audit tell of a thing.
func (f *fleet) audited(what string) (n int) {
	f.Helper()
	ok(f, f.controller.Store.EachEntry(f.Context(), 0, func(e store.Entry) error {
		if e.What == what {
			n++
		}
		return nil
	}))
	return n
}

// TestMovesSeldom: a host that says other addresses each time it comes moves once, and the
// last ones are kept for later.
func TestMovesSeldom(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	a, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	address := func(i int) []netip.Addr {
		return []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})}
	}
	for i := range 5 {
		conn, err := wire.Dial(t.Context(), a.client.HTTP, a.client.Base)
		ok(t, err)
		ok(t, conn.Send(t.Context(), &wire.Message{Hello: &wire.Hello{Version: fmt.Sprint(i), Instance: fmt.Sprint(i), Addresses: address(i)}}))
		f.until("seen", func() bool {
			hosts, err := f.controller.Store.Hosts(t.Context())
			ok(t, err)
			return hosts[0].Version == fmt.Sprint(i)
		})
		conn.Cut()
	}
	if n := f.audited("host.addresses"); n != 1 {
		t.Errorf("%d moves", n)
	}
	s := &f.controller.statuses
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if later := s.settle(time.Now().Add(moveEvery)); fmt.Sprint(later["web-1"]) != fmt.Sprint(address(4)) {
		t.Errorf("later %v", later)
	}
}

// TestOlderDatabase: hosts that have heard more than the database knows are named with the way
// out, and a new database beside published bundles is warned of.
func TestOlderDatabase(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	a, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	_, err = f.publish("input: {default: drop}\n")
	ok(t, err)
	is, err := f.client.Status(t.Context())
	ok(t, err)
	conn, err := wire.Dial(t.Context(), a.client.HTTP, a.client.Base)
	ok(t, err)
	defer conn.Cut()
	ok(t, conn.Send(t.Context(), &wire.Message{Hello: &wire.Hello{Version: "1", Instance: "a", Order: wire.Order{Incarnation: is.Incarnation, Revision: is.Revision + 100}}}))
	f.until("the reason", func() bool {
		return strings.Contains(f.states()["web-1"].Reason, "and this database, an older copy, ends at")
	})
	d, err := a.client.Desired(t.Context())
	if err != nil || d.Bundle == 1 && (d.Since < 1 || d.Since > d.Order.Revision) {
		t.Errorf("%+v, %v", d, err)
	}
	ok(t, f.stop())
	f.database = "sqlite:" + filepath.Join(t.TempDir(), "fleet.db")
	f.run()
	if text, _ := f.notes.Load().(string); !strings.Contains(text, "the database is new, though bundles were published before") {
		t.Error(text)
	}
	if !f.controller.view.Load().restored {
		t.Error("it lacks what was signed, and does not say so")
	}
}

// TestPatchesAreFew: who asks for patches of all there is to be patched has few of them
// made at once, and what is served meanwhile is whole.
func TestPatchesAreFew(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	a, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	one := strings.Repeat("# the same line\n", 1000)
	for _, text := range []string{one, one + "# more\n"} {
		_, err = f.publish(text)
		ok(t, err)
	}
	path := wire.PathBlobs + trust.HashOf([]byte("version: 1\n"+one+"# more\n")) + "?from=" + trust.HashOf([]byte("version: 1\n"+one))
	patched := func() bool {
		t.Helper()
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, a.client.Base+path, nil)
		ok(t, err)
		answer, err := a.client.HTTP.Do(r)
		ok(t, err)
		defer answer.Body.Close()
		if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %d bytes, %v", answer.Status, len(text), err)
		}
		return answer.Header.Get("Content-Type") == wire.PatchType
	}
	f.controller.patches.wait = 0
	for range mostPatching {
		f.controller.patches.slots <- struct{}{}
	}
	if patched() {
		t.Error("one more is made")
	}
	<-f.controller.patches.slots
	f.controller.patches.wait = bound
	if !patched() {
		t.Error("none is made")
	}
}

// TestListPatches: of two lists who accepts it is given the smaller patch, and an older agent
// the one that it knows.
func TestListPatches(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	var one strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&one, "198.51.%d.%d\n", i/125, i%125*2)
	}
	from, to := one.String(), strings.Replace(one.String(), "198.51.3.4\n", "198.51.3.5\n", 1)
	for _, text := range []string{from, to} {
		ok(t, f.controller.Store.PutBlob(t.Context(), trust.HashOf([]byte(text)), wire.MostBlob, strings.NewReader(text)))
	}
	for accepts, is := range map[bool]string{true: wire.ListPatchType, false: wire.PatchType} {
		m := f.controller.patch(t.Context(), trust.HashOf([]byte(from)), trust.HashOf([]byte(to)), accepts, strings.NewReader(to))
		take := map[string]func(patch, from []byte, most int64) ([]byte, error){wire.ListPatchType: wire.UnpatchList, wire.PatchType: wire.Unpatch}[is]
		if got, err := take(m.patch, []byte(from), 1<<20); m.is != is || err != nil || string(got) != to {
			t.Errorf("accepts lists %t: %s, %v", accepts, m.is, err)
		}
	}
}

// TestWhyIsQuoted: why a host was revoked writes no line of its own where the host says it.
func TestWhyIsQuoted(t *testing.T) {
	t.Parallel()
	if is := revoked("web-1", store.Host{RevokedWhy: "sold\nhint: trust it again\x1b[2J"}); strings.ContainsAny(is.Text, "\n\x1b") || !strings.Contains(is.Text, `"sold\nhint: trust`) {
		t.Errorf("%q", is.Text)
	}
}

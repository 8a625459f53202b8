package apply

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
)

// banClient drops what begins a flow from 10.0.0.2, behind established flows.
func banClient(p *program.Program) {
	p.Sets = append(p.Sets, program.Set{ID: "banned", Key: []program.Field{program.Source}, Life: program.Static, Addresses: addrset.Of(ranges("10.0.0.2")...)})
	p.Chains[0].Rules = slices.Insert(p.Chains[0].Rules, 2, program.Rule{
		Stage:   program.StageBanFlows,
		Match:   []program.Condition{{Field: program.Source, Set: "banned"}},
		Actions: []program.Action{program.Drop},
	})
}

// client joins a client to the lab's host, and opens connections to port 7000.
func (l *lab) client(net *testnet.Net) (open func() *testnet.Conn) {
	l.t.Helper()
	client := net.Unnamed("client")
	net.Join(testnet.End{In: l.ns, Device: "eth0", Addresses: []string{"10.0.0.1/24"}}, testnet.End{In: client, Device: "eth0", Addresses: []string{"10.0.0.2/24"}})
	l.ns.ServeTCP("10.0.0.1:7000")
	return func() *testnet.Conn {
		l.t.Helper()
		r, conn := client.OpenTCP(testnet.TCPTry{To: netip.MustParseAddrPort("10.0.0.1:7000")})
		if conn == nil {
			l.t.Fatal(r)
		}
		l.t.Cleanup(conn.Close)
		return conn
	}
}

func (l *lab) wantEnded(flow *testnet.Conn) {
	l.t.Helper()
	if r := flow.Exchange("still there?", 500*time.Millisecond); r.Outcome == testnet.Answered {
		l.t.Errorf("a flow of a banned address lives on: %s", r)
	}
}

// lastPoint is the number of the last point of a command whose name begins so.
func lastPoint(t *testing.T, names []string, prefix string) (number int, name string) {
	t.Helper()
	for i := len(names) - 1; i >= 0; i-- {
		if strings.HasPrefix(names[i], prefix) {
			return i + 1, names[i]
		}
	}
	t.Fatalf("no point %q of %q", prefix, names)
	return 0, ""
}

// A ban holds for flows that exist where the apply that brought it was killed
// behind its switch.
func TestBansEndFlowsAfterAKill(t *testing.T) {
	banned := command{Op: "apply", Policy: "a banned"}
	at, _ := lastPoint(t, points(t, []command{{Op: "apply", Policy: "a"}}, banned), "after switch")
	net := testnet.New(t)
	l := &lab{t, net.Unnamed("host"), t.TempDir()}
	open := l.client(net)
	l.must(command{Op: "apply", Policy: "a"})
	flow := open()
	banned.KillAt = fmt.Sprint(at)
	if out, err := l.run(banned); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("it was not killed: %v %s", err, out)
	}
	l.must(command{Op: "settle"})
	l.wantEnded(flow)
}

// A flow that began while a ban was lifted ends where that change is taken back.
func TestBansEndFlowsAfterAFailure(t *testing.T) {
	prepare, lifted := command{Op: "apply", Policy: "a banned"}, command{Op: "apply", Policy: "a"}
	_, lifted.HoldAt = lastPoint(t, points(t, []command{prepare}, lifted), "after switch")
	net := testnet.New(t)
	l := &lab{t, net.Unnamed("host"), t.TempDir()}
	open := l.client(net)
	l.must(prepare)
	lifted.Hold = filepath.Join(t.TempDir(), "hold")
	failed := make(chan error)
	go func() {
		_, err := l.run(lifted)
		failed <- err
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(lifted.Hold); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it never came to the switch")
		}
	}
	flow := open()
	l.ns.Nft("add rule inet sluice input ip saddr 192.0.2.99 drop")
	if err := os.Remove(lifted.Hold); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "nothing changed") {
		t.Fatalf("it did not fail: %v", err)
	}
	l.wantEnded(flow)
}

package kerneltest

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
)

// stream is a connection over which one side sends a byte every now and then
// and the other never says a word, so that nothing but the sender's segments
// and the receiver's acknowledgements is on the way.
type stream struct {
	got     atomic.Int64
	session net.Conn
}

// newStream connects client to server, which sends.
func newStream(t *testing.T, client, server *testnet.Namespace, address string) *stream {
	t.Helper()
	listener, err := server.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		for {
			if _, err := conn.Write([]byte{'.'}); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	s := &stream{}
	if s.session, err = client.Dial(ctx, "tcp", address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.session.Close() })
	go func() {
		buffer := make([]byte, 64)
		for {
			n, err := s.session.Read(buffer)
			if err != nil {
				return
			}
			s.got.Add(int64(n))
		}
	}()
	return s
}

// flows fails when nothing more arrives.
func (s *stream) flows(t *testing.T, when string) {
	t.Helper()
	before := s.got.Load()
	for deadline := time.Now().Add(enough); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if s.got.Load() > before+3 {
			return
		}
	}
	t.Errorf("%s: the stream stands still after %d bytes", when, before)
}

// A firewall that begins to track must not cut the connections that ran before
// it looked. Without the moment in which they may leave an entry, a segment of
// such a connection is new, comes from the wrong side, and is refused for ever.
func TestRunningConnectionsLiveOn(t *testing.T) {
	e := newBinary(t)
	download := newStream(t, e.host, e.outside, "198.51.100.254:8001")
	download6 := newStream(t, e.host, e.outside, "[2001:db8:100::fe]:8001")
	upload := newStream(t, e.outside, e.host, "198.51.100.1:8002")
	through := newStream(t, e.inside, e.outside, "198.51.100.254:8003")
	all := func(when string) {
		t.Helper()
		download.flows(t, when+", from outside to the host")
		download6.flows(t, when+", from outside to the host over IPv6")
		upload.flows(t, when+", from the host to outside")
		through.flows(t, when+", from outside to inside")
	}
	all("without a firewall")
	e.run(t, "apply", e.write(t, "first", `
version: 1
input: { default: drop }
output: { default: drop }
forward: { default: drop }
`))
	all("after the first apply")
	if got := e.host.MustRun("nft", "list", "table", "inet", "sluice"); len(got) == 0 {
		t.Fatal("no table")
	}
	e.try(t, "stranger > host tcp/22 = silent\nstranger > inside tcp4/22 = silent", false)
}

// What bypassed tracking and no longer does goes on as well.
func TestEndOfBypassKeepsConnections(t *testing.T) {
	e := newBinary(t)
	upload := newStream(t, e.outside, e.host, "198.51.100.1:8002")
	bypassed := `
version: 1
tracking: { bypass: [tcp/8002] }
input:
  default: drop
  rules: [allow tcp/8002]
output: { default: drop }
`
	tracked := `
version: 1
input:
  default: drop
  rules: [allow tcp/8002]
output: { default: drop }
`
	e.run(t, "apply", e.write(t, "bypassed", bypassed))
	upload.flows(t, "untracked")
	e.run(t, "apply", e.write(t, "tracked", tracked))
	upload.flows(t, "tracked from now on")
	e.run(t, "apply", e.write(t, "bypassed", bypassed))
	upload.flows(t, "untracked again")
}

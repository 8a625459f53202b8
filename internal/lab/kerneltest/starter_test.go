package kerneltest

import (
	"net"
	"net/netip"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/language/starter"
)

// The policy that "sluice init" writes lets who is logged in come in again, on
// whatever port that is, and nobody to anything else, in both families.
func TestStarterPolicy(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	t.Setenv("SSH_CONNECTION", "203.0.113.9 50000 192.0.2.2 2222")
	n := testnet.New(t)
	h, peer := n.Namespace("start"), n.Namespace("peer")
	n.Join(testnet.End{In: h, Device: "wan0", Addresses: []string{"192.0.2.2/24", "2001:db8::2/64"}},
		testnet.End{In: peer, Device: "up0", Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}})
	h.Route("default4", "192.0.2.1")
	h.Route("default6", "2001:db8::1")
	listen := func(port string) {
		t.Helper()
		err := h.Do(func() error {
			l, err := net.Listen("tcp", ":"+port)
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, port := range []string{"22", "80"} {
		listen(port)
	}
	session, err := peer.Dial(t.Context(), "tcp", "192.0.2.2:22")
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()

	var policy []byte
	err = h.Do(func() error {
		s, err := starter.Describe(t.Context())
		policy = starter.Policy(s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	listen("2222")
	apply(t, h, string(policy))

	for _, host := range []string{"192.0.2.2", "2001:db8::2"} {
		for port, want := range map[uint16]testnet.Outcome{22: testnet.Answered, 2222: testnet.Answered, 80: testnet.Silent} {
			to := netip.AddrPortFrom(netip.MustParseAddr(host), port)
			if r := peer.TryTCP(testnet.TCPTry{To: to, Patience: patience(want != testnet.Silent)}); r.Outcome != want {
				t.Errorf("a new connection to %s: %v, want %v\n%s", to, r, want, policy)
			}
		}
	}
	if _, err := session.Write([]byte("still there")); err != nil {
		t.Errorf("the session is cut: %v", err)
	}
}

package netlinkcount

import (
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

// tracepointsThere is the feature that the counter needs.
var tracepointsThere = testnet.Probed("tracepoints of sockets' lengths", func() error {
	c, err := Start("/proc/self/ns/net")
	if err != nil {
		return err
	}
	return c.Close()
})

// TestCountsOneNamespace holds the counter to what known transactions carry: a
// request for the generation of nf_tables and its answer, one of them looked at
// before it is received, and one in another namespace.
func TestCountsOneNamespace(t *testing.T) {
	net := testnet.New(t)
	testnet.Require(t, tracepointsThere)
	here, elsewhere := net.Namespace("here"), net.Namespace("elsewhere")
	c, err := Start(here.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	var want Bytes
	for _, peek := range []bool{false, true} {
		answer := generation(t, here, peek)
		want.Sent, want.Received = want.Sent+request, want.Received+uint64(answer)
		generation(t, elsewhere, peek)
		got, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("peek %v: got %+v, want %+v", peek, got, want)
		}
	}
	if want.Received <= 2*request {
		t.Errorf("two answers have %d bytes: no generation in them", want.Received)
	}
}

// request is the length of a message without attributes: its header and struct
// nfgenmsg.
const request = unix.NLMSG_HDRLEN + 4

// generation asks for the generation of nf_tables and returns the answer's length.
func generation(t *testing.T, in *testnet.Namespace, peek bool) (received int) {
	t.Helper()
	err := in.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		message := make([]byte, request)
		message[0] = request
		message[4], message[5] = unix.NFT_MSG_GETGEN, unix.NFNL_SUBSYS_NFTABLES
		message[6] = unix.NLM_F_REQUEST
		if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		answer := make([]byte, 4096)
		if peek {
			if _, _, err := unix.Recvfrom(fd, answer, unix.MSG_PEEK); err != nil {
				return err
			}
		}
		received, _, err = unix.Recvfrom(fd, answer, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return received
}

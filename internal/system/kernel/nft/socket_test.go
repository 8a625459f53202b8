package nft_test

import (
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/nft"
)

// TestKeptSockets uses a socket again where it was kept, in its own namespace alone, and
// none that has an answer to be read.
func TestKeptSockets(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	net := testnet.New(t)
	one, other := net.Unnamed("one"), net.Unnamed("other")
	dial := func(in *testnet.Namespace) (s *nft.Socket) {
		t.Helper()
		if err := in.Do(func() (err error) { s, err = nft.Dial(); return err }); err != nil {
			t.Fatal(err)
		}
		return s
	}
	var end func()
	if err := one.Do(func() error { end = nft.Keep(); return nil }); err != nil {
		t.Fatal(err)
	}
	first := dial(one)
	second := dial(one)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	elsewhere, again := dial(other), dial(one)
	if again.Conn != first.Conn || second.Conn == first.Conn || elsewhere.Conn == first.Conn {
		t.Error("another socket is used again")
	}
	asks := netlink.Message{Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request}, Data: make([]byte, 4)}
	if _, err := again.Send(asks); err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
	if unread := dial(one); unread.Conn == again.Conn {
		t.Error("a socket with an answer in it is used again")
	}
	_ = second.Close()
	end()
	if late := dial(one); late.Conn == second.Conn {
		t.Error("a socket is kept on")
	}
	_ = elsewhere.Close()
	if late := dial(other); late.Conn == elsewhere.Conn {
		t.Error("a socket is kept where nobody asked")
	}
}

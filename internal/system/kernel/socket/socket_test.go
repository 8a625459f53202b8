package socket_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/socket"
)

// TestTCP gives of each socket what sock_diag does, in its order.
func TestTCP(t *testing.T) {
	net := testnet.New(t)
	host := net.Unnamed("host")
	host.MustRun("ip", "link", "set", "lo", "up")
	for _, at := range []string{"127.0.0.1:7000", "[::1]:7001", "[::]:7002"} {
		host.ServeTCP(at)
	}
	var open []*testnet.Conn
	for _, at := range []string{"127.0.0.1:7000", "[::1]:7001", "[::1]:7002"} {
		r, conn := host.OpenTCP(testnet.TCPTry{To: netip.MustParseAddrPort(at)})
		if conn == nil {
			t.Fatal(r)
		}
		open = append(open, conn)
	}
	var got, want []socket.Socket
	ask := func() (err error) {
		got, err = socket.TCP()
		want = nil
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			list, askErr := netlink.SocketDiagTCP(family)
			for _, s := range list {
				want = append(want, socket.Converted("tcp", s))
			}
			err = errors.Join(err, askErr)
		}
		return err
	}
	// One that a server accepts between the two is another in each.
	err := host.Do(ask)
	for until := time.Now().Add(time.Minute); err == nil && !slices.Equal(got, want) && time.Now().Before(until); {
		err = host.Do(ask)
	}
	if err != nil || !slices.Equal(got, want) || len(got) != 9 {
		t.Errorf("got %+v\nwant %+v\n%v", got, want, err)
	}
	for _, conn := range open {
		conn.Close()
	}
}

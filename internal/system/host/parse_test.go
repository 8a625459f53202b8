package host

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"sluice/internal/system/kernel/process"
	"sluice/internal/system/kernel/socket"
)

func TestParseResolvConf(t *testing.T) {
	got, err := parseResolvConf(strings.NewReader(
		"# made by hand\nsearch example.net\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\nnameserver nonsense\nnameserver\n; nameserver 192.0.2.54\noptions edns0\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("fe80::1")}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestParseSession(t *testing.T) {
	got := parseSession("2001:db8::9 51000 2001:db8::1 22")
	want := SSHClient{Remote: netip.MustParseAddrPort("[2001:db8::9]:51000"), Local: netip.MustParseAddrPort("[2001:db8::1]:22")}
	if got == nil || *got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, bad := range []string{"", "192.0.2.1 1 192.0.2.2", "x 1 192.0.2.2 22", "192.0.2.1 1 192.0.2.2 70000"} {
		if got := parseSession(bad); got != nil {
			t.Errorf("%q is taken as %v", bad, got)
		}
	}
}

func TestSSHPorts(t *testing.T) {
	listener := func(port uint16, inode uint32) socket.Socket {
		return socket.Socket{Protocol: "tcp", State: socket.Listen, Inode: inode, Local: netip.AddrPortFrom(netip.IPv6Unspecified(), port)}
	}
	sockets := []socket.Socket{listener(2222, 1), listener(80, 2), listener(22, 3)}
	sockets = append(sockets, socket.Socket{Protocol: "tcp", State: socket.Established, Inode: 4, Local: netip.MustParseAddrPort("192.0.2.1:40000")})
	owners := map[uint32][]process.Process{
		1: {{PID: 10, Name: "sshd"}}, 2: {{PID: 11, Name: "nginx"}}, 3: {{PID: 1, Name: "systemd"}}, 4: {{PID: 10, Name: "sshd"}},
	}
	if got, want := SSHPorts(sockets, owners), []uint16{22, 2222}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSessions(t *testing.T) {
	at := func(state socket.State, port, remote uint16, inode uint32) socket.Socket {
		return socket.Socket{
			Protocol: "tcp", State: state, Inode: inode,
			Local: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port), Remote: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.9"), remote),
		}
	}
	sockets := []socket.Socket{
		at(socket.Listen, 2200, 0, 1), at(socket.Listen, 80, 0, 2), at(socket.Listen, 22, 0, 3),
		at(socket.Established, 2200, 1001, 4), // handed over by systemd
		at(socket.Established, 80, 1002, 2),
		at(socket.Established, 22, 1003, 5),
		at(socket.Established, 40000, 443, 4), // what a session forwards
	}
	owners := map[uint32][]process.Process{
		1: {{PID: 1, Name: "systemd"}}, 2: {{PID: 11, Name: "nginx"}}, 3: {{PID: 12, Name: "sshd"}},
		4: {{PID: 13, Name: "sshd-session"}}, 5: {{PID: 14, Name: "sshd-session"}},
	}
	var got []uint16
	for _, s := range sessions(sockets, owners) {
		got = append(got, s.Remote.Port())
	}
	if want := []uint16{1001, 1003}; !reflect.DeepEqual(got, want) {
		t.Errorf("sessions from ports %v, want %v", got, want)
	}
}

func FuzzParseResolvConf(f *testing.F) {
	f.Add("nameserver 192.0.2.1\n")
	f.Add("nameserver fe80::1%eth0 # x\noptions ndots:1")
	f.Fuzz(func(t *testing.T, text string) {
		servers, err := parseResolvConf(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, s := range servers {
			if !s.IsValid() || s.Zone() != "" {
				t.Fatalf("%q gives %v", text, s)
			}
		}
	})
}

package host

import (
	"cmp"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/process"
	"sluice/internal/system/kernel/socket"
)

// sshPort is where an ssh server listens that systemd's socket unit started and
// no process by its name owns.
const sshPort = 22

// sshServers are the short names of programs that let administrators in; since
// OpenSSH 9.8 a session is served by a program of its own.
var sshServers = []string{"sshd", "sshd-session", "sshd-auth", "dropbear"}

// readSSHClients finds who manages the host: the connections to what sshd listens
// on, and the session that Sluice itself is called from, nil being none.
func (f *Facts) readSSHClients(own *SSHClient) {
	sockets, err := socket.TCP()
	if err != nil {
		f.unread("ssh peers", err)
	}
	owners, err := SSHServers(sockets)
	if err != nil {
		f.unread("owners of sockets", err)
	}
	peers := peersAt(sessions(sockets, owners), owners)
	if own != nil && f.has(own.Local.Addr()) {
		peers = slices.DeleteFunc(peers, func(p SSHClient) bool { return p.Remote == own.Remote && p.Local == own.Local })
		peers = append(peers, *own)
	}
	sorting.By(peers, func(a, b SSHClient) int {
		return cmp.Or(a.Remote.Compare(b.Remote), a.Local.Compare(b.Local))
	})
	f.SSHClients = slices.Compact(peers)
}

// WithSSHClientsNow is these facts with who manages the host over ssh at this moment,
// and by which flows, as far as that can be told; own is as of Describe.
func (f Facts) WithSSHClientsNow(own *SSHClient) Facts {
	f.readSSHClients(own)
	f.readOuterFlows()
	return f
}

// SSHClientsOf is who manages a host over ssh at this moment from addresses that are
// asked of, in the order of sockets. Processes are looked at only where there is
// a connection from such an address.
func SSHClientsOf(asked func(netip.Addr) bool) ([]SSHClient, error) {
	return new(Connected).SSHClientsOf(asked)
}

func sshClientsAmong(sockets []socket.Socket, asked func(netip.Addr) bool) ([]SSHClient, error) {
	of := func(s socket.Socket) bool {
		return s.State == socket.Established && asked(withoutZone(s.Remote).Addr())
	}
	if !slices.ContainsFunc(sockets, of) {
		return nil, nil
	}
	owners, err := SSHServers(sockets)
	if err != nil {
		return nil, err
	}
	return peersAt(slices.DeleteFunc(sessions(sockets, owners), func(s socket.Socket) bool { return !of(s) }), owners), nil
}

// peersAt is who is logged in, or may be, by connections to ssh servers.
func peersAt(connections []socket.Socket, owners map[uint32][]process.Process) []SSHClient {
	var peers []SSHClient
	for _, s := range connections {
		if in, told := loggedIn(s.Inode, owners[s.Inode], process.Title); in {
			peers = append(peers, SSHClient{Remote: withoutZone(s.Remote), Local: withoutZone(s.Local), Unproved: !told})
		}
	}
	return peers
}

// sessions is the connections that came in to an ssh server: to a port where
// one listens, or to a port where another program listens for it (systemd) and
// hands it the connection. What a session itself opens to others is none.
func sessions(sockets []socket.Socket, owners map[uint32][]process.Process) []socket.Socket {
	ports := SSHPorts(sockets, owners)
	listening := map[uint16]bool{}
	for _, s := range sockets {
		if s.State == socket.Listen {
			listening[s.Local.Port()] = true
		}
	}
	var found []socket.Socket
	for _, s := range sockets {
		port := s.Local.Port()
		if s.State == socket.Established && (slices.Contains(ports, port) || listening[port] && servesSSH(owners[s.Inode])) {
			found = append(found, s)
		}
	}
	return found
}

// loggedIn says whether somebody has proved who he is on a connection, and whether
// that can be told: the whole internet holds connections to an ssh server that it tries
// passwords on. While OpenSSH asks, every process that holds the connection has a title
// in brackets ("sshd: root [net]", "sshd: [accepted]", "sshd-session: root [priv]");
// then one is "sshd: root@pts/0" (session_proctitle in its session.c, setproctitle in
// auth2.c). One that no process holds was not accepted yet, or is over. Of other
// servers it cannot be told; somebody may be logged in.
func loggedIn(inode uint32, owners []process.Process, title func(pid int) string) (in, told bool) {
	if inode == 0 {
		return false, true
	}
	told = len(owners) > 0
	for _, p := range owners {
		switch text := title(p.PID); {
		case !strings.HasPrefix(text, "sshd"):
			told = false
		case !strings.HasSuffix(text, "]"):
			return true, true
		}
	}
	return !told, told
}

// SSHServers says which of some sockets, and what others, the ssh servers of the host hold.
// Of none it looks at no process.
func SSHServers(sockets []socket.Socket) (map[uint32][]process.Process, error) {
	if len(sockets) == 0 {
		return nil, nil
	}
	return process.OwnersNamed(sshServers...)
}

func servesSSH(owners []process.Process) bool {
	return slices.ContainsFunc(owners, func(p process.Process) bool { return slices.Contains(sshServers, p.Name) })
}

// SSHPorts returns the ports on which ssh servers listen, sorted: those of
// servers known by name, and 22 where anybody listens there.
func SSHPorts(sockets []socket.Socket, owners map[uint32][]process.Process) []uint16 {
	var ports []uint16
	for _, s := range sockets {
		if s.Protocol != "tcp" || s.State != socket.Listen {
			continue
		}
		if servesSSH(owners[s.Inode]) || s.Local.Port() == sshPort {
			ports = append(ports, s.Local.Port())
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// OwnSession is the ssh session that this process was started from.
func OwnSession() *SSHClient { return SessionOf(os.Getpid()) }

// SessionOf reads SSH_CONNECTION of a process or, since sudo takes it away, of the
// nearest process above it that has one; nil where there is none.
func SessionOf(pid int) *SSHClient {
	for _, pid := range process.Ancestors(pid) {
		if text, ok := process.Environment(pid, "SSH_CONNECTION"); ok {
			return parseSession(text)
		}
	}
	return nil
}

// parseSession reads "CLIENT PORT SERVER PORT" (ssh(1)).
func parseSession(text string) *SSHClient {
	words := strings.Fields(text)
	if len(words) != 4 {
		return nil
	}
	remote, ok1 := endpoint(words[0], words[1])
	local, ok2 := endpoint(words[2], words[3])
	if !ok1 || !ok2 {
		return nil
	}
	return &SSHClient{Remote: remote, Local: local}
}

func endpoint(address, port string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return netip.AddrPort{}, false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return withoutZone(netip.AddrPortFrom(a, uint16(n))), err == nil
}

func withoutZone(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// has says whether an address is one of the host's own.
func (f *Facts) has(a netip.Addr) bool {
	return slices.ContainsFunc(f.Interfaces, func(i Interface) bool {
		return slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
	})
}

package host

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/process"
	"sluice/internal/system/kernel/socket"
	"sluice/internal/system/kernel/wireguard"
)

// Asker is a program of the host, or a tunnel of its kernel, that asks others from a
// port of its own, so that their answers come in to that port.
type Asker struct {
	Name     string           `json:"name"`     // of the program, or of what uses the port
	Protocol string           `json:"protocol"` // "tcp" or "udp"
	Port     uint16           `json:"port"`
	Peers    []netip.AddrPort `json:"peers,omitempty"` // whom it asks now; none: not known
}

// OwnPort is a service whose programs ask from the port that they serve, so that both
// ends of a flow have it.
type OwnPort struct {
	Name     string
	Protocol string
	Port     uint16
}

// OwnPorts returns these services. Of NTP only some programs do so; which one the host
// runs is told by its configuration.
func OwnPorts() []OwnPort {
	return []OwnPort{
		{"IPsec (IKE)", "udp", 500},            // RFC 7296 section 2
		{"IPsec (NAT traversal)", "udp", 4500}, // RFC 3948 section 2
		{"WireGuard", "udp", 51820},            // wg(8): one ListenPort for both
		{"OpenVPN", "udp", 1194},               // openvpn(8): without nobind
		{"SIP", "udp", 5060},                   // RFC 3261 section 18
		{"NetBIOS names", "udp", 137},          // RFC 1002 section 4.2
		{"RIP", "udp", 520},                    // RFC 2453 section 4
	}
}

// readAskers finds who asks from a port that the kernel does not give to clients.
func (f *Facts) readAskers() {
	tcp, err := socket.TCP()
	if err != nil {
		f.unread("programs that ask from their own port", err)
	}
	udp, err := socket.UDP()
	if err != nil {
		f.unread("programs that ask from their own port", err)
	}
	guards, err := wireguard.Devices()
	if err != nil {
		f.unread("ports of WireGuard", err)
	}
	found := askers{sockets: f.mayAsk(append(tcp, udp...)), guards: guards, names: func(uint32) string { return "" }}
	if len(found.sockets) > 0 {
		found.servers = configuredServers("/")
		owners, err := process.Owners()
		if err != nil {
			f.unread("owners of sockets", err)
		}
		found.names = func(inode uint32) string {
			if len(owners[inode]) == 0 {
				return ""
			}
			return owners[inode][0].Name
		}
	}
	f.Askers = found.all()
}

// mayAsk leaves sockets at ports of their own that are connected, or may ask anybody. A
// connection to a port where somebody listens was begun by the other side.
func (f *Facts) mayAsk(sockets []socket.Socket) []socket.Socket {
	listens := map[uint16]bool{}
	for _, s := range sockets {
		if s.State == socket.Listen {
			listens[s.Local.Port()] = true
		}
	}
	return slices.DeleteFunc(sockets, func(s socket.Socket) bool {
		port := s.Local.Port()
		return port == 0 || port >= f.EphemeralFrom && port <= f.EphemeralTo || s.Remote.Addr().IsLoopback() ||
			s.Protocol == "tcp" && (s.State != socket.Established || listens[port])
	})
}

// askers is what tells who asks.
type askers struct {
	sockets []socket.Socket
	guards  []wireguard.Device
	servers []Server                  // of configurations
	names   func(inode uint32) string // of programs
}

func (a askers) all() []Asker {
	var all []Asker
	for _, s := range a.sockets {
		if at, ok := a.of(s); ok {
			all = append(all, at)
		}
	}
	for _, d := range a.guards {
		at := Asker{Name: "WireGuard (" + d.Name + ")", Protocol: "udp", Port: d.Port}
		for _, p := range d.Peers {
			if p.Endpoint.IsValid() {
				at.Peers = append(at.Peers, withoutZone(p.Endpoint))
			}
		}
		if d.Port != 0 {
			all = append(all, at)
		}
	}
	return merged(all)
}

// of says who asks by a socket, if anybody does.
func (a askers) of(s socket.Socket) (Asker, bool) {
	at := Asker{Name: a.names(s.Inode), Protocol: s.Protocol, Port: s.Local.Port()}
	known := s.Remote.Port() != 0
	if known {
		at.Peers = []netip.AddrPort{withoutZone(s.Remote)}
	}
	for _, o := range OwnPorts() {
		if o.Protocol == s.Protocol && o.Port == s.Local.Port() {
			at.Name, known = cmp.Or(at.Name, o.Name), true
		}
	}
	for _, server := range a.servers {
		if server.Protocol != s.Protocol || server.FromPort != s.Local.Port() {
			continue
		}
		known = true
		if address, err := netip.ParseAddr(server.Name); err == nil {
			at.Peers = append(at.Peers, netip.AddrPortFrom(address.Unmap().WithZone(""), server.Port))
		}
	}
	at.Name = cmp.Or(at.Name, "the kernel or a program that cannot be seen")
	return at, known
}

// merged has one of each program and port, sorted. The kernel's own socket of a tunnel
// goes with what the tunnel says of itself.
func merged(all []Asker) []Asker {
	sorting.By(all, func(a, b Asker) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port), strings.Compare(a.Name, b.Name))
	})
	var out []Asker
	for _, a := range all {
		last := len(out) - 1
		if last >= 0 && out[last].Protocol == a.Protocol && out[last].Port == a.Port && strings.HasPrefix(a.Name, out[last].Name) {
			out[last].Name, out[last].Peers = a.Name, append(out[last].Peers, a.Peers...)
			continue
		}
		out = append(out, a)
	}
	for i := range out {
		out[i].Peers = sorting.Unique(out[i].Peers, netip.AddrPort.Compare)
	}
	return out
}

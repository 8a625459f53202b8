package stress

import (
	"fmt"
	"net/netip"

	"sluice/internal/lab/testnet"
)

// way is between whom the connections of a service run.
type way int

const (
	toHost   way = iota // client to host
	fromHost            // host to client
	through             // client to inside, through the host
)

// service is a service that both policies allow, for streams and connects.
type service struct {
	number int
	way    way
	name   string
}

// Services. Policies name their ports: see policies.go.
var services = []service{
	{0, toHost, "tracked"},
	{1, toHost, "untracked"},
	{2, toHost, "untracked by the first"},
	{3, toHost, "untracked by the second"},
	{4, fromHost, "tracked, from the host"},
	{5, through, "forwarded"},
	{6, through, "published"}, // by a redirect of the host's own address
}

func (s service) connectPort() uint16         { return uint16(7100 + s.number) }
func (s service) streamPort() uint16          { return uint16(7200 + s.number) }
func (s service) connectName(f family) string { return fmt.Sprintf("connect%d_%d", f, s.connectPort()) }

func (s service) streamName(f family) string { return fmt.Sprintf("stream%d_%d", f, s.streamPort()) }
func (s service) String() string             { return s.name }
func (s service) published() bool            { return s.number == 6 }

// ends are who calls and who answers.
func (s service) ends(l *lab) (from, to *testnet.Namespace) {
	switch s.way {
	case fromHost:
		return l.host, l.client
	case through:
		return l.client, l.inside
	}
	return l.client, l.host
}

// listens is the address that the server has, asked that which the client asks.
func (s service) listens(f family, port uint16) netip.AddrPort {
	return s.at(f, port, [...][2]string{toHost: {hostV4, hostV6}, fromHost: {clientV4, clientV6}, through: {insideV4, insideV6}}[s.way])
}

func (s service) asked(f family, port uint16) netip.AddrPort {
	if s.published() {
		return s.at(f, port, [2]string{hostV4, hostV6})
	}
	return s.listens(f, port)
}

func (service) at(f family, port uint16, addresses [2]string) netip.AddrPort {
	text := addresses[0]
	if f == 6 {
		text = addresses[1]
	}
	return netip.AddrPortFrom(netip.MustParseAddr(text), port)
}

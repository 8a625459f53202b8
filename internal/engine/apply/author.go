package apply

import (
	"os"
	"os/user"

	"sluice/internal/base/packet"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/link"
)

// Me is who runs this process: through sudo, who called it; over ssh, from
// where.
func Me() Author {
	var a Author
	if peer, ok := Session(); ok {
		a.From = peer.Remote.Addr().String()
	}
	for _, name := range []string{os.Getenv("SUDO_USER"), os.Getenv("DOAS_USER")} {
		if name != "" {
			a.User = name
			return a
		}
	}
	if u, err := user.Current(); err == nil {
		a.User = u.Username
	}
	return a
}

// Session is the ssh connection that this process was started over, through
// sudo too.
func Session() (SSHClient, bool) {
	own, ok := host.OwnSession()
	if !ok {
		return SSHClient{}, false
	}
	return peerOf(link.NewRouting(), own), true
}

func peerOf(routing *link.Routing, p host.SSHClient) SSHClient {
	peer := SSHClient{Remote: p.Remote, Local: p.Local, Unproved: p.Unproved}
	first := firstOf(peer)
	addDevices(routing, &first, reach.In)
	peer.Interface = first.In
	return peer
}

// addDevices says of a first packet by which devices it comes in and leaves; "" where
// that cannot be told.
func addDevices(routing *link.Routing, p *packet.Packet, way reach.Way) {
	l := link.Lookup{Source: p.Source, Destination: p.Destination, Mark: p.Mark, Protocol: p.Protocol, SourcePort: p.SourcePort, Port: p.Port, User: -1}
	// An error is that the way cannot be told.
	switch way {
	case reach.In:
		p.In, _ = routing.From(l)
	case reach.Out:
		p.Out, _ = routing.Toward(l)
	case reach.Through:
		p.In, p.Out, _ = routing.Through(l)
	}
}

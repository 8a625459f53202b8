package apply

import (
	"os"
	"os/user"
	"strconv"

	"sluice/internal/base/packet"
	"sluice/internal/language/bans"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/link"
	"sluice/internal/system/kernel/process"
)

// Author is who made a change.
type Author = bans.Author

// Me is who runs this process, and the ssh session that it was started from.
func Me() (Author, *host.SSHClient) { return Caller(os.Getpid(), os.Getuid()) }

// Caller is who runs a process, whose user has a number, and the ssh session that it was
// started from, nil where there is none. All but the login is what the process says of
// itself: it names somebody, and permits nothing.
func Caller(pid, uid int) (Author, *host.SSHClient) {
	var a Author
	session := host.SessionOf(pid)
	if session != nil {
		a.From = session.Remote.Addr().String()
	}
	as := uid
	if login, known := process.Login(pid); known {
		a.Login, as = login, int(login)
	}
	a.User = UserName(as)
	for _, variable := range []string{"DOAS_USER", "SUDO_USER"} {
		if name, _ := process.Environment(pid, variable); name != "" && uid == 0 {
			a.User = name
		}
	}
	return a, session
}

// UserName is the name of a user, or the number where this host has no such name.
func UserName(uid int) string {
	number := strconv.Itoa(uid)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
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

package apply

import (
	"net/netip"
	"os"
	"os/user"

	"sluice/internal/host"
	"sluice/internal/kernel/link"
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
func Session() (Peer, bool) {
	own, ok := host.OwnSession()
	if !ok {
		return Peer{}, false
	}
	return Peer{Remote: own.Remote, Local: own.Local, Interface: Toward(own.Remote.Addr())}, true
}

// Toward is the interface that packets of an address come in by, "" where that
// cannot be told.
func Toward(a netip.Addr) string {
	name, err := link.Toward(a.WithZone(""))
	if err != nil {
		return ""
	}
	return name
}

package apply

import (
	"net/netip"
	"os"
	"os/user"
	"strings"

	"sluice/internal/kernel/link"
	"sluice/internal/kernel/process"
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

// Session is the ssh connection that this process was started over. sudo takes
// the variable out of the environment, so the parents are asked too.
func Session() (Peer, bool) {
	for _, pid := range process.Ancestors(os.Getpid()) {
		text, ok := process.Environment(pid, "SSH_CONNECTION")
		if !ok {
			continue
		}
		if peer, ok := parseSession(text); ok {
			peer.Interface = Toward(peer.Remote.Addr())
			return peer, true
		}
	}
	return Peer{}, false
}

// parseSession reads "client address, client port, server address, server port".
func parseSession(text string) (Peer, bool) {
	f := strings.Fields(text)
	if len(f) != 4 {
		return Peer{}, false
	}
	remote, errRemote := netip.ParseAddrPort(netJoin(f[0], f[1]))
	local, errLocal := netip.ParseAddrPort(netJoin(f[2], f[3]))
	if errRemote != nil || errLocal != nil {
		return Peer{}, false
	}
	return Peer{Remote: plainAddress(remote), Local: plainAddress(local)}, true
}

func netJoin(address, port string) string {
	if strings.Contains(address, ":") {
		return "[" + address + "]:" + port
	}
	return address + ":" + port
}

func plainAddress(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
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

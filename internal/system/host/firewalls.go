package host

import (
	"bytes"
	"io/fs"
	"strings"
)

// Firewall is a service of another firewall that starts with the host.
type Firewall struct {
	Unit    string `json:"unit"`              // of systemd
	Flushes bool   `json:"flushes,omitempty"` // it deletes all rules of nftables, whosever they are
	Disable string `json:"disable"`           // command after which it starts no more
}

// firewallUnits are the services of firewalls, with the file and the line without which one
// that starts does nothing, and the file that says whether it flushes.
var firewallUnits = []struct{ unit, disable, config, on, rules string }{
	{"ufw.service", "ufw disable", "etc/ufw/ufw.conf", "ENABLED=yes", ""},
	{"firewalld.service", "systemctl disable --now firewalld.service", "", "", ""},
	// Stopping it flushes all rules, so it must not be stopped (ExecStop of Debian and Fedora).
	{"nftables.service", "systemctl disable nftables.service", "", "", "etc/nftables.conf"},
	{"nftables.service", "systemctl disable nftables.service", "", "", "etc/sysconfig/nftables.conf"},
	{"netfilter-persistent.service", "systemctl disable netfilter-persistent.service", "", "", ""},
	{"iptables.service", "systemctl disable iptables.service", "", "", ""},
	{"ip6tables.service", "systemctl disable ip6tables.service", "", "", ""},
	{"shorewall.service", "systemctl disable --now shorewall.service", "", "", ""},
	{"ferm.service", "systemctl disable ferm.service", "", "", ""},
}

// otherFirewalls reads which firewalls of other tools start with the host whose files are
// below root: units that something wants (systemd.unit(5), .wants and .requires).
func otherFirewalls(root fs.FS) (out []Firewall) {
	for _, f := range firewallUnits {
		if !wanted(root, f.unit) {
			continue
		}
		if f.config != "" && !hasLine(root, f.config, f.on) {
			continue
		}
		found := Firewall{Unit: f.unit, Disable: f.disable, Flushes: f.rules != "" && hasLine(root, f.rules, "flush ruleset")}
		if n := len(out); n > 0 && out[n-1].Unit == f.unit {
			out[n-1].Flushes = out[n-1].Flushes || found.Flushes
			continue
		}
		out = append(out, found)
	}
	return out
}

func wanted(root fs.FS, unit string) bool {
	for _, dir := range []string{"etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"} {
		for _, kind := range []string{"wants", "requires"} {
			if found, err := fs.Glob(root, dir+"/*."+kind+"/"+unit); err == nil && len(found) > 0 {
				return !masked(root, unit)
			}
		}
	}
	return false
}

// masked says that a unit is one that cannot start: a link to /dev/null, or empty.
func masked(root fs.FS, unit string) bool {
	name := "etc/systemd/system/" + unit
	if to, err := fs.ReadLink(root, name); err == nil {
		return to == "/dev/null"
	}
	info, err := fs.Stat(root, name)
	return err == nil && info.Size() == 0
}

// hasLine says whether a file has a line, blanks and what follows apart.
func hasLine(root fs.FS, name, line string) bool {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return false
	}
	for l := range bytes.Lines(text) {
		have := strings.Join(strings.Fields(strings.TrimSpace(string(l))), " ")
		if rest, is := strings.CutPrefix(have, line); is && (rest == "" || strings.ContainsAny(rest[:1], " ;#")) {
			return true
		}
	}
	return false
}

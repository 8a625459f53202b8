package host

import (
	"io/fs"
	"reflect"
	"testing"
	"testing/fstest"
)

func TestOtherFirewalls(t *testing.T) {
	unit := &fstest.MapFile{Data: []byte("[Unit]\n")}
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	const wants = "etc/systemd/system/multi-user.target.wants/"
	nft := Firewall{Unit: "nftables.service", Disable: "systemctl disable nftables.service"}
	flushing := nft
	flushing.Flushes = true
	ufw := Firewall{Unit: "ufw.service", Disable: "ufw disable"}
	firewalld := Firewall{Unit: "firewalld.service", Disable: "systemctl disable --now firewalld.service"}
	for name, c := range map[string]struct {
		root fstest.MapFS
		want []Firewall
	}{
		"nothing":           {root: fstest.MapFS{"etc/nftables.conf": text("flush ruleset\n")}},
		"flushes":           {fstest.MapFS{"etc/systemd/system/sysinit.target.wants/nftables.service": unit, "etc/nftables.conf": text("#!/usr/sbin/nft -f\n\nflush ruleset\n")}, []Firewall{flushing}},
		"flushes on Fedora": {fstest.MapFS{wants + "nftables.service": unit, "etc/sysconfig/nftables.conf": text("  flush  ruleset; # all\n")}, []Firewall{flushing}},
		"does not flush":    {fstest.MapFS{wants + "nftables.service": unit, "etc/nftables.conf": text("# flush ruleset\n")}, []Firewall{nft}},
		"masked":            {root: fstest.MapFS{wants + "nftables.service": unit, "etc/systemd/system/nftables.service": &fstest.MapFile{Data: []byte("/dev/null"), Mode: fs.ModeSymlink}}},
		"ufw that is off":   {root: fstest.MapFS{wants + "ufw.service": unit, "etc/ufw/ufw.conf": text("# ENABLED=yes\nENABLED=no\n")}},
		"several":           {fstest.MapFS{wants + "ufw.service": unit, "etc/ufw/ufw.conf": text("ENABLED=yes\n"), "usr/lib/systemd/system/basic.target.requires/firewalld.service": unit}, []Firewall{ufw, firewalld}},
	} {
		if got := otherFirewalls(c.root); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

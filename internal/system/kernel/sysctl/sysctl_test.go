package sysctl_test

import (
	"errors"
	"io/fs"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/sysctl"
)

// TestSysctl reads and writes in a namespace of its own.
func TestSysctl(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	n := testnet.New(t)
	s := n.Unnamed("host")
	other := n.Unnamed("other")
	n.Join(testnet.End{In: s, Device: "a.5"}, testnet.End{In: other, Device: "b"})
	var after, beside string
	err := s.Do(func() (err error) {
		if err := sysctl.Write("net.ipv4.conf.a/5.rp_filter", "2"); err != nil {
			return err
		}
		if err := sysctl.Write("net.ipv4.ip_forward", "1"); err != nil {
			return err
		}
		if after, err = sysctl.Read("net.ipv4.ip_forward"); err != nil {
			return err
		}
		beside, err = sysctl.Read("net.ipv4.conf.a/5.rp_filter")
		return err
	})
	if err != nil || after != "1" || beside != "2" {
		t.Errorf("got %q, %q, %v", after, beside, err)
	}
	if err := other.Do(func() (err error) { after, err = sysctl.Read("net.ipv4.ip_forward"); return err }); err != nil || after != "0" {
		t.Errorf("the other namespace has %q, %v", after, err)
	}
	for _, name := range []string{"net.ipv4.no_such_thing", "net.netfilter.no_such_thing"} {
		if _, err := sysctl.Read(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
		if err := sysctl.Write(name, "1"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "..", "net..ipv4", "net.ipv4/../x", "/etc/passwd", ".net"} {
		if _, err := sysctl.Read(name); err == nil {
			t.Errorf("%q is read", name)
		}
		if err := sysctl.Write(name, "1"); err == nil {
			t.Errorf("%q is written", name)
		}
	}
}

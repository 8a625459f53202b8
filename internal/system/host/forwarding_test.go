package host

import (
	"io/fs"
	"testing"
	"testing/fstest"
)

func TestReadForwarding(t *testing.T) {
	// Parameters of a host with two devices that forwards nothing.
	quiet := []string{
		"ipv4/ip_forward", "ipv4/ip_nonlocal_bind", "ipv4/conf/all/forwarding", "ipv4/conf/eth0/forwarding", "ipv4/conf/eth1.7/forwarding",
		"ipv6/ip_nonlocal_bind", "ipv6/conf/all/forwarding", "ipv6/conf/eth0/forwarding",
		"ipv6/conf/all/force_forwarding", "ipv6/conf/eth0/force_forwarding",
	}
	has := func(text string, names ...string) func(fstest.MapFS) {
		return func(m fstest.MapFS) {
			for _, name := range names {
				m[name] = &fstest.MapFile{Data: []byte(text)}
			}
		}
	}
	without := func(names ...string) func(fstest.MapFS) {
		return func(m fstest.MapFS) {
			for _, name := range names {
				delete(m, name)
			}
		}
	}
	for _, test := range []struct {
		name   string
		change func(fstest.MapFS)
		want   Facts
	}{
		{"nothing", func(fstest.MapFS) {}, Facts{}},
		{"all IPv4", has("1\n", "ipv4/ip_forward", "ipv4/conf/all/forwarding"), Facts{Forwarding4: true}},
		{"one device, IPv4", has("1\n", "ipv4/conf/eth1.7/forwarding"), Facts{Forwarding4: true}},
		{"all IPv6", has("1\n", "ipv6/conf/all/forwarding"), Facts{Forwarding6: true}},
		{"one device, IPv6, which alone forwards nothing", has("1\n", "ipv6/conf/eth0/forwarding"), Facts{}},
		{"one device that is forced, IPv6", has("1\n", "ipv6/conf/eth0/force_forwarding"), Facts{Forwarding6: true}},
		{"a kernel before 6.17", without("ipv6/conf/all/force_forwarding", "ipv6/conf/eth0/force_forwarding"), Facts{}},
		{"a kernel without IPv6", without(quiet[5:]...), Facts{}},
		{"foreign addresses", has("1\n", "ipv6/ip_nonlocal_bind"), Facts{NonLocalBind: true}},
		{"nothing to read", without(quiet...), Facts{ForwardingUnread: true}},
		{"not there", without("ipv4/ip_nonlocal_bind"), Facts{ForwardingUnread: true}},
		{"no number", has("", "ipv4/conf/eth0/forwarding"), Facts{ForwardingUnread: true}},
		{"not to be read", func(m fstest.MapFS) { m["ipv6/conf/all/forwarding"] = &fstest.MapFile{Mode: fs.ModeDir} }, Facts{ForwardingUnread: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := fstest.MapFS{}
			has("0\n", quiet...)(files)
			test.change(files)
			var f Facts
			f.readForwarding(files)
			if f.Forwarding4 != test.want.Forwarding4 || f.Forwarding6 != test.want.Forwarding6 ||
				f.NonLocalBind != test.want.NonLocalBind || f.ForwardingUnread != test.want.ForwardingUnread {
				t.Errorf("got %+v, want %+v", f, test.want)
			}
			if got := len(f.Unread) > 0; got != test.want.ForwardingUnread {
				t.Errorf("not read: %q", f.Unread)
			}
		})
	}
}

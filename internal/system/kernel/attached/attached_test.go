package attached_test

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/attached"
)

// passing is a program that lets everything pass.
func passing(t *testing.T, kind ebpf.ProgramType, verdict int32) *ebpf.Program {
	t.Helper()
	spec := &ebpf.ProgramSpec{
		Name: "lets_pass", Type: kind, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()},
	}
	if kind == ebpf.Netfilter {
		spec.AttachType = ebpf.AttachNetfilter
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		testnet.Lacks(t, "BPF programs of type "+kind.String(), err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// Every kind of thing is really loaded; each is found with its place, is gone when it is
// removed, and is not seen from another network namespace.
func TestList(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	net := testnet.New(t)
	here, other := net.Unnamed("here"), net.Unnamed("other")
	net.Join(testnet.End{In: here, Device: "eth0"}, testnet.End{In: other, Device: "eth0"})
	var index int
	if err := here.Do(func() error {
		device, err := netlink.LinkByName("eth0")
		if err == nil {
			index = device.Attrs().Index
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}

	list := func(in *testnet.Namespace) (out []attached.Thing) {
		t.Helper()
		err := in.Do(func() error {
			things, errs := attached.List()
			for _, err := range errs {
				t.Error(err)
			}
			for _, thing := range things {
				thing.Program = 0
				out = append(out, thing)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range []struct {
		name   string
		want   []attached.Thing
		attach func(t *testing.T) (remove func() error, err error)
	}{
		{"xdp by a link", []attached.Thing{{Kind: attached.XDP, Device: "eth0", Hook: "ingress", Name: "lets_pass"}}, func(t *testing.T) (func() error, error) {
			l, err := link.AttachXDP(link.XDPOptions{Program: passing(t, ebpf.XDP, 2), Interface: index, Flags: link.XDPGenericMode})
			if err != nil {
				return nil, err
			}
			return l.Close, nil
		}},
		{"xdp of the device", []attached.Thing{{Kind: attached.XDP, Device: "eth0", Hook: "ingress", Name: "lets_pass"}}, func(t *testing.T) (func() error, error) {
			device, err := netlink.LinkByIndex(index)
			if err != nil {
				return nil, err
			}
			remove := func() error { return netlink.LinkSetXdpFdWithFlags(device, -1, unix.XDP_FLAGS_SKB_MODE) }
			return remove, netlink.LinkSetXdpFdWithFlags(device, passing(t, ebpf.XDP, 2).FD(), unix.XDP_FLAGS_SKB_MODE)
		}},
		{"tcx", []attached.Thing{{Kind: attached.TCX, Device: "eth0", Hook: "egress", Name: "lets_pass"}}, func(t *testing.T) (func() error, error) {
			l, err := link.AttachTCX(link.TCXOptions{Program: passing(t, ebpf.SchedCLS, 0), Interface: index, Attach: ebpf.AttachTCXEgress})
			if err != nil {
				return nil, err
			}
			return l.Close, nil
		}},
		{"tc", []attached.Thing{{Kind: attached.TC, Device: "eth0", Hook: "ingress", Name: "bpf", Priority: 7}}, func(t *testing.T) (func() error, error) {
			clsact := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
			if err := netlink.QdiscAdd(clsact); err != nil {
				return nil, err
			}
			return func() error { return netlink.QdiscDel(clsact) }, netlink.FilterAdd(&netlink.BpfFilter{
				FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 7},
				Fd:          passing(t, ebpf.SchedCLS, 0).FD(), Name: "lets_pass", DirectAction: true,
			})
		}},
		{"netfilter, IPv6", []attached.Thing{{Kind: attached.Netfilter, Family: "ip6", Hook: "forward", Priority: -17, Name: "lets_pass"}}, func(t *testing.T) (func() error, error) {
			l, err := link.AttachNetfilter(link.NetfilterOptions{
				Program: passing(t, ebpf.Netfilter, 1), ProtocolFamily: link.NetfilterProtoIPv6, Hook: link.NetfilterInetForward, Priority: -17,
			})
			if err != nil {
				return nil, err
			}
			return l.Close, nil
		}},
		{"netfilter, IPv4", []attached.Thing{{Kind: attached.Netfilter, Family: "ip", Hook: "input", Priority: 5, Name: "lets_pass"}}, func(t *testing.T) (func() error, error) {
			l, err := link.AttachNetfilter(link.NetfilterOptions{
				Program: passing(t, ebpf.Netfilter, 1), ProtocolFamily: link.NetfilterProtoIPv4, Hook: link.NetfilterInetLocalIn, Priority: 5,
			})
			if err != nil {
				return nil, err
			}
			return l.Close, nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := func(in *testnet.Namespace, anywhere bool) bool {
				things := list(in)
				return !slices.ContainsFunc(c.want, func(want attached.Thing) bool {
					return !slices.ContainsFunc(things, func(have attached.Thing) bool {
						known := have.Anywhere
						have.Anywhere = false
						return have == want && (anywhere || !known)
					})
				})
			}
			if found(here, true) {
				t.Fatal("it is found before it is there")
			}
			var remove func() error
			if err := here.Do(func() (err error) { remove, err = c.attach(t); return err }); err != nil {
				t.Fatal(err)
			}
			if !found(here, true) {
				t.Errorf("it is not found among %+v", list(here))
			}
			if found(other, false) {
				t.Errorf("it is found in another namespace: %+v", list(other))
			}
			if err := here.Do(remove); err != nil {
				t.Fatal(err)
			}
			if found(here, true) {
				t.Errorf("it is found when it is gone: %+v", list(here))
			}
		})
	}
}

// A queue's filter only chooses a class; one that redirects is found.
func TestFiltersOfQueues(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	net := testnet.New(t)
	here := net.Unnamed("here")
	net.Join(testnet.End{In: here, Device: "eth0"}, testnet.End{In: net.Unnamed("other"), Device: "eth0"})
	count := func() (n int) {
		if err := here.Do(func() error {
			things, _ := attached.List()
			n = len(slices.DeleteFunc(things, func(t attached.Thing) bool { return t.Kind != attached.TC }))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, step := range []struct {
		args []string
		want int
	}{
		{[]string{"qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb"}, 0},
		{[]string{"filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip", "u32", "match", "u32", "0", "0", "flowid", "1:1"}, 0},
		{[]string{"filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ipv6", "prio", "3", "u32", "match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", "eth0"}, 1},
		{[]string{"qdisc", "add", "dev", "eth0", "ingress"}, 1},
		{[]string{"filter", "add", "dev", "eth0", "ingress", "protocol", "ip", "u32", "match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", "eth0"}, 2},
	} {
		if _, err := here.Run("tc", step.args...); err != nil {
			t.Fatal(err)
		}
		if n := count(); n != step.want {
			t.Errorf("%d filters after tc %v, want %d", n, step.args, step.want)
		}
	}
}

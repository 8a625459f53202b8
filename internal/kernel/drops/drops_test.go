package drops

import (
	"errors"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice/internal/testnet"
)

var canTell = testnet.Probed("packets dropped by kernel function (BTF)", func() error {
	w, err := Watch(1)
	if err == nil {
		w.Close()
	}
	return err
})

// number is what the kernel calls a namespace.
func number(t *testing.T, n *testnet.Namespace) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(n.Path(), &st); err != nil {
		t.Fatal(err)
	}
	return uint32(st.Ino)
}

// named is what was dropped in one namespace, by names.
func named(t *testing.T, w *Watcher, namespace uint32) map[string]uint64 {
	t.Helper()
	places, err := w.Read()
	if err != nil {
		t.Fatal(err)
	}
	var addresses []uint64
	for p := range places {
		addresses = append(addresses, p.Location)
	}
	names, err := Functions(addresses...)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint64{}
	for p, n := range places {
		if p.Namespace == namespace {
			out[names[p.Location]+" "+w.Reason(p.Reason)] += n
		}
	}
	return out
}

func send(t *testing.T, in *testnet.Namespace, to string, packets int) {
	t.Helper()
	err := in.Do(func() error {
		c, err := net.Dial("udp", to)
		if err != nil {
			return err
		}
		defer c.Close()
		for range packets {
			// An ICMP error of the packet before ends this one.
			if _, err := c.Write([]byte("hello")); err != nil && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EPERM) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Every packet that a rule drops is counted, in its own namespace alone.
func TestRulesDrop(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, canTell)
	lab := testnet.New(t)
	watched, other := lab.Namespace("watched"), lab.Namespace("other")
	for _, n := range []*testnet.Namespace{watched, other} {
		n.Nft(`table inet t { chain c { type filter hook input priority 0; udp dport 9 drop; } }`)
	}
	w, err := Watch(number(t, watched))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, to := range []string{"127.0.0.1:9", "[::1]:9"} {
		send(t, watched, to, 700)
		send(t, other, to, 50)
	}
	want := map[string]uint64{"nf_hook_slow NETFILTER_DROP": 1400}
	if diff := cmp.Diff(want, named(t, w, number(t, watched))); diff != "" {
		t.Error(diff)
	}
	if n, err := w.Missed(); n != 0 || err != nil {
		t.Errorf("missed: got %d, %v", n, err)
	}
	if got := named(t, w, number(t, other)); len(got) != 0 {
		t.Errorf("of a namespace that nobody watches: got %v", got)
	}
}

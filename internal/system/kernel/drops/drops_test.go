package drops

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
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

// enough is how long the kernel may take for packets that were sent.
const enough = 30 * time.Second

// awaited is what was dropped in one namespace, once it is as many packets.
func awaited(t *testing.T, w *Watcher, namespace uint32, packets uint64) map[string]uint64 {
	t.Helper()
	for end := time.Now().Add(enough); ; time.Sleep(time.Millisecond) {
		got := named(t, w, namespace)
		if sum(got) >= packets || time.Now().After(end) {
			return got
		}
	}
}

func sum(drops map[string]uint64) (n uint64) {
	for _, d := range drops {
		n += d
	}
	return n
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

// Every packet that a rule drops is counted, in its own namespace alone. The rules of
// nftables give packets up themselves since Linux 6.9, before that the hook does;
// iptables leaves it to the hook on every kernel.
func TestRulesDrop(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, canTell)
	for name, tc := range map[string]struct {
		needs []testnet.Feature
		drop  func(*testnet.Namespace)
		in    []string
	}{
		"nftables": {nil, func(n *testnet.Namespace) {
			n.Nft("table inet t { chain c { type filter hook input priority 0; udp dport 9 drop\n }\n }")
		}, []string{"nft_do_chain", "nf_hook_slow"}},
		"iptables": {[]testnet.Feature{testnet.IPTablesLegacy("filter")}, func(n *testnet.Namespace) {
			n.MustRun("iptables-legacy", "-A", "INPUT", "-p", "udp", "--dport", "9", "-j", "DROP")
			n.MustRun("ip6tables-legacy", "-A", "INPUT", "-p", "udp", "--dport", "9", "-j", "DROP")
		}, []string{"nf_hook_slow"}},
	} {
		t.Run(name, func(t *testing.T) {
			testnet.Require(t, tc.needs...)
			lab := testnet.New(t)
			watched, other := lab.Namespace("watched"), lab.Namespace("other")
			tc.drop(watched)
			tc.drop(other)
			w, err := Watch(number(t, watched))
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			for _, to := range []string{"127.0.0.1:9", "[::1]:9"} {
				send(t, watched, to, 700)
				send(t, other, to, 50)
			}
			got := awaited(t, w, number(t, watched), 1400)
			place := ""
			for p := range got {
				place = p
			}
			function, reason, _ := strings.Cut(place, " ")
			if len(got) != 1 || got[place] != 1400 || !slices.Contains(tc.in, function) || w.reasons != nil && reason != "NETFILTER_DROP" {
				t.Errorf("want 1400 packets by netfilter in one of %q, got %v", tc.in, got)
			}
			if n, err := w.Missed(); n != 0 || err != nil {
				t.Errorf("missed: got %d, %v", n, err)
			}
			if got := named(t, w, number(t, other)); len(got) != 0 {
				t.Errorf("of a namespace that nobody watches: got %v", got)
			}
		})
	}
}

// A datagram for which a socket has no room belongs to the namespace of the socket:
// by then it has no device.
func TestSocketFull(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, canTell)
	lab := testnet.New(t)
	n := lab.Namespace("full")
	var to string
	err := n.Do(func() error {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = c.Close() })
		to = c.LocalAddr().String()
		return c.SetReadBuffer(1)
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := Watch(number(t, n))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	send(t, n, to, 300)
	of := number(t, n)
	if !w.meant { // Linux before 6.11 does not say what socket
		of = 0
	}
	// The kernel counts a datagram in either place as it drops it, one behind the other.
	var counted uint64
	var got map[string]uint64
	for end := time.Now().Add(enough); counted == 0 || sum(got) != counted; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the kernel counts %d, got %v", counted, got)
		}
		counted, got = counter(t, n, "RcvbufErrors"), named(t, w, of)
	}
}

// counter reads a counter of UDP, which nstat(8) shows.
func counter(t *testing.T, n *testnet.Namespace, name string) (value uint64) {
	t.Helper()
	err := n.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		var names []string
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if fields[0] != "Udp:" {
				continue
			}
			if names == nil {
				names = fields
				continue
			}
			value, err = strconv.ParseUint(fields[slices.Index(names, name)], 10, 64)
			return err
		}
		return fmt.Errorf("no counter %s", name)
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestFunctions(t *testing.T) {
	list := "ffffffff81000000 T first\n" +
		"ffffffff81000100 t second.isra.0\n" +
		"ffffffff81000180 d data\n" +
		"ffffffff81000200 t third.cold\n" +
		"ffffffffc0000000 t of_module\t[nf_tables]\n" +
		"ffffffff80ffff00 T before\n"
	got, err := functions(strings.NewReader(list), []uint64{0xffffffff81000001, 0xffffffff81000100, 0xffffffff81000190, 0xffffffff81000201, 0xffffffffc0000010, 0x1000})
	want := map[uint64]string{
		0xffffffff81000001: "first",
		0xffffffff81000100: "first", // a call at the very end returns behind it
		0xffffffff81000190: "second", 0xffffffff81000201: "third", 0xffffffffc0000010: "of_module",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	hidden, err := functions(strings.NewReader("0000000000000000 T first\n"), []uint64{1 << 40})
	if len(hidden) != 0 || err != nil {
		t.Errorf("addresses that may not be seen: got %v, %v", hidden, err)
	}
}

func FuzzFunctions(f *testing.F) {
	f.Add("ffffffff81000000 T first\nffffffff81000100 t second\t[module]\n")
	f.Add("x\nffffffff81000000 T \n")
	f.Fuzz(func(t *testing.T, list string) {
		if _, err := functions(strings.NewReader(list), []uint64{1, 1 << 63}); err != nil && !strings.Contains(err.Error(), "too long") {
			t.Error(err)
		}
	})
}

const heldBy = "SLUICE_TEST_DROPS_WATCHED"

// TestKilled leaves nothing in the kernel of a process that was killed.
func TestKilled(t *testing.T) {
	testnet.Require(t, canTell)
	if os.Getenv(heldBy) != "" {
		w, err := Watch(1)
		if err != nil {
			t.Fatal(err)
		}
		info, err := w.program.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		fmt.Printf("%d\n", id)
		select {}
	}
	held := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	held.Env = append(os.Environ(), heldBy+"=1")
	out, err := held.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Start(); err != nil {
		t.Fatal(err)
	}
	var id ebpf.ProgramID
	_, err = fmt.Fscanln(out, &id)
	there := func() bool {
		p, err := ebpf.NewProgramFromID(id)
		if err == nil {
			_ = p.Close()
		}
		return err == nil
	}
	if err != nil || !there() {
		t.Errorf("program %d is not there: %v", id, err)
	}
	_ = held.Process.Kill()
	_ = held.Wait()
	for end := time.Now().Add(enough); there(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("its program stays")
		}
	}
}

// TestSampleBound floods: no more is copied than was asked for, and what is rare is among it.
func TestSampleBound(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, canTell)
	n := testnet.New(t).Namespace("flooded")
	n.Nft("table inet t { chain c { type filter hook input priority 0; udp dport 9 drop\n }\n }")
	w, err := Watch(number(t, n))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	over := make(chan struct{})
	go func() {
		defer close(over)
		for i := 0; ctx.Err() == nil; i++ {
			send(t, n, "127.0.0.1:9", 200)
			send(t, n, "127.0.0.1:10", 1)
		}
	}()
	const perSecond = 40
	per := map[int]int{} // copies by epoch
	rare, epochs := 0, 0
	if err := w.Sample(ctx, perSecond, func(all []Copy) {
		epochs++
		per[epochs] = len(all)
		for _, c := range all {
			if len(c.Packet) < 28 || c.EtherType != unix.ETH_P_IP || c.Bytes == 0 || len(c.Callers) == 0 || c.Callers[0] != c.Location {
				t.Errorf("%+v", c)
			}
			if len(c.Packet) >= 28 && c.Packet[23] == 10 {
				rare++
			}
		}
		if rare > 0 && epochs > 5 {
			stop()
		}
	}); err != nil {
		t.Fatal(err)
	}
	<-over
	processors, _ := ebpf.PossibleCPU()
	for e, copies := range per {
		if copies > 2*perSecond/10+processors { // those behind the reading of the epoch before, too
			t.Errorf("%d copies in epoch %d", copies, e)
		}
	}
	if got := sum(named(t, w, number(t, n))); got < 1000 {
		t.Errorf("%d are counted", got)
	}
}

// TestBlind counts on a kernel that does not describe its types, as far as it can.
func TestBlind(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Probed("a raw tracepoint", func() error {
		w, err := WatchBlind()
		if err == nil {
			w.Close()
		}
		return err
	}))
	n := testnet.New(t).Namespace("host")
	w, err := WatchBlind()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	send(t, n, "127.0.0.1:10", 700)
	const place = "__udp4_lib_rcv NO_SOCKET"
	for end := time.Now().Add(enough); named(t, w, 0)[place] < 300; time.Sleep(time.Millisecond) { // an ICMP error keeps every other from being sent
		if time.Now().After(end) {
			t.Fatalf("%v", named(t, w, 0))
		}
	}
	if !slices.Contains(w.Reasons(), "NETFILTER_DROP") || !w.Blind() {
		t.Errorf("reasons %q", w.Reasons())
	}
}

func FuzzFormatReasons(f *testing.F) {
	f.Add("\tfield:enum skb_drop_reason reason;\toffset:28;\n\nprint fmt: \"%s\", __print_symbolic(REC->reason, { 2, \"NOT_SPECIFIED\" }, { 3, \"NO_SOCKET\" })")
	f.Fuzz(func(_ *testing.T, text string) { formatReasons(text) })
}

func FuzzCopyOf(f *testing.F) {
	f.Add(make([]byte, copySize), int64(1))
	f.Add([]byte{1}, int64(-1))
	f.Fuzz(func(t *testing.T, b []byte, clock int64) {
		if c, is := copyOf(b, time.Now(), time.Duration(clock)); is && (len(c.Packet) > packetBytes || len(c.Callers) > stackBytes/8) {
			t.Errorf("%+v", c)
		}
	})
}

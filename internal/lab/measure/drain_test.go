package measure

import (
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/testnet"
)

// What a host has to say to itself, or to its neighbours, is not part of a traffic: one
// such packet beside an injection was taken for a survivor.
func TestDrainCountsTheTrafficAlone(t *testing.T) {
	Require(t)
	net := testnet.New(t)
	l, err := NewLab(net, "stray")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Nft(`table inet t { counter seen { }; chain c { type filter hook input priority 0; iif lo counter name seen; }; }`); err != nil {
		t.Fatal(err)
	}
	for _, through := range []bool{false, true} {
		for _, f := range []addrset.Family{addrset.IPv4, addrset.IPv6} {
			traffic := UDP(ByAddress(addrset.All(), f, batch, 1), Target(f, 9))
			traffic.Through = through
			s, err := Load(traffic)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			before, err := l.drain.survived()
			if err != nil {
				t.Fatal(err)
			}
			l.Namespace.TryUDP(testnet.UDPTry{To: netip.AddrPortFrom(Target(f, 9).Addr(), 9), Patience: time.Millisecond})
			run, err := l.Inject(t.Context(), s, batch)
			if err != nil {
				t.Fatal(err)
			}
			after, err := l.drain.survived()
			if err != nil {
				t.Fatal(err)
			}
			if after-before != uint64(run.Packets) {
				t.Errorf("IPv%d, through %v: %d packets were counted, want %d", f, through, after-before, run.Packets)
			}
		}
	}
	if out := l.Namespace.MustRun("nft", "list", "counter", "inet", "t", "seen"); !strings.Contains(out, "packets 4 ") {
		t.Errorf("want four packets that are no part of the traffic:\n%s", out)
	}
}

// A signal ends a test run early, and what asks for it begins it again.
func TestSignalsAddNoPackets(t *testing.T) {
	testnet.Require(t, LiveFrames)
	l, err := NewLab(testnet.New(t), "signals")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Load(UDP(ByAddress(addrset.All(), addrset.IPv4, batch, 1), Target(addrset.IPv4, 9)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, done, ended := unix.Gettid(), make(chan struct{}), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				ended <- n
				return
			default:
				_ = unix.Tgkill(unix.Getpid(), thread, unix.SIGURG) // which the runtime of Go sends too
			}
		}
	}()
	const packets = 1 << 14
	run, err := l.Inject(t.Context(), s, packets)
	close(done)
	if sent := <-ended; sent == 0 {
		t.Error("no signal was sent")
	}
	if err != nil || run.Packets != packets {
		t.Errorf("%d packets were sent, want %d: %v", run.Packets, packets, err)
	}
}

package nftrace_test

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/nftrace"
)

const table = "sluice_trace"

func TestMain(m *testing.M) {
	if os.Getenv("SLUICE_TEST_MARKS") == "" {
		m.Run()
		return
	}
	// A process that marks packets until it is killed.
	said := "marked"
	if _, err := nftrace.Mark(table, unix.NFPROTO_INET, 100); err != nil {
		said = err.Error()
	}
	_, _ = os.Stdout.WriteString(said)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

var canMark = testnet.Probed("tables that go with their process (Linux 5.12)", func() (err error) {
	return testnet.Within("nftrace-probe", func(n *testnet.Net) error {
		return n.Namespace("probe").Do(func() error {
			m, err := nftrace.Mark(table, unix.NFPROTO_INET, 100)
			if err == nil {
				err = m.Close()
			}
			return err
		})
	})
})

func mark(t *testing.T, n *testnet.Namespace, family uint8, rate uint64) *nftrace.Marking {
	t.Helper()
	var m *nftrace.Marking
	if err := n.Do(func() (err error) { m, err = nftrace.Mark(table, family, rate); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func ruleset(n *testnet.Namespace) string { return n.MustRun("nft", "-n", "list", "ruleset") }

// The table says what it is meant to say, belongs to whoever made it, and goes with him.
func TestMark(t *testing.T) {
	testnet.Require(t, testnet.Nftables, canMark)
	t.Parallel()
	n := testnet.New(t).Unnamed("host")
	n.Nft("table ip other { chain c { type filter hook prerouting priority -2147483648; }\n }")
	others := ruleset(n)
	m := mark(t, n, unix.NFPROTO_IPV4, 100)
	got := ruleset(n)
	for _, want := range []string{
		"type filter hook prerouting priority -2147483648; policy accept;",
		"type filter hook output priority -2147483648; policy accept;",
		"meta nfproto 2 limit rate 100/second meta nftrace set 1",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nis missing in\n%s", want, got)
		}
	}
	if err := n.Do(func() error { _, err := nftrace.Mark(table, unix.NFPROTO_INET, 1); return err }); !errors.Is(err, nftrace.ErrMarked) {
		t.Errorf("a second time: %v", err)
	}
	if out, err := n.Run("nft", "delete", "table", "inet", table); err == nil {
		t.Errorf("another process deleted the table: %s", out)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if got := ruleset(n); got != others {
		t.Errorf("closed, it leaves %s", got)
	}
}

// A process that is killed leaves no table.
func TestKilled(t *testing.T) {
	testnet.Require(t, testnet.Nftables, canMark)
	t.Parallel()
	n := testnet.New(t).Unnamed("host")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SLUICE_TEST_MARKS=1")
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 6)
	if _, err := io.ReadFull(output, said); err != nil || string(said) != "marked" {
		t.Fatalf("%s: %v", said, err)
	}
	if got := ruleset(n); !strings.Contains(got, table) {
		t.Fatalf("nothing is marked: %s", got)
	}
	n.MustRun("nft", "flush", "ruleset")
	if got := ruleset(n); !strings.Contains(got, table) {
		t.Errorf("another tool's flush took the table: %s", got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := ruleset(n); got != "" {
		t.Errorf("killed, it leaves %s", got)
	}
}

// Of a flood no more packets are followed than was asked for.
func TestRate(t *testing.T) {
	testnet.Require(t, testnet.Nftables, canMark)
	t.Parallel()
	net := testnet.New(t)
	client, host := net.Unnamed("client"), net.Unnamed("host")
	port, _ := net.Join(testnet.End{In: client, Device: "eth0", Addresses: []string{"192.0.2.2/24"}}, testnet.End{In: host, Device: "wan0", Addresses: []string{"192.0.2.1/24"}})
	host.Nft("table ip other { chain c { type filter hook prerouting priority -300; counter drop; }\n }")
	var listener *nftrace.Listener
	if err := host.Do(func() (err error) { listener, err = nftrace.Listen(); return err }); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	packets := func(rate uint64) int {
		m := mark(t, host, unix.NFPROTO_INET, rate)
		packet := testnet.UDP(netip.MustParseAddrPort("192.0.2.2:9"), netip.MustParseAddrPort("192.0.2.1:9"))
		for range 500 {
			if err := port.Send(packet); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		n := 0
		for {
			events, err := listener.Receive(100 * time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			if len(events) == 0 {
				return n
			}
			for _, e := range events {
				if e.Table == "other" && e.Verdict == nftrace.Drop && e.Type == nftrace.Rule {
					n++
				}
			}
		}
	}
	// One a second: the burst, and what a slow machine adds.
	if n := packets(1); n == 0 || n > 100 {
		t.Errorf("of 500 packets %d were followed, at 1 a second", n)
	}
	if n := packets(10_000_000); n < 400 {
		t.Errorf("of 500 packets %d were followed, at 10,000,000 a second", n)
	}
}

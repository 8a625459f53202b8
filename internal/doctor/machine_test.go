package doctor_test

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/kernels"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/sysctl"
)

// TestMachineIllnesses are those of TestIllnesses that take settings of the whole machine, or
// more of a kernel than many have: of a machine of the kernel lab alone (make kernels).
func TestMachineIllnesses(t *testing.T) {
	if !kernels.Inside() {
		t.Skip("it sets what is the whole machine's: the kernel lab plays it")
	}
	// set writes a setting, and brings it back behind the host's.
	set := func(b *broken, name, value string) {
		b.t.Helper()
		before, err := sysctl.Read(name)
		if err == nil {
			err = sysctl.Write(name, value)
		}
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() {
			if err := sysctl.Write(name, before); err != nil {
				b.t.Error(err)
			}
		})
	}
	// Entries that live half a minute each: some 66 begin in a second.
	asked := flows(2000, 100)
	for i := range asked {
		asked[i].Protocol, asked[i].Answered, asked[i].Seconds = unix.IPPROTO_UDP, false, 30
	}
	for _, test := range []illness{
		{
			"neighbours",
			func(b *broken) { set(b, "net.ipv4.neigh.default.gc_thresh3", "4"); b.asksAll() },
			func(b *broken) { b.asksAll() },
		},
		{
			"table-full",
			func(b *broken) { set(b, "net.netfilter.nf_conntrack_max", "100"); b.tracked(flows(99, 99)...) },
			func(b *broken) { b.tracked(flows(99, 99)...) },
		},
		{
			"table-size",
			func(b *broken) { set(b, "net.netfilter.nf_conntrack_max", "8000"); b.tracked(asked...) },
			func(b *broken) { b.tracked(asked...) },
		},
		{
			"tcp-memory",
			func(b *broken) { set(b, "net.ipv4.tcp_max_orphans", "1"); b.abandons(20) },
			func(b *broken) { b.abandons(20) },
		},
		{
			"no-flowtable",
			func(b *broken) { b.forwarded("ct state established,related accept; udp dport 53 accept;") },
			func(b *broken) {
				b.forwarded("ct state established,related accept; udp dport 53 accept;")
				b.host.Nft("table inet fast { flowtable f { hook ingress priority 0; devices = { eth0 }; }; }")
			},
		},
	} {
		t.Run(test.check, func(t *testing.T) { test.inTurn(t) })
	}
}

// asksAll has the host look for many neighbours that are not there, over and over.
func (b *broken) asksAll() {
	b.t.Helper()
	if err := b.host.Do(func() error {
		conn, err := net.ListenPacket("udp4", "192.0.2.1:0")
		if err != nil {
			return err
		}
		b.t.Cleanup(func() { _ = conn.Close() })
		i := 0
		stop := testnet.Flood(20, 10*time.Millisecond, func() error {
			i++
			_, _ = conn.WriteTo([]byte("x"), &net.UDPAddr{IP: net.IPv4(192, 0, 2, byte(10+i%200)), Port: 9}) // it may be told that there is no room
			return nil
		})
		b.t.Cleanup(func() { _, _ = stop() })
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
}

// abandons has a program of the host close connections at every turn, with data for who
// does not read it.
func (b *broken) abandons(n int) {
	b.t.Helper()
	listener, err := b.client.Listen("192.0.2.2:80")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = listener.Close() })
	var open []net.Conn
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open = append(open, conn)
		}
	}()
	stop := testnet.Flood(n, 300*time.Millisecond, func() error {
		conn, err := b.host.Dial(b.t.Context(), "tcp", "192.0.2.2:80")
		if err != nil {
			return nil //nolint:nilerr // the test ends
		}
		_ = conn.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		for err == nil {
			_, err = conn.Write(make([]byte, 1<<20))
		}
		return conn.Close()
	})
	b.t.Cleanup(func() { _, _ = stop() })
}

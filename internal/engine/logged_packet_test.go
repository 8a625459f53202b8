package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"sluice/internal/base/packet"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/nflog"
)

var (
	v4 = layers.IPv4{Version: 4, TTL: 64, SrcIP: net.IP{192, 0, 2, 7}, DstIP: net.IP{198, 51, 100, 1}}
	v6 = layers.IPv6{Version: 6, HopLimit: 64, SrcIP: net.ParseIP("2001:db8::7"), DstIP: net.ParseIP("2001:db8::1")}
)

func with4(change func(*layers.IPv4)) *layers.IPv4 {
	h := v4
	change(&h)
	return &h
}

func with6(next layers.IPProtocol) *layers.IPv6 {
	h := v6
	h.NextHeader = next
	return &h
}

// TestLoggedPackets reads headers that a library has written, whole and cut off everywhere.
func TestLoggedPackets(t *testing.T) {
	for want, parts := range map[string][]gopacket.SerializableLayer{
		"tcp 192.0.2.7 5000 198.51.100.1 22 syn,ack  40": {with4(func(h *layers.IPv4) { h.Protocol = layers.IPProtocolTCP }), &layers.TCP{SrcPort: 5000, DstPort: 22, SYN: true, ACK: true}},
		"udp 192.0.2.7 5000 198.51.100.1 53   32": {with4(func(h *layers.IPv4) {
			h.Protocol = layers.IPProtocolUDP
			h.Options = []layers.IPv4Option{{OptionType: 1}}
		}), &layers.UDP{SrcPort: 5000, DstPort: 53}},
		"udp 192.0.2.7 0 198.51.100.1 0   28":          {with4(func(h *layers.IPv4) { h.Protocol, h.FragOffset = layers.IPProtocolUDP, 100 }), &layers.UDP{SrcPort: 5000, DstPort: 53}},
		"icmp 192.0.2.7 0 198.51.100.1 0  3/1 28":      {with4(func(h *layers.IPv4) { h.Protocol = layers.IPProtocolICMPv4 }), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 1)}},
		"gre 192.0.2.7 0 198.51.100.1 0   24":          {with4(func(h *layers.IPv4) { h.Protocol = layers.IPProtocolGRE }), gopacket.Payload{0, 0, 0, 0}},
		"udp 2001:db8::7 5000 2001:db8::1 53   48":     {with6(layers.IPProtocolUDP), &layers.UDP{SrcPort: 5000, DstPort: 53}},
		"icmpv6 2001:db8::7 0 2001:db8::1 0  128/0 44": {with6(layers.IPProtocolICMPv6), &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)}},
		"udp 2001:db8::7 5000 2001:db8::1 53   64":     {with6(layers.IPProtocolIPv6HopByHop), gopacket.Payload{60, 0, 1, 4, 0, 0, 0, 0}, gopacket.Payload{17, 0, 1, 4, 0, 0, 0, 0}, &layers.UDP{SrcPort: 5000, DstPort: 53}},
		"udp 2001:db8::7 5000 2001:db8::1 53   56":     {with6(layers.IPProtocolIPv6Fragment), gopacket.Payload{17, 0, 0, 1, 0, 0, 0, 1}, &layers.UDP{SrcPort: 5000, DstPort: 53}},
		"udp 2001:db8::7 0 2001:db8::1 0   56":         {with6(layers.IPProtocolIPv6Fragment), gopacket.Payload{17, 0, 1, 1, 0, 0, 0, 1}, &layers.UDP{SrcPort: 5000, DstPort: 53}},
		"udp 2001:db8::7 5000 2001:db8::1 53   72":     {with6(layers.IPProtocolAH), gopacket.Payload{17, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, &layers.UDP{SrcPort: 5000, DstPort: 53}},
	} {
		data := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(data, gopacket.SerializeOptions{FixLengths: true}, parts...); err != nil {
			t.Fatal(err)
		}
		family := uint16(unix.ETH_P_IP)
		if data.Bytes()[0]>>4 == 6 {
			family = unix.ETH_P_IPV6
		}
		var got Logged
		got.decode(family, data.Bytes())
		if text := textOf(got); text != want {
			t.Errorf("%s, want %s", text, want)
		}
		for n := range data.Bytes() {
			var cut Logged
			cut.decode(family, data.Bytes()[:n])
			if cut.Source.IsValid() && (cut.Source != got.Source || cut.Port != 0 && cut.Port != got.Port) {
				t.Errorf("%s cut off at %d: %s", want, n, textOf(cut))
			}
		}
		for _, other := range []uint16{0, unix.ETH_P_8021Q, unix.ETH_P_PPP_SES, unix.ETH_P_ARP, 60} {
			var of Logged
			if of.decode(other, data.Bytes()); textOf(of) != textOf(Logged{}) {
				t.Errorf("%s, of a frame that is not IP (%#x): %s", want, other, textOf(of))
			}
		}
	}
}

func textOf(l Logged) string {
	return fmt.Sprint(l.Protocol, " ", l.Source, " ", l.SourcePort, " ", l.Destination, " ", l.Port, " ", l.Flags, " ", l.ICMP, " ", l.Bytes)
}

// FuzzLoggedPacket reads what nobody sends.
func FuzzLoggedPacket(f *testing.F) {
	f.Add(uint16(unix.ETH_P_IP), []byte{0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, 7, 198, 51, 100, 1, 0, 80})
	f.Add(uint16(unix.ETH_P_IPV6), append([]byte{0x60, 0, 0, 0, 0, 8, 51, 64}, make([]byte, 40)...))
	f.Fuzz(func(t *testing.T, family uint16, data []byte) {
		l := read(nflog.Packet{Family: family, Payload: data, Prefix: string(data[:min(len(data), 60)]), In: string(data[:min(len(data), 15)])})
		_, _ = l.Question()
		kept, err := json.Marshal(l.short())
		if err != nil || bytes.ContainsAny(kept, "\n\r\x00\x1b") {
			t.Fatalf("%q %v", kept, err)
		}
		var back Logged
		if err := json.Unmarshal(kept, &back); err != nil || back.Source != l.Source || back.Port != l.Port || back.Protocol != l.Protocol {
			t.Errorf("%s is %+v: %v", kept, back, err)
		}
	})
}

// TestLoggedOfKernel sends packets of every protocol, cut at every place that matters, and
// reads what the kernel logs of them.
func TestLoggedOfKernel(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Nftables)
	host := testnet.New(t).Unnamed("host")
	if _, err := host.Run("ip", "link", "set", "lo", "up"); err != nil {
		t.Fatal(err)
	}
	if _, err := host.RunContext(t.Context(), "table inet t { chain c { type filter hook output priority 0; ip saddr 127.0.0.9 log prefix \"output_x \" group 5171 snaplen 128 drop\n}\n}\n", "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	lengths := []int{0, 1, 2, 3, 4, 7, 8, 13, 14, 20, 200}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	listens, ended := make(chan struct{}), make(chan error, 1)
	seen := make(chan Logged, 256*len(lengths))
	go func() {
		ended <- host.Do(func() error {
			return (&Host{}).logged(ctx, func() { close(listens) }, func(p nflog.Packet) { seen <- read(p) })
		})
	}()
	select {
	case <-listens:
	case err := <-ended:
		t.Fatal(err)
	}
	if err := host.Do(func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		for protocol := range 256 {
			for _, n := range lengths {
				data := append([]byte{0x45, 0, 0, 0, 0, 1, 0, 0, 64, byte(protocol), 0, 0, 127, 0, 0, 9, 127, 0, 0, 1}, bytes.Repeat([]byte{255}, n)...)
				if err := unix.Sendto(s, data, 0, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil && !errors.Is(err, unix.EPERM) {
					return fmt.Errorf("protocol %d, %d bytes: %w", protocol, n, err)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for protocol := range 256 {
		for _, n := range lengths {
			select {
			case l := <-seen:
				if l.Protocol != packet.ProtocolName(uint8(protocol)) || l.Source.String() != "127.0.0.9" || l.Bytes != 20+n || l.ID != "output_x" || l.Hook != "output" || l.Lost != 0 || n < 4 && l.Port != 0 {
					t.Fatalf("protocol %d, %d bytes: %+v", protocol, n, l)
				}
			case <-time.After(time.Minute):
				t.Fatalf("protocol %d, %d bytes are not seen", protocol, n)
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What was logged can be asked about, as much of it as there is.
func TestLoggedQuestion(t *testing.T) {
	from, to := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("203.0.113.5")
	for _, c := range []struct {
		of   Logged
		want string
	}{
		{Logged{Hook: "input", Source: from, Destination: to, Protocol: "tcp", SourcePort: 5, Port: 22, Flags: "syn", In: "eth0"}, "{tcp 192.0.2.7 203.0.113.5 5 22 eth0   syn  input  }"},
		{Logged{Hook: "prerouting", Source: from, Destination: to, Protocol: "tcp", Port: 22, In: "#7"}, "{tcp 192.0.2.7 203.0.113.5  22    none    }"},
		{Logged{Hook: "output", Source: from, Destination: to, Protocol: "icmp", ICMP: "8/0", Out: "eth0"}, "{icmp 192.0.2.7 203.0.113.5    eth0 8   output  }"},
		{Logged{Hook: "forward", Source: from, Destination: to, Protocol: "proto/136", SourcePort: 5, Port: 22}, "{proto/136 192.0.2.7 203.0.113.5        forward  }"},
		{Logged{Hook: "input", Source: from, Destination: to, Protocol: "udp"}, ErrNoPorts.Error()},
		{Logged{Hook: "input"}, "its addresses are not known: it was cut off"},
	} {
		q, err := c.of.Question()
		got := fmt.Sprint(q)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: %s, want %s", c.of, got, c.want)
		}
	}
}

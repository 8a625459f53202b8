package packet_test

import (
	"testing"

	"sluice/internal/base/packet"
)

func TestTCPFlags(t *testing.T) {
	for text, want := range map[string]int{
		"S": packet.SYN, "SA": packet.SYN | packet.ACK, "sa": packet.SYN | packet.ACK, "syn,ack": packet.SYN | packet.ACK, "ACK": packet.ACK,
		"none": 0, "FPU": packet.FIN | packet.PSH | packet.URG, "rst": packet.RST, "C": 0x80, "E": 0x40,
		"": -1, "X": -1, "syn ack": -1, "syn,": -1, "S,A": -1,
	} {
		got, ok := packet.ParseFlags(text)
		if ok != (want >= 0) || ok && int(got) != want {
			t.Errorf("%q is %#x, %t, want %#x", text, got, ok, want)
		}
	}
}

func FuzzTCPFlags(f *testing.F) {
	for _, text := range []string{"S", "syn,ack", "none", "SFRPAUEC", "", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		flags, ok := packet.ParseFlags(text)
		if !ok {
			return
		}
		if again, ok := packet.ParseFlags(packet.FlagsText(flags)); !ok || again != flags {
			t.Errorf("%q is %#x, which is written as %q and read as %#x", text, flags, packet.FlagsText(flags), again)
		}
	})
}

func TestProtocols(t *testing.T) {
	for n := range 256 {
		n := uint8(n)
		port, transport := packet.PortProtocolName(n), packet.TransportName(n)
		ports := n == packet.TCP || n == packet.UDP || n == packet.SCTP
		if (port != "") != ports || (transport != "") != (ports || n == packet.ICMP || n == packet.ICMPv6) {
			t.Errorf("%d is %q and %q", n, port, transport)
		}
		name := packet.ProtocolName(n)
		if back, known := packet.ProtocolNumber(name); known && back != n || transport != "" && transport != name {
			t.Errorf("%d is %q, which is %d", n, name, back)
		}
		if back, known := packet.PortProtocol(name); known != ports || known && back != n || !known && back != 0 {
			t.Errorf("%d is %q, which is %d, %t", n, name, back, known)
		}
	}
}

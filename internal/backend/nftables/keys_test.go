package nftables

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
)

// TestKeys: tuples become the kernel's keys and come back.
func TestKeys(t *testing.T) {
	mark := binary.NativeEndian.AppendUint32(nil, 7)
	cases := []struct {
		types      string
		interval   bool
		tuple      string
		first, end string // hexadecimal digits; the end where it is another one
	}{
		{"ipv4_addr", false, "192.0.2.1", "c0000201", ""},
		{"ipv4_addr", true, "192.0.2.0/24", "c0000200", "c00002ff"},
		{"ipv4_addr", true, "0.0.0.0/0", "00000000", "ffffffff"},
		{"ipv6_addr", true, "2001:db8::5-2001:db8::9", "20010db8000000000000000000000005", "20010db8000000000000000000000009"},
		{"inet_proto", false, "6", "06", ""},
		{"inet_service", true, "80-90", "0050", "005a"},
		{"mark", false, "7", hex.EncodeToString(mark), ""},
		{"mark", true, "7", "00000007", ""},
		{"ifname", false, "eth0", "65746830000000000000000000000000", ""},
		{"ipv4_addr . inet_proto . inet_service . ifname", false, "192.0.2.1 . 17 . 443 . wg0", "c0000201" + "11000000" + "01bb0000" + "77673000000000000000000000000000", ""},
		{"ipv6_addr . inet_service", true, "2001:db8::/32 . 1-9", "20010db8000000000000000000000000" + "00010000", "20010db8ffffffffffffffffffffffff" + "00090000"},
		{"@nh,96,16", false, "49152", "c000", ""},
		{"@nh,192,48 . inet_service", true, "35287371776-35287371777 . 5", "0008374a9000" + "0000" + "00050000", "0008374a9001" + "0000" + "00050000"},
	}
	for _, c := range cases {
		s := &Set{Name: "s", Types: strings.Split(c.types, " . "), Interval: c.interval}
		from, to, err := s.appendKey(nil, nil, c.tuple)
		if err != nil {
			t.Errorf("%s %q: %v", c.types, c.tuple, err)
			continue
		}
		if c.end == "" {
			c.end = c.first
		}
		if hex.EncodeToString(from) != c.first || hex.EncodeToString(to) != c.end {
			t.Errorf("%s %q: %x to %x", c.types, c.tuple, from, to)
		}
		if back, err := s.tuple(from, to); err != nil || back != c.tuple {
			t.Errorf("%s: %q came back as %q, %v", c.types, c.tuple, back, err)
		}
	}
}

// TestNoKeys: what is not a key of the set is refused.
func TestNoKeys(t *testing.T) {
	for _, c := range [][2]string{
		{"ipv4_addr", "2001:db8::1"},
		{"ipv4_addr", "192.0.2.1 . 80"},
		{"ipv4_addr . inet_service", "192.0.2.1"},
		{"ipv4_addr . inet_service", "192.0.2.1 . 80 . 90"},
		{"ipv4_addr . inet_service", "192.0.2.1 . 65536"},
		{"inet_proto", "256"},
		{"inet_service", "http"},
		{"ifname", "sixteen-letters-"},
		{"ether_addr", "02:00:00:00:00:01"},
		{"@nh,96", "1"},
	} {
		s := &Set{Name: "s", Types: strings.Split(c[0], " . ")}
		if from, _, err := s.appendKey(nil, nil, c[1]); err == nil {
			t.Errorf("%s %q became %x", c[0], c[1], from)
		}
		if text, err := s.tuple([]byte{1, 2, 3}, nil); err == nil && c[0] != "inet_proto" {
			t.Errorf("%s: three bytes became %q", c[0], text)
		}
	}
}

// FuzzTuple: what becomes a key comes back as a text that becomes the same key.
func FuzzTuple(f *testing.F) {
	f.Add("ipv4_addr . inet_proto . inet_service . ifname", false, "192.0.2.1 . 17 . 443 . wg0")
	f.Add("ipv6_addr . mark", true, "2001:db8::/32 . 0-4294967295")
	f.Add("@th,0,16", false, "0x50")
	f.Fuzz(func(t *testing.T, types string, interval bool, tuple string) {
		s := &Set{Name: "s", Types: strings.Split(types, " . "), Interval: interval}
		from, to, err := s.appendKey(nil, nil, tuple)
		if err != nil || strings.ContainsAny(tuple, "\x00") {
			return
		}
		text, err := s.tuple(from, to)
		if err != nil {
			t.Fatalf("%q %q became %x to %x, and that %v", types, tuple, from, to, err)
		}
		from2, to2, err := s.appendKey(nil, nil, text)
		if err != nil || !bytes.Equal(from, from2) || !bytes.Equal(to, to2) {
			t.Fatalf("%q %q became %q, and that %x to %x, %v", types, tuple, text, from2, to2, err)
		}
	})
}

package geo

import (
	"crypto/sha256"
	"net/netip"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
)

// Random overlapping rows in a universe of 32 addresses at either end of either
// family, against the rule asked address by address: the narrowest row holds,
// the later of two of one size.
func TestNarrowestRowHolds(t *testing.T) {
	r := testseed.Rand(t)
	codes := []string{"NO", "SE", "US"}
	for range testseed.Rounds(60, 200) {
		for _, first := range []string{"0.0.0.0", "255.255.255.224", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffe0", "2001:db8::ffff:ffff:ffff:fff0"} {
			base := addrset.NumberOf(netip.MustParseAddr(first))
			is4 := netip.MustParseAddr(first).Is4()
			var table Table
			var want [32]string
			var size [32]int
			for range 1 + r.IntN(8) {
				from := r.IntN(32)
				to := from + r.IntN(32-from)
				code := codes[r.IntN(len(codes))]
				if err := table.Add(base.Add(num{Lo: uint64(from)}).Addr(is4), base.Add(num{Lo: uint64(to)}).Addr(is4), code); err != nil {
					t.Fatal(err)
				}
				for i := from; i <= to; i++ {
					if want[i] == "" || to-from <= size[i] {
						want[i], size[i] = code, to-from
					}
				}
			}
			data, err := table.Encode(Origin{})
			if err != nil {
				t.Fatal(err)
			}
			d, err := Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			for i, code := range want {
				a := base.Add(num{Lo: uint64(i)}).Addr(is4)
				c, ok := d.Lookup(a)
				if c.Code != code || ok != (code != "") {
					t.Fatalf("%s is in %q, want %q; rows %v %v", a, c.Code, code, table.v4, table.v6)
				}
				if ok && !mustSet(t, d.Countries, code).Contains(a) {
					t.Fatalf("%s is not in the set of %s", a, code)
				}
			}
			again, err := table.Encode(Origin{})
			if err != nil || string(again) != string(data) {
				t.Fatalf("encoding twice differs: %v", err)
			}
		}
	}
}

func TestAddRefuses(t *testing.T) {
	a4, a6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	var table Table
	for _, c := range []struct {
		from, to netip.Addr
		code     string
	}{{a4, a6, "NO"}, {a4, a4.Prev(), "NO"}, {a4, a4, "no"}, {a4, a4, ""}, {a4, a4, "NOR"}, {a6.WithZone("eth0"), a6, "NO"}} {
		if err := table.Add(c.from, c.to, c.code); err == nil {
			t.Errorf("%v was added", c)
		}
	}
	if _, err := table.Encode(Origin{}); err == nil {
		t.Error("an empty table was encoded")
	}
}

func TestNumbers(t *testing.T) {
	r := testseed.Rand(t)
	all := []num{{}, {Lo: 1}, {Hi: 1}, addrset.LastNumber(false), {Hi: 1 << 63}, {Lo: 1 << 63}, {Hi: ^uint64(0)}}
	for range 10000 {
		all = append(all, shl(shr(num{Hi: r.Uint64(), Lo: r.Uint64()}, r.IntN(128)), r.IntN(128)))
	}
	for _, n := range all {
		b := appendNum(nil, n)
		got, rest, err := takeNum(append(b, 0xaa))
		if err != nil || got != n || len(rest) != 1 {
			t.Fatalf("%x comes back as %x, %v", n, got, err)
		}
		for i := range b {
			if _, _, err := takeNum(b[:i]); err == nil {
				t.Fatalf("%x cut to %d bytes was taken", n, i)
			}
		}
	}
}

// FuzzDecode feeds the decoder behind the checksum.
func FuzzDecode(f *testing.F) {
	var table Table
	for i, s := range []string{"192.0.2.0", "198.51.100.0", "2001:db8::", "2001:db8:1::"} {
		a := netip.MustParseAddr(s)
		if err := table.Add(a, a, []string{"NO", "SE"}[i%2]); err != nil {
			f.Fatal(err)
		}
	}
	v4, _ := flatten(table.v4)
	v6, _ := flatten(table.v6)
	for i, rows := range [][]row{v4, v6} {
		c := encodeColumns(rows, []uint16{0, 1})
		f.Add(c[0], c[1], c[2], len(rows), i == 0)
	}
	f.Fuzz(func(t *testing.T, a, b, c []byte, n int, is4 bool) {
		next, first := num{}, true
		_ = eachRow([3][]byte{a, b, c}, n, 2, is4, func(from, to num, country int) bool {
			if to.Less(from) || !first && !next.Less(from.Next()) && from != next || addrset.LastNumber(is4).Less(to) || country > 1 {
				t.Fatalf("row %v-%v of %d after %v", from, to, country, next)
			}
			next, first = to.Next(), false
			return true
		})
	})
}

// FuzzDecodeFile feeds headers and sections whose checksum is right.
func FuzzDecodeFile(f *testing.F) {
	var table Table
	if err := table.Add(netip.MustParseAddr("192.0.2.0"), netip.MustParseAddr("192.0.2.9"), "NO"); err != nil {
		f.Fatal(err)
	}
	data, err := table.Encode(Origin{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:len(data)-sha256.Size])
	f.Add([]byte(magic + "\x02\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		sum := sha256.Sum256(data)
		d, err := Decode(append(data[:len(data):len(data)], sum[:]...))
		if err != nil {
			return
		}
		d.Info()
		all, err := d.All()
		if err != nil {
			return
		}
		for r := range all.Each() {
			if _, ok := d.Lookup(r.From); !ok {
				t.Fatalf("%s has no country and is in the set of all", r.From)
			}
		}
	})
}

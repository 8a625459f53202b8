package wire

import (
	"bytes"
	"net/netip"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
)

// longList is a list of so many prefixes, as blocklists have them, and the same with every
// hundredth another one.
func longList(t testing.TB, lines int) (from, to []byte) {
	random := testseed.Rand(t)
	draw := func() netip.Prefix {
		n := addrset.Number{Lo: uint64(random.Uint32())}
		switch random.IntN(10) {
		case 0: // of IPv6
			n = addrset.Number{Hi: 0x2000<<48 | random.Uint64N(1<<61)}
			return netip.PrefixFrom(n.Addr(false), 48).Masked()
		case 1, 2, 3:
			return netip.PrefixFrom(n.Addr(true), 24).Masked()
		}
		return netip.PrefixFrom(n.Addr(true), 32)
	}
	var before, after addrset.Builder
	for range lines {
		p := draw()
		before.AddPrefix(p)
		if random.IntN(100) == 0 {
			p = draw()
		}
		after.AddPrefix(p)
	}
	return before.Set().Lines(), after.Set().Lines()
}

// TestListPatch: of a list of 100,000 prefixes of which a hundredth changed, at most 8 KB go to
// a host.
func TestListPatch(t *testing.T) {
	t.Parallel()
	from, to := longList(t, 100_000)
	patch, err := ListPatch(from, to)
	if err != nil {
		t.Fatal(err)
	}
	general, err := Patch(from, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, for any text %d, instead of %d", len(patch), len(general), len(to))
	if len(patch) > 8_000 {
		t.Errorf("the patch has %d bytes", len(patch))
	}
	got, err := UnpatchList(patch, from, int64(len(to)))
	if err != nil || !bytes.Equal(got, to) {
		t.Error("the patch makes something else", err)
	}
	if _, err := UnpatchList(patch, from, int64(len(to)/2)); err == nil {
		t.Error("more is made than is asked for")
	}
	if got, err := UnpatchList(patch, to, MostBlob); err == nil && bytes.Equal(got, to) {
		t.Error("what it starts from counts anyway")
	}
}

func TestListPatchOfLists(t *testing.T) {
	t.Parallel()
	const list = "198.51.100.0/24\n203.0.113.7\n2001:db8::/32\n2001:db9::1\n"
	for _, c := range []struct{ from, to string }{
		{list, list},
		{list, "203.0.113.7\n"},
		{"203.0.113.7\n", list},
		{list, "0.0.0.0/0\n::/0\n"},
		{"0.0.0.0/0\n::/0\n", list},
		{"203.0.113.0\n", "203.0.113.0/24\n"},
		{"255.255.255.255\n", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff\n"},
		{"::\n", "::fffe/127\n"},
		{"::ffff:203.0.113.7\n", "203.0.113.7\n::ffff:203.0.113.7\n"},
	} {
		patch, err := ListPatch([]byte(c.from), []byte(c.to))
		if err != nil || patch == nil {
			t.Errorf("%q to %q: %v, %v", c.from, c.to, patch, err)
			continue
		}
		if got, err := UnpatchList(patch, []byte(c.from), 4096); err != nil || string(got) != c.to {
			t.Errorf("%q to %q: %q, %v", c.from, c.to, got, err)
		}
	}
	for _, text := range []string{
		"", "203.0.113.7", "203.0.113.7\n\n", "# a remark\n", "203.0.113.7\n203.0.113.7\n", "203.0.113.8\n203.0.113.7\n", "203.0.113.7/24\n", "203.0.113.7/32\n",
		"2001:DB8::1\n", "fe80::1%eth0\n", "2001:db8::1\n203.0.113.7\n",
	} {
		if patch, err := ListPatch([]byte(text), []byte(list)); patch != nil || err != nil {
			t.Errorf("%q is a list", text)
		}
	}
}

func FuzzUnpatchList(f *testing.F) {
	const list = "198.51.100.0/24\n203.0.113.7\n2001:db8::/32\n"
	patch, err := ListPatch([]byte(list), []byte("198.51.100.0/24\n203.0.113.9\n2001:db8::/32\n2001:db9::/48\n"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(patch, []byte(list))
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0xff, 0xff, 0xff, 0xff}, []byte(list))
	f.Fuzz(func(t *testing.T, patch, from []byte) {
		out, err := UnpatchList(patch, from, 4096)
		if err != nil {
			return
		}
		if _, is := listOf(out); len(out) > 4096 || !is && len(out) > 0 {
			t.Fatalf("%d bytes: %q", len(out), out)
		}
	})
}

// FuzzListPatch: what is made of two lists makes one of the other.
func FuzzListPatch(f *testing.F) {
	f.Add([]byte("198.51.100.0/24\n203.0.113.7\n2001:db8::/32\n"), []byte("203.0.113.9\n2001:db9::/48\n"))
	f.Fuzz(func(t *testing.T, from, to []byte) {
		patch, err := ListPatch(from, to)
		if err != nil {
			t.Fatal(err)
		}
		if patch == nil {
			return
		}
		if got, err := UnpatchList(patch, from, int64(len(to))); err != nil || !bytes.Equal(got, to) {
			t.Fatalf("%q to %q: %q, %v", from, to, got, err)
		}
	})
}

package addrset

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"sluice/internal/base/testseed"
)

// TestBinary: what was written is read, for random sets and the ends of both
// families.
func TestBinary(t *testing.T) {
	random := testseed.Rand(t)
	sets := []Set{{}, All(), Of(Range{netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("0.0.0.0")}, Range{netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("255.255.255.255")})}
	for range 50 {
		var b Builder
		for range random.IntN(200) {
			from, length := random.Uint32(), random.Uint32()>>random.IntN(32)
			to := from + length
			if to < from {
				to = 1<<32 - 1
			}
			b.AddRange(Range{key4(from).addr(), key4(to).addr()})
			low := key6{random.Uint64() >> random.IntN(64), random.Uint64()}
			high := low.fill(random.IntN(129))
			b.AddRange(Range{low.addr(), high.addr()})
		}
		sets = append(sets, b.Set())
	}
	for _, s := range sets {
		data, err := s.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var back Set
		if err := back.UnmarshalBinary(data); err != nil || !back.Equal(s) {
			t.Fatalf("%d bytes: %v, %d and %d ranges for %d and %d", len(data), err, back.Len4(), back.Len6(), s.Len4(), s.Len6())
		}
		for cut := range data {
			if err := back.UnmarshalBinary(data[:cut]); err == nil {
				t.Fatalf("the first %d of %d bytes are taken for a set", cut, len(data))
			}
		}
	}
}

// FuzzBinary: whatever is read is minimal, and written again gives the same set.
func FuzzBinary(f *testing.F) {
	for _, s := range []Set{{}, All(), FromPrefixes(netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32"))} {
		data, _ := s.MarshalBinary()
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var s, again Set
		if s.UnmarshalBinary(data) != nil {
			return
		}
		if !isMinimal(s.v4) || !isMinimal(s.v6) {
			t.Fatal("not minimal")
		}
		written, _ := s.MarshalBinary()
		if err := again.UnmarshalBinary(written); err != nil || !again.Equal(s) {
			t.Fatalf("written again it is another set: %v", err)
		}
	})
}

// TestWriteRanges against the addresses one by one.
func TestWriteRanges(t *testing.T) {
	r := testseed.Rand(t)
	for range 200 {
		s, _ := random(r)
		if r.IntN(20) == 0 {
			var b Builder
			for i := range uint32(5000) {
				b.Add4(i*3, i*3+i%2)
				b.Add6(uint64(i)*3, 1, uint64(i)*3, 2)
			}
			s = b.Set()
		}
		var want []byte
		for r := range s.Each() {
			want = append(append(want, r.From.AsSlice()...), r.To.AsSlice()...)
		}
		var got bytes.Buffer
		if err := s.WriteRanges(&got); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("%d bytes of {%v}, want %d: %v", got.Len(), s, len(want), err)
		}
	}
	broken := errors.New("broken")
	if err := Of(MustParseRange("192.0.2.1")).WriteRanges(failing{broken}); !errors.Is(err, broken) {
		t.Errorf("what cannot be written: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

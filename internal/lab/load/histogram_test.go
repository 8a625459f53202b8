package load

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"sluice/internal/base/testseed"
)

func addrs(texts ...string) (out []netip.Addr) {
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

// What is recorded bucket by bucket is what would be recorded one by one.
func TestCorrectedAgainstModel(t *testing.T) {
	random := testseed.Rand(t)
	for range 50 {
		span := int64(10 * time.Minute)
		raw, model := dense(span), dense(span)
		expected := time.Duration(1000 + random.Int64N(int64(50*time.Millisecond)))
		for range 1 + random.IntN(20) {
			v := random.Int64N(1 << (10 + random.IntN(25)))
			// The model records what the histogram knows of the value.
			_ = raw.RecordValue(v)
		}
		p := packed(raw)
		for value, count := range p.ForEachBucket {
			for v := value; v == value || v >= int64(expected); v -= int64(expected) {
				_ = model.RecordValues(v, count)
			}
		}
		if got := corrected(p, expected); !got.Equals(model) {
			t.Fatalf("expected interval %v: corrected %v, one by one %v", expected, PercentilesOf(got), PercentilesOf(model))
		}
	}
}

func TestBucketBottom(t *testing.T) {
	h := dense(int64(time.Hour))
	random := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		v := random.Int64N(1 << (1 + random.IntN(40)))
		bottom := bucketBottom(v)
		if bottom > v || !h.ValuesAreEquivalent(v, bottom) || bottom > 0 && h.ValuesAreEquivalent(v, bottom-1) {
			t.Fatalf("%d: the bucket does not begin at %d", v, bottom)
		}
	}
}

func TestRecordIsBounded(t *testing.T) {
	h := dense(int64(time.Minute))
	record(h, time.Hour)
	record(h, -1)
	if h.TotalCount() != 2 || h.Min() != 0 || !h.ValuesAreEquivalent(h.Max(), h.HighestTrackableValue()) {
		t.Errorf("got %d, %d to %d", h.TotalCount(), h.Min(), h.Max())
	}
}

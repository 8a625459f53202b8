package trust

import (
	"testing"
	"time"
)

func BenchmarkHostUpdate(b *testing.B) {
	f := newFleet(b, "example.net", 1)
	for range keepBundles {
		f.sign(start, time.Now().String())
	}
	h := f.host()
	var all []Metadata
	for i := range b.N {
		m, err := f.online.Refresh("", start.Add(time.Duration(i)*time.Second))
		ok(b, err)
		all = append(all, m)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i, m := range all {
		ok(b, h.Update(m, start.Add(time.Duration(i)*time.Second)))
	}
}

func BenchmarkHostUpdateSame(b *testing.B) {
	f := newFleet(b, "example.net", 1)
	m := f.sign(start, "one")
	h := f.host()
	ok(b, h.Update(m, start))
	for b.Loop() {
		ok(b, h.Update(m, start))
	}
}

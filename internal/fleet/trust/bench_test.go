package trust

import (
	"fmt"
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

// BenchmarkHostLive is what a batch of 50 bans costs a host before any of them is applied.
func BenchmarkHostLive(b *testing.B) {
	f := newFleet(b, "example.net", 1)
	m := f.sign(start, "one")
	h := f.host()
	ok(b, h.Update(m, start))
	const entries = 50
	var all [][]byte
	seq := int64(0)
	for range b.N {
		batch := Bans{After: seq, Now: start}
		for range entries {
			seq++
			what := fmt.Sprintf("203.%d.%d.%d", seq>>16&0xff, seq>>8&0xff, seq&0xff)
			batch.Entries = append(batch.Entries, Living{
				Seq: seq, ID: LivingID(LivingBan, what, "", ""), Kind: LivingBan, What: what, Reason: "tried 40 passwords",
				Who: "token:fail2ban", Made: start, Expires: start.Add(time.Hour),
			})
		}
		envelope, err := f.online.SignLive(KindBans, seq, batch)
		ok(b, err)
		all = append(all, envelope)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, envelope := range all {
		payload, seq, err := h.Live(KindBans, envelope)
		ok(b, err)
		_, err = ReadBans(payload, seq)
		ok(b, err)
	}
}

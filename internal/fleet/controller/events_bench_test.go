package controller

import (
	"encoding/hex"
	"fmt"
	"syscall"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
)

// BenchmarkEvents says how much of a processor more it takes that 50 streams of events are
// open, with those who read them, while 20 of 1,000 hosts change each second.
func BenchmarkEvents(b *testing.B) {
	f := newFleet(b, "example.net")
	var secret [32]byte
	hash, err := hex.DecodeString(trust.SecretHash(f.token(nil, 1000).Secret))
	ok(b, err)
	copy(secret[:], hash)
	for i := range 1000 {
		_, err := f.controller.Store.Enrol(b.Context(), store.Enrolment{Secret: secret, Host: fmt.Sprint("host-", i), Key: fmt.Sprintf("%064d", i)})
		ok(b, err)
	}
	ok(b, f.controller.refresh(b.Context()))
	change := func() (share float64) {
		used := func() time.Duration {
			var u syscall.Rusage
			ok(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
			return time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
		before, begun := used(), time.Now()
		for n := range 20 {
			f.controller.statuses.mutex.Lock()
			for i := range 10 {
				f.controller.statuses.get(fmt.Sprint("host-", i)).version = fmt.Sprint(b.N, n)
			}
			f.controller.statuses.mutex.Unlock()
			time.Sleep(eventEvery)
		}
		return 100 * float64(used()-before) / float64(time.Since(begun))
	}
	alone := change()
	var all []*reads
	for i := range 5 {
		token, _, err := f.access(f.client, fmt.Sprint("reader-", i), api.Viewer, "")
		ok(b, err)
		for range mostOfOne {
			s := f.events(f.elsewhere(token), "")
			f.until("it is open", func() bool { return len(s.all("reset")) == 1 })
			all = append(all, s)
		}
	}
	for b.Loop() {
		b.ReportMetric(change()-alone, "%more")
	}
	b.ReportMetric(float64(len(all[0].all("host"))), "events")
}

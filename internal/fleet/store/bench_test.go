package store

import (
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// benchEach runs a benchmark on a new fleet in either database, with so many hosts.
func benchEach(b *testing.B, hosts int, bench func(b *testing.B, s *Store, hosts []string)) {
	for name, database := range map[string]func(testing.TB) string{"sqlite": sqliteDatabase, "postgres": postgresDatabase} {
		b.Run(name, func(b *testing.B) {
			s := open(b, database(b))
			fleet(b, s)
			names := make([]string, hosts)
			for i := range names {
				names[i] = fmt.Sprintf("host-%05d", i)
			}
			// As Enrol writes them, which takes a transaction each.
			rows, err := list(names)
			if err == nil {
				_, err = s.writer.ExecContext(b.Context(), s.text(`insert into host (id, labels, labels_order, addresses, facts, version, level, protocol, enrolled, seen, revoked, revoked_why, token)
					select value, '{"role":"web","env":"prod"}', $2, '["203.0.113.5"]', '', '', 0, 0, 1, 0, 0, '', '' from NAMES($1) names`), rows, []byte{})
			}
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			bench(b, s, names)
		})
	}
}

// BenchmarkStatus is what 10,000 hosts say at once.
func BenchmarkStatus(b *testing.B) {
	benchEach(b, 10_000, func(b *testing.B, s *Store, hosts []string) {
		said := make([]Status, len(hosts))
		for n := 0; b.Loop(); n++ {
			for i, h := range hosts {
				said[i] = Status{Host: h, Bundle: int64(n), Revision: int64(n), Generation: strconv.Itoa(n), Mark: "3f2a", Proof: "proved", State: "proved", At: time.UnixMicro(int64(n + 1))}
			}
			if err := s.PutStatus(b.Context(), said); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(hosts)*b.N)/b.Elapsed().Seconds(), "rows/s")
	})
}

// BenchmarkChange is a change of desired state, with its revision and entry: by one caller,
// and by eight at the same time.
func BenchmarkChange(b *testing.B) {
	for _, callers := range []int{1, 8} {
		b.Run(strconv.Itoa(callers), func(b *testing.B) {
			benchEach(b, callers, func(b *testing.B, s *Store, hosts []string) {
				var next atomic.Int64
				b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
				change := func(host string, n int) {
					if err := s.SetLabels(b.Context(), operator, host, map[string]string{"n": strconv.Itoa(n)}, nil); err != nil {
						b.Error(err)
					}
				}
				if callers == 1 {
					for n := range b.N {
						change(hosts[0], n)
					}
				} else {
					b.RunParallel(func(p *testing.PB) {
						host := hosts[int(next.Add(1))%len(hosts)]
						for n := 0; p.Next(); n++ {
							change(host, n)
						}
					})
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
			})
		})
	}
}

// BenchmarkDesired has 10,000 hosts run another bundle, in one transaction.
func BenchmarkDesired(b *testing.B) {
	benchEach(b, 10_000, func(b *testing.B, s *Store, hosts []string) {
		published(b, s, 1, 2)
		desired := make([]Desired, len(hosts))
		for n := 0; b.Loop(); n++ {
			for i, h := range hosts {
				desired[i] = Desired{Host: h, Bundle: int64(1 + n%2)}
			}
			if err := s.SetDesired(b.Context(), operator, "bench", desired); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSnapshot reads the desired state of 10,000 hosts.
func BenchmarkSnapshot(b *testing.B) {
	benchEach(b, 10_000, func(b *testing.B, s *Store, _ []string) {
		for b.Loop() {
			if _, err := s.Snapshot(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

package engine

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"sluice/internal/engine/apply"
)

// BenchmarkLogKept asks 64 MiB of log for what is not in there.
func BenchmarkLogKept(b *testing.B) {
	h := &Host{Host: &apply.Host{Dir: b.TempDir()}}
	kept, err := h.OpenLog(64 << 20)
	if err != nil {
		b.Fatal(err)
	}
	defer kept.Close()
	l := Logged{
		Time: time.Now(), Generation: 7, ID: "input_63154b3fda", File: "/etc/sluice/policy.yaml", Line: 22, Rule: "default: drop", Hook: "input", In: "eth0",
		Source: netip.MustParseAddr("203.0.113.7"), Destination: netip.MustParseAddr("198.51.100.1"), Protocol: "tcp", SourcePort: 40000, Port: 3306, Flags: "syn", Bytes: 60, Country: "NO",
	}
	data, err := json.Marshal(l)
	if err != nil {
		b.Fatal(err)
	}
	n := 64 << 20 / (len(data) + 60)
	for range n {
		if _, err := kept.Append(data); err != nil {
			b.Fatal(err)
		}
		if kept.Full() {
			if err := kept.Flush(); err != nil {
				b.Fatal(err)
			}
		}
	}
	for name, q := range map[string]LogQuestion{
		"all":    {LogChoice: LogChoice{Line: "23"}},
		"source": {LogChoice: LogChoice{Source: "192.0.2.7"}},
		"recent": {Since: time.Now().Add(time.Hour)},
		"number": {Number: uint64(n - 5)}, //nolint:gosec // a count
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := h.LogKept(b.Context(), q, kept.Grown, func(Logged) {}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n), "packets")
		})
	}
}

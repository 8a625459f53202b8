package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/exposition"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/netns"
)

// manyLines reads what runs of a policy with 4,000 lines, of which many become sets, and 200 sets
// of its own.
func manyLines(b *testing.B) *engine.Meter {
	b.Helper()
	testnet.Require(b, testnet.Nftables)
	net := testnet.New(b).Unnamed("host")
	var text bytes.Buffer
	text.WriteString("version: 1\nsets:\n")
	for i := range 200 {
		fmt.Fprintf(&text, "  s%d: [10.%d.0.0/24, 10.%d.2.0/24, '2001:db8:%x::/48']\n", i, i, i, i)
	}
	text.WriteString("input:\n  default: drop\n  rules:\n")
	for i := range 4000 {
		switch {
		case i%20 == 0:
			fmt.Fprintf(&text, "    - allow tcp/%d from s%d\n", 1000+i, i/20)
		case i%3 == 0:
			fmt.Fprintf(&text, "    - allow udp/%d from 10.1.%d.%d log \"a\"\n", 1000+i, i%250, i/250)
		default:
			fmt.Fprintf(&text, "    - allow tcp/%d from 10.2.%d.%d\n", 1000+i, i%250, i/250)
		}
	}
	file := filepath.Join(b.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	h, err := engine.NewHost(b.TempDir(), "", "tested")
	if err != nil {
		b.Fatal(err)
	}
	if err := net.Do(func() (err error) { h.Netns, err = netns.Here(); return err }); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Netns.Close() })
	if _, err := h.Apply(b.Context(), engine.Request{File: file}, apply.Options{}); err != nil {
		b.Fatal(err)
	}
	return &engine.Meter{Host: h, Gauges: func(context.Context) (*engine.Gauged, error) { return h.Gauges() }}
}

// BenchmarkSample makes a sample of it.
func BenchmarkSample(b *testing.B) {
	s := &engine.Sampler{Meter: manyLines(b)}
	if _, err := s.Look(b.Context(), true); err != nil {
		b.Fatal(err)
	}
	before := processorTime(b)
	for b.Loop() {
		if is, err := s.Look(b.Context(), true); err != nil || is == nil {
			b.Fatal(is, err)
		}
	}
	b.ReportMetric((processorTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
}

// BenchmarkMetrics reads and writes its metrics.
func BenchmarkMetrics(b *testing.B) {
	m := manyLines(b)
	var text bytes.Buffer
	series, before := 0, processorTime(b)
	for b.Loop() {
		families, err := m.Read(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		families = engine.Bounded(families)
		text.Reset()
		if err := exposition.Write(&text, families); err != nil {
			b.Fatal(err)
		}
		series = bytes.Count(text.Bytes(), []byte("\n")) - 2*len(families)
	}
	b.ReportMetric((processorTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(series), "series")
	b.ReportMetric(float64(text.Len()), "bytes")
}

// processorTime is what this process has taken of processors, which others of the machine
// make no longer.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

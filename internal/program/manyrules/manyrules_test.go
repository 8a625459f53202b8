package manyrules_test

import (
	"syscall"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program/compile"
	"sluice/internal/program/manyrules"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/check"
	"sluice/internal/system/host"
)

// BenchmarkPipeline tells the time of processors that each step takes with ten
// thousand rules, in ms: go test -bench Pipeline -benchtime 1x.
func BenchmarkPipeline(b *testing.B) {
	for _, s := range manyrules.Shapes {
		b.Run(s.Name, func(b *testing.B) {
			text := s.Policy(10_000, 1)
			for b.Loop() {
				pipeline(b, text)
			}
		})
	}
}

func pipeline(b *testing.B, text []byte) {
	at := processors(b)
	step := func(name string, err error) {
		if err != nil {
			b.Fatal(err)
		}
		now := processors(b)
		b.ReportMetric(float64((now - at).Milliseconds()), name+"-ms")
		at = now
	}
	p, err := policy.Parse("policy.yaml", text)
	step("1read", err)
	r, err := resolve.Resolve(p, resolve.Options{})
	step("2resolve", err)
	findings := check.Run(r, host.Facts{})
	step("3check", nil)
	b.ReportMetric(float64(len(findings)), "findings")
	made, err := compile.Compile(r)
	step("4compile", err)
	err = optimize.Run(made, optimize.Options{})
	step("5optimize", err)
	_, err = nftables.New().Lower(made, backend.Capabilities{})
	step("6lower", err)
}

// processors is the time that processors have spent on this process.
func processors(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

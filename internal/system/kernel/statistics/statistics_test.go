package statistics_test

import (
	"testing"

	"sluice/internal/system/kernel/statistics"
)

func TestProcessors(t *testing.T) {
	all, err := statistics.Processors()
	if err != nil || len(all) == 0 {
		t.Fatalf("%d processors, %v", len(all), err)
	}
	for i, p := range all {
		if p.Softirq <= 0 || p.Idle <= 0 || p.Total <= p.Softirq+p.Idle {
			t.Errorf("processor %d: %+v", i, p)
		}
	}
}

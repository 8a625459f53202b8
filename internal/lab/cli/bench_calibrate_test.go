package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"sluice/internal/backend/nftables"
	"sluice/internal/backend/nftables/calibration"
	"sluice/internal/lab/calibrate"
	"sluice/internal/lab/stats"
	"sluice/internal/system/host"
)

// TestKeepCalibration: what a busy machine measured is shown and not stored, nor does
// it take the place of what is stored, unless that is asked for.
func TestKeepCalibration(t *testing.T) {
	dir := t.TempDir()
	keep := func(m *calibrate.Measured, flags ...string) (text string, err error) {
		t.Helper()
		root := Root()
		var out, errOut bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&errOut)
		cmd, args, err := root.Find(append([]string{"bench", "calibrate", "--state-dir", dir}, flags...))
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		err = keepCalibration(cmd, startReport(cmd, nil, calibrationTitle), m)
		return out.String() + errOut.String(), err
	}
	measured := func(counter float64, noise ...string) *calibrate.Measured {
		m := &calibrate.Measured{Costs: nftables.DefaultCosts(), Noise: noise, Series: map[string]stats.Series{"packet.counter-ns": {counter}}}
		m.Costs.Packet.Counter = counter
		return m
	}
	stored := func() float64 {
		t.Helper()
		c, err := calibration.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if c == nil {
			return 0
		}
		if unfit := c.Unfit(host.ThisMachine()); unfit != "" {
			t.Error("measured here, and", unfit)
		}
		return c.Costs.Packet.Counter
	}
	const noise = "other programs took 90 % of the processors"
	text, err := keep(measured(31, noise))
	if err == nil || !strings.Contains(err.Error(), noise) || !strings.Contains(text, "warning: "+noise) || !strings.Contains(text, "not stored") {
		t.Errorf("noisy: %v\n%s", err, text)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("noisy, and %v was made, %v", entries, err)
	}
	if text, err = keep(measured(32)); err != nil || stored() != 32 || !strings.Contains(text, "stored in "+calibration.File(dir)) {
		t.Errorf("quiet: %v, stored is %v\n%s", err, stored(), text)
	}
	if _, err = keep(measured(33, noise)); err == nil || stored() != 32 {
		t.Errorf("noisy after a quiet one: %v, stored is %v", err, stored())
	}
	if _, err = keep(measured(34, noise), "--force"); err != nil || stored() != 34 {
		t.Errorf("by force: %v, stored is %v", err, stored())
	}
}

package cli

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"sluice/internal/backend/nftables"
	"sluice/internal/backend/nftables/calibration"
	"sluice/internal/system/host"
)

// scriptCalibrated stores a calibration of this machine, made up, in the state of the
// script: the built-in figures except those that it is given, as of 2026-11-21.
//
//	calibrated [kernel=RELEASE] [CONSTANT=NUMBER]...
func scriptCalibrated(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: calibrated [kernel=RELEASE] [CONSTANT=NUMBER]...")
	}
	c := calibration.Calibration{
		Measured: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Took: 60, Version: "test",
		Machine: host.ThisMachine(), Costs: nftables.DefaultCosts(),
	}
	for _, arg := range args {
		name, text, _ := strings.Cut(arg, "=")
		if name == "kernel" {
			c.Machine.Kernel = text
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		ts.Check(err)
		constant, known := nftables.ConstantNamed(name)
		if !known {
			ts.Fatalf("no constant is called %s", name)
		}
		constant.Set(&c.Costs, value)
	}
	ts.Check(c.Save(filepath.Join(ts.Getenv("WORK"), "state")))
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/backend/nftables/calibration"
	"sluice/internal/base/cache"
	"sluice/internal/base/regular"
	"sluice/internal/engine/apply"
	"sluice/internal/system/host"
)

// Backends are all that there are, the one that loads policies first.
func Backends() []backend.Backend {
	return []backend.Backend{nftables.New(nftables.Calibration(measured))}
}

// measured is the model that was measured on this host. It is never needed: where it
// cannot be used, the figures say why, and those that come with Sluice are taken.
func measured(state string) (*nftables.CostModel, backend.Figures) {
	unused := func(r apply.Remedy, format string, args ...any) (*nftables.CostModel, backend.Figures) {
		return nil, backend.Figures{Unused: &apply.RemedyError{Err: fmt.Errorf(format, args...), Remedy: r}}
	}
	const damaged = "the calibration of this machine is damaged, so the built-in figures are used: %w"
	c, err := calibration.Load(state)
	var other *calibration.OtherVersionError
	var bad *calibration.DamagedError
	switch {
	case errors.As(err, &other):
		return unused(apply.MeasureAnew, "the calibration is of another version of sluice (%s, this one reads %s), so the built-in figures are used", other.Schema, calibration.Schema)
	case errors.Is(err, fs.ErrPermission):
		return nil, backend.Figures{Unused: errors.New("the calibration of this machine cannot be read, so the built-in figures are used: " + err.Error())}
	case errors.As(err, &bad):
		return unused(apply.MeasureAnewOrForget, damaged, err)
	case regular.Unfit(err):
		return unused(apply.ReplaceMeasured, damaged, err)
	case err != nil:
		return nil, backend.Figures{Unused: errors.New(fmt.Errorf(damaged, err).Error())}
	case c == nil:
		return nil, backend.Figures{}
	}
	if why := c.Unfit(host.ThisMachine()); why != "" {
		return unused(apply.MeasureAnew, "the calibration of %s does not fit, so the built-in figures are used: %s", c.Day(), why)
	}
	return &c.Costs, backend.Figures{Measured: c.Measured, Warnings: c.Warnings}
}

// Capabilities is what the kernel can do for a backend, asked unless the state directory
// remembers it.
func Capabilities(ctx context.Context, state string, b backend.Backend) backend.Capabilities {
	return backend.Remembered(ctx, cache.Below(state), b)
}

// thisProgram tells the file that runs from every other one: two builds may have
// one version.
func thisProgram(version string) (string, error) {
	name, err := os.Executable()
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("%q %s %d %d %d %d %d", name, version, st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()), nil
}

package calibration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"sluice/internal/backend/nftables"
	"sluice/internal/base/regular"
	"sluice/internal/system/host"
)

// File is where the calibration of a state directory lies.
func File(stateDir string) string { return filepath.Join(stateDir, "calibration.json") }

// Schema names the form of the file and its constants: where one comes, goes or means
// something else, the number rises. A reader leaves the file of another number alone.
const (
	Schema   = schemaOf + "1"
	schemaOf = "sluice-calibration/"
)

// Calibration is what one host measured.
type Calibration struct {
	Schema   string       `json:"schema"`
	Measured time.Time    `json:"measured"`
	Took     float64      `json:"seconds"`
	Version  string       `json:"version"` // of sluice
	Machine  host.Machine `json:"machine"`
	// Warnings say why it should not be trusted as it is; it was stored anyway.
	Warnings []string           `json:"warnings,omitempty"`
	Costs    nftables.CostModel `json:"costs"`
	// Spread is between what bounds each constant lies with a probability of 95 %, by
	// its name.
	Spread map[string]Bounds `json:"spread,omitempty"`
}

// Bounds of what was measured, in the constant's unit.
type Bounds struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Unfit says what of a machine is another than where the calibration was measured;
// "" where nothing is that decides what things cost.
func (c *Calibration) Unfit(now host.Machine) string {
	was := c.Machine
	for _, part := range []struct{ what, was, now string }{
		{"kernel", was.Kernel, now.Kernel},
		{"architecture", was.Arch, now.Arch},
		{"processor", was.Processor, now.Processor},
		{"number of processors", fmt.Sprint(was.Processors), fmt.Sprint(now.Processors)},
		{"mitigations", was.Mitigations, now.Mitigations},
		{"clock source", counting(was), counting(now)},
	} {
		if part.was != part.now {
			return fmt.Sprintf("%s %s then, %s now", part.what, orUnknown(part.was), orUnknown(part.now))
		}
	}
	return ""
}

func counting(m host.Machine) string {
	if m.Counted {
		return "in instructions"
	}
	return "by the clock"
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}

// Day is when it was measured, as it is said.
func (c *Calibration) Day() string { return c.Measured.Format(time.DateOnly) }

// mostBytes bounds the file.
const mostBytes = 1 << 20

// Load reads the calibration of a state directory; nil where there is none. What is not
// a calibration is an error of Parse; what is not a regular file, one of regular.Unfit.
func Load(stateDir string) (*Calibration, error) {
	file := File(stateDir)
	data, err := regular.Read(file, mostBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return Parse(file, data)
}

// Save stores a calibration in a state directory, whole or not at all.
func (c *Calibration) Save(stateDir string) error {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return err
	}
	data, err := c.encode()
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(File(stateDir), data, 0o644); err != nil {
		return fmt.Errorf("store the calibration: %w", err)
	}
	return nil
}

// Copy gives a state directory the calibration of another as it is, where that has
// one: what is measured there is laid out as "sluice apply" would lay it out here.
func Copy(from, to string) error {
	data, err := regular.Read(File(from), mostBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	return os.WriteFile(File(to), data, 0o600)
}

func (c *Calibration) encode() ([]byte, error) {
	c.Schema = Schema
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the calibration: %w", err)
	}
	return append(data, '\n'), nil
}

// Remove removes the calibration of a state directory; false where there is none.
func Remove(stateDir string) (bool, error) {
	err := os.Remove(File(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

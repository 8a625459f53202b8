package figures

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/google/renameio/v2"

	"sluice/internal/base/regular"
	"sluice/internal/lab/stats"
)

// Write writes a report as indented JSON.
func (r *Report) Write(w io.Writer) error {
	r.Schema = Schema
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

// Save writes a report into a file, whole or not at all.
func (r *Report) Save(file string) error {
	f, err := renameio.NewPendingFile(file, renameio.WithPermissions(0o644))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	if err := r.Write(f); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// Load reads a report. The error names the file, and the line of what is no JSON.
func Load(file string) (*Report, error) {
	f, err := regular.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	return Parse(file, data)
}

// Parse is Load of what was read already.
func Parse(file string, data []byte) (*Report, error) {
	r := &Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s%s: no report of a measurement: %w\nhint: --save FILE of sluice-lab bench, load and story writes one", file, position(data, err), err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("%s: its schema is %q, this version reads %s\nhint: --save FILE of sluice-lab bench, load and story writes one", file, r.Schema, Schema)
	}
	for _, g := range r.Goals {
		if g.Reached != Yes && g.Reached != No && g.Reached != NotShown {
			return nil, fmt.Errorf("%s: of the goal %q it says reached: %q, which is none of %s, %s, %s\nhint: --save FILE of sluice-lab bench, load and story writes one", file, visible(g.Name), g.Reached, Yes, No, NotShown)
		}
	}
	r.showAll()
	// Estimates are for other readers: they are always those of the samples.
	for i := range r.Sections {
		for j := range r.Sections[i].Figures {
			if f := &r.Sections[i].Figures[j]; len(f.Samples) > 0 {
				f.Estimate = f.Samples.Estimate()
			}
		}
	}
	return r, nil
}

// point is a Point as JSON has it: null where it has no value.
type point struct {
	X    stats.Number `json:"x"`
	Y    stats.Number `json:"y"`
	Low  stats.Number `json:"low,omitempty"`
	High stats.Number `json:"high,omitempty"`
}

// MarshalJSON writes what is not a number as null.
func (p Point) MarshalJSON() ([]byte, error) {
	return json.Marshal(point{stats.Number(p.X), stats.Number(p.Y), stats.Number(p.Low), stats.Number(p.High)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Point) UnmarshalJSON(data []byte) error {
	var in point
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("point: %v", err) //nolint:errorlint // its place is none in the file
	}
	*p = Point{float64(in.X), float64(in.Y), float64(in.Low), float64(in.High)}
	return nil
}

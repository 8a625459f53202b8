package figures

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/google/renameio/v2"
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
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, data)
}

// Parse is Load of what was read already.
func Parse(file string, data []byte) (*Report, error) {
	r := &Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s%s: no report of a measurement: %w\nhint: --save FILE of sluice bench, load and story writes one", file, position(data, err), err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("%s: its schema is %q, this version reads %s\nhint: --save FILE of sluice bench, load and story writes one", file, r.Schema, Schema)
	}
	return r, nil
}

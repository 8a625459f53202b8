package calibration

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"sluice/internal/backend/nftables"
)

// DamagedError says that a file holds no calibration, and at which place.
type DamagedError struct {
	Place string // FILE:LINE:COLUMN
	Err   error
}

func (e *DamagedError) Error() string { return e.Place + ": " + e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }

// OtherVersionError says that a file is of a version of Sluice that measured other
// constants.
type OtherVersionError struct {
	File   string
	Schema string
}

func (e *OtherVersionError) Error() string {
	return fmt.Sprintf("%s: its schema is %q, this version reads %s", e.File, e.Schema, Schema)
}

// Parse reads a calibration. Each constant has to be there, once, within the bounds
// of nftables.Constants, and nothing else among them. One of another version is an
// *OtherVersionError, any other error a *DamagedError.
func Parse(file string, data []byte) (*Calibration, error) {
	fail := func(at int64, format string, args ...any) error {
		return &DamagedError{file + ":" + place(data, at), fmt.Errorf(format, args...)}
	}
	if len(data) > mostBytes {
		return nil, fail(0, "more than %d bytes: not a calibration", mostBytes)
	}
	var form struct {
		Schema string `json:"schema"`
	}
	if json.Unmarshal(data, &form) == nil && form.Schema != Schema && strings.HasPrefix(form.Schema, schemaOf) {
		return nil, &OtherVersionError{file, form.Schema}
	}
	c := &Calibration{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fail(offset(data, err), "not a calibration: %w", err)
	}
	at, err := values(data)
	if err != nil {
		return nil, fail(err.at, "%s", err.text)
	}
	switch {
	case c.Schema != Schema:
		return nil, fail(at["schema"], "its schema is %q, this version reads %s", c.Schema, Schema)
	case c.Measured.Year() < 2020 || c.Measured.Year() > 2199:
		return nil, fail(at["measured"], "impossible time of measurement %s", c.Measured.Format("2006-01-02"))
	case c.Machine.Kernel == "":
		return nil, fail(at["machine"], "it does not say on which kernel it was measured")
	}
	const costs = "costs."
	known := map[string]bool{}
	for _, constant := range nftables.Constants() {
		for i := range constant.Name {
			if constant.Name[i] == '.' {
				known[constant.Name[:i]] = true
			}
		}
		known[constant.Name] = true
		if _, has := at[costs+constant.Name]; !has {
			return nil, fail(at["costs"], "costs: %s is missing", constant.Name)
		}
	}
	for _, name := range inOrder(at) {
		if rest, is := strings.CutPrefix(name, costs); is && !known[rest] {
			return nil, fail(at[name], "costs: unknown constant %s", rest)
		}
	}
	if constant, err := c.Costs.Check(); err != nil {
		return nil, fail(at[costs+constant.Name], "%w", err)
	}
	for name, b := range c.Spread {
		if b.Low > b.High {
			return nil, fail(at["spread."+name], "spread: %s lies from %g to %g", name, b.Low, b.High)
		}
	}
	return c, nil
}

// place is "LINE:COLUMN" of a byte.
func place(data []byte, at int64) string {
	before := data[:max(0, min(int(at), len(data)))]
	return fmt.Sprintf("%d:%d", 1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n'))
}

// offset is where the decoder stopped.
func offset(data []byte, err error) int64 {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return syntax.Offset - 1
	case errors.As(err, &kind):
		return kind.Offset - 1
	}
	return int64(len(data))
}

// badValue is what values has to say against a text.
type badValue struct {
	at   int64
	text string
}

// values says where the value of each name begins, by the names on the way to it,
// with dots between them. Arrays are one value.
func values(data []byte) (map[string]int64, *badValue) {
	out := map[string]int64{}
	d := json.NewDecoder(bytes.NewReader(data))
	bad := func(err error) *badValue {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return &badValue{d.InputOffset(), "not a calibration: " + err.Error()}
	}
	type level struct {
		prefix string
		array  bool
	}
	var stack []level
	var name string // of the value that comes
	token, err := d.Token()
	if err != nil {
		return nil, bad(err)
	}
	if token != json.Delim('{') {
		return nil, &badValue{0, "not a calibration: it is not an object"}
	}
	stack = append(stack, level{})
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		if !d.More() {
			if _, err := d.Token(); err != nil {
				return nil, bad(err)
			}
			stack = stack[:len(stack)-1]
			continue
		}
		if name = top.prefix; !top.array {
			key, err := d.Token()
			if err != nil {
				return nil, bad(err)
			}
			name = strings.TrimPrefix(fmt.Sprintf("%s.%s", top.prefix, key), ".")
			begin := d.InputOffset()
			for begin < int64(len(data)) && strings.IndexByte(" \t\r\n:", data[begin]) >= 0 {
				begin++
			}
			if _, double := out[name]; double {
				return nil, &badValue{begin, "duplicate " + name}
			}
			out[name] = begin
		}
		value, err := d.Token()
		if err != nil {
			return nil, bad(err)
		}
		switch value {
		case json.Delim('{'):
			if top.array { // one of several, which may have the same names in them
				name = fmt.Sprintf("%s[%d]", name, d.InputOffset())
			}
			stack = append(stack, level{prefix: name})
		case json.Delim('['):
			stack = append(stack, level{name, true})
		}
	}
	return out, nil
}

// inOrder are names as they are in the text.
func inOrder(at map[string]int64) []string {
	return slices.SortedFunc(maps.Keys(at), func(a, b string) int { return cmp.Compare(at[a], at[b]) })
}

package trust

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The most that is read of each document, in bytes.
const (
	MaxRoot     = 64 << 10
	MaxOnline   = 16 << 10 // of timestamp.json, and of snapshot.json
	MaxTargets  = 64 << 10
	MaxManifest = 4 << 20
	MaxEnvelope = 16 << 20
	maxRoots    = 256 // roots of one chain
	maxNesting  = 16
	// MaxMetadata bounds the JSON of a [Metadata], for who reads one.
	MaxMetadata = (64*MaxRoot + 2*MaxOnline + MaxTargets) / 3 * 4
)

// shaped refuses what is too large, and JSON that a reader might understand in two ways
// or stumble over: a null (go-tuf dereferences what it decodes), a key twice, deep
// nesting, something behind the end.
func shaped(what string, data []byte, most int) error {
	if len(data) > most {
		return fmt.Errorf("%s is %w: %d bytes, at most %d", what, ErrTooLarge, len(data), most)
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	if err := shapedValue(in, 0); err != nil {
		return fmt.Errorf("%s is %w: byte %d: %s", what, ErrMalformed, in.InputOffset(), err.Error())
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s is %w: more than one value", what, ErrMalformed)
	}
	return nil
}

func shapedValue(in *json.Decoder, depth int) error {
	token, err := in.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	opening, ok := token.(json.Delim)
	switch {
	case token == nil:
		return errors.New("null")
	case !ok:
		return nil
	case depth == maxNesting:
		return errors.New("nested too deeply")
	}
	seen := map[string]bool{}
	for in.More() {
		if opening == '{' {
			key, err := in.Token()
			if err != nil {
				return err
			}
			name := key.(string)
			if seen[name] {
				return fmt.Errorf("key %q twice", name)
			}
			seen[name] = true
		}
		if err := shapedValue(in, depth+1); err != nil {
			return err
		}
	}
	_, err = in.Token()
	return err
}

// strictly decodes what shaped has passed and every key of which is known.
func strictly(what string, data []byte, into any) error {
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(into); err != nil {
		return fmt.Errorf("%s is %w: %s", what, ErrMalformed, err.Error())
	}
	return nil
}

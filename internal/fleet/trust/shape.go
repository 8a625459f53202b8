package trust

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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
)

// shaped refuses what is too large, and JSON that a reader might understand in two ways
// or stumble over: a null (go-tuf dereferences what it decodes), a key twice, deep
// nesting, something behind the end.
func shaped(what string, data []byte, most int) error {
	if err := sized(what, data, most); err != nil {
		return err
	}
	in := jsontext.NewDecoder(bytes.NewBuffer(data))
	for begun := false; ; begun = true {
		token, err := in.ReadToken()
		switch {
		case begun && errors.Is(err, io.EOF):
			return nil
		case err != nil:
		case token.Kind() == 'n':
			err = errors.New("null")
		case in.StackDepth() > maxNesting:
			err = errors.New("nested too deeply")
		case begun && in.StackDepth() == 0 && token.Kind() != '}' && token.Kind() != ']':
			err = errors.New("more than one value")
		}
		if err != nil {
			return fmt.Errorf("%s is %w: byte %d: %s", what, ErrMalformed, in.InputOffset(), err.Error())
		}
	}
}

func sized(what string, data []byte, most int) error {
	if len(data) > most {
		return fmt.Errorf("%s is %w: %d bytes, at most %d", what, ErrTooLarge, len(data), most)
	}
	return nil
}

// strictly decodes one value, each key of which is known and there once.
func strictly(what string, data []byte, into any) error {
	if err := json.Unmarshal(data, into, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("%s is %w: %s", what, ErrMalformed, err.Error())
	}
	return nil
}

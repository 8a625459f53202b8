package figures

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// position is ":LINE:COLUMN" of what a JSON decoder does not understand, "" where
// it does not say.
func position(data []byte, err error) string {
	var (
		syntax *json.SyntaxError
		kind   *json.UnmarshalTypeError
		at     int64
	)
	switch {
	case errors.As(err, &syntax):
		at = syntax.Offset
	case errors.As(err, &kind):
		at = kind.Offset
	default:
		return ""
	}
	before := data[:min(int(at), len(data))]
	return fmt.Sprintf(":%d:%d", 1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n'))
}

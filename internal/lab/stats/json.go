package stats

import (
	"encoding/json"
	"fmt"
	"math"
)

// Number is a figure in JSON, which has no word for what is none, as a ratio to
// nothing: it is null there, and NaN again when it is read.
type Number float64

// MarshalJSON writes it.
func (n Number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads it.
func (n *Number) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*n = Number(math.NaN())
		return nil
	}
	// Not the decoder's own error: its place in data is none in the file.
	if json.Unmarshal(data, (*float64)(n)) != nil {
		return fmt.Errorf("%.20s is no number", data)
	}
	return nil
}

// MarshalJSON writes rounds that have no figure as null.
func (s Series) MarshalJSON() ([]byte, error) {
	var out []Number
	if s != nil {
		out = make([]Number, len(s))
	}
	for i, x := range s {
		out[i] = Number(x)
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Series) UnmarshalJSON(data []byte) error {
	var in []Number
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("rounds: %v", err) //nolint:errorlint // see Number
	}
	*s = nil
	if in != nil {
		*s = make(Series, len(in))
	}
	for i, x := range in {
		(*s)[i] = float64(x)
	}
	return nil
}

// estimate is an Estimate as JSON has it.
type estimate struct {
	Median Number `json:"median"`
	Low    Number `json:"low"`
	High   Number `json:"high"`
}

// MarshalJSON writes what is not a number as null.
func (e Estimate) MarshalJSON() ([]byte, error) {
	return json.Marshal(estimate{Number(e.Median), Number(e.Low), Number(e.High)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Estimate) UnmarshalJSON(data []byte) error {
	var in estimate
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("estimate: %v", err) //nolint:errorlint // see Number
	}
	*e = Estimate{float64(in.Median), float64(in.Low), float64(in.High)}
	return nil
}

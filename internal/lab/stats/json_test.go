package stats

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What is not a number must not cost a report of an hour.
func TestNoNumberIsNull(t *testing.T) {
	type both struct {
		Rounds   Series
		Estimate Estimate
	}
	in := both{Series{1, math.NaN(), math.Inf(1), 0.25}, Estimate{math.NaN(), math.Inf(-1), 2}}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"Rounds":[1,null,null,0.25],"Estimate":{"median":null,"low":null,"high":2}}`; string(text) != want {
		t.Errorf("got %s, want %s", text, want)
	}
	var out both
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	want := both{Series{1, math.NaN(), math.NaN(), 0.25}, Estimate{math.NaN(), math.NaN(), 2}}
	if diff := cmp.Diff(want, out, cmpopts.EquateNaNs()); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]Series{"null": nil, "[]": {}} {
		var s Series
		if err := json.Unmarshal([]byte(text), &s); err != nil || (s == nil) != (want == nil) || len(s) != 0 {
			t.Errorf("%s: got %#v, %v", text, s, err)
		}
		if again, err := json.Marshal(s); err != nil || string(again) != text {
			t.Errorf("%s: written again as %s, %v", text, again, err)
		}
	}
	var s Series
	if err := json.Unmarshal([]byte(`["1"]`), &s); err == nil {
		t.Error("a text is no number, but it was read")
	}
}

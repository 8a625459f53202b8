package backend_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"sluice/internal/backend"
)

// TestCostJSON: a cost is written with the kinds of its backend beside the others, as
// generations on disk have always had it, and read back.
func TestCostJSON(t *testing.T) {
	c := backend.Cost{Rules: 3, Objects: []backend.Objects{{Kind: "chains", Number: 2}, {Kind: "sets", Number: 1}}, Elements: 40, Memory: 1 << 40, LoadTime: 5}
	const want = `{"rules":3,"chains":2,"sets":1,"elements":40,"memory":1099511627776,"load-time-ns":5}`
	got, err := json.Marshal(c)
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	var again backend.Cost
	if err := json.Unmarshal([]byte(want), &again); err != nil || !reflect.DeepEqual(again, c) {
		t.Errorf("read back %+v, %v, want %+v", again, err, c)
	}
	const none = `{"rules":0,"chains":0,"sets":0,"elements":0,"memory":0,"load-time-ns":0}`
	if got, err := json.Marshal(c.None()); err != nil || string(got) != none {
		t.Errorf("%s, %v, want %s", got, err, none)
	}
	if err := json.Unmarshal([]byte(`{"rules":"many"}`), &again); err == nil {
		t.Error("rules that are no number are read")
	}
}

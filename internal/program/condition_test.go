package program

import (
	"fmt"
	"math"
	"testing"
)

func TestMergeNumbers(t *testing.T) {
	for _, c := range []struct {
		in   []NumberRange
		want string
	}{
		{nil, "[]"},
		{[]NumberRange{{80, 80}, {22, 22}}, "[22 80]"},
		{[]NumberRange{{80, 80}, {81, 90}, {85, 87}, {92, 92}}, "[80-90 92]"},
		{[]NumberRange{{5, 9}, {1, 20}}, "[1-20]"},
		{[]NumberRange{{7, math.MaxUint64}, {9, 9}, {0, 5}}, "[0-5 7-18446744073709551615]"},
	} {
		if got := fmt.Sprint(MergeNumbers(c.in)); got != c.want {
			t.Errorf("%v is %s, want %s", c.in, got, c.want)
		}
	}
}

package nfset

import (
	"errors"
	"testing"
)

func TestKeys(t *testing.T) {
	stop := errors.New("stop")
	tests := []struct {
		name  string
		given [][]byte
		twice bool
	}{
		{"nothing", nil, false},
		{"each once", [][]byte{{10, 0, 0, 1}, {10, 0, 0, 2}, {10, 0}, nil}, false},
		{"one twice", [][]byte{{10, 0, 0, 1}, {10, 0, 0, 2}, {10, 0, 0, 1}}, true},
	}
	for _, test := range tests {
		var k keys
		passed := 0
		each := k.noting(func(Element) error { passed++; return stop })
		for _, key := range test.given {
			if err := each(Element{Key: key}); !errors.Is(err, stop) {
				t.Errorf("%s: the error got lost: %v", test.name, err)
			}
		}
		if passed != len(test.given) || k.twice() != test.twice {
			t.Errorf("%s: %d passed, twice %v", test.name, passed, k.twice())
		}
	}
}

package backend

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

func TestParts(t *testing.T) {
	for _, parts := range [][][]byte{{}, {nil}, {[]byte("one")}, {[]byte("one"), nil, bytes.Repeat([]byte("x"), 1000)}} {
		joined := Join(parts...)
		got, err := Split(joined)
		if err != nil || !slices.EqualFunc(parts, got, bytes.Equal) {
			t.Errorf("%q: got %q, %v", parts, got, err)
		}
		for n := range joined {
			if got, err := Split(joined[:n]); !errors.Is(err, ErrParts) {
				t.Errorf("cut off at %d: %q, %v", n, got, err)
			}
		}
		if got, err := Split(append(joined, 'x')); !errors.Is(err, ErrParts) {
			t.Errorf("a byte more: %q, %v", got, err)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(Join([]byte("a"), nil))
	f.Add([]byte(partsHead + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if parts, err := Split(data); err == nil {
			if again, err := Split(Join(parts...)); err != nil || !slices.EqualFunc(parts, again, bytes.Equal) {
				t.Errorf("%q becomes %q, %v", parts, again, err)
			}
		}
	})
}

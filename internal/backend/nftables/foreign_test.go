package nftables

import (
	"encoding/json"
	"strings"
	"testing"
)

// A list on the right of a mask is the bits of one value, as nft 1.0.6 lists
// "tcp flags & (fin | psh) == fin | psh"; alternatives are in a set.
func TestBitsUnderAMask(t *testing.T) {
	for right, want := range map[string]string{
		`[1,8]`:         "tcp flags & (fin | psh) == fin | psh",
		`{"set":[1,8]}`: "tcp flags & (fin | psh) { fin, psh }",
		`1`:             "tcp flags & (fin | psh) == fin",
	} {
		var v any
		d := json.NewDecoder(strings.NewReader(`{"match":{"op":"==","left":{"&":[{"payload":{"protocol":"tcp","field":"flags"}},[1,8]]},"right":` + right + `}}`))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		if got := statement(v).text(); got != want {
			t.Errorf("%s is %q, want %q", right, got, want)
		}
	}
}

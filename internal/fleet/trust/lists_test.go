package trust

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

const aList = "scanners-0123456789ab.txt"

func TestReadList(t *testing.T) {
	t.Parallel()
	hash := HashOf(nil)
	good := List{Name: aList, SHA256: hash, Size: 3}
	text, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ReadList(aList, text); err != nil || got != good {
		t.Errorf("%+v, %v", got, err)
	}
	if name, is := ListOf(ListKind(aList)); !is || name != aList {
		t.Error(name, is)
	}
	for what, c := range map[string]struct {
		name, text string
		is         error
	}{
		"of another list": {"tor-0123456789ab.txt", string(text), ErrMalformed},
		"of no name":      {"../" + aList, strings.ReplaceAll(string(text), aList, "../"+aList), ErrMalformed},
		"without a hash":  {aList, `{"name":"` + aList + `","sha256":"","size":1}`, ErrMalformed},
		"of a size below": {aList, `{"name":"` + aList + `","sha256":"` + hash + `","size":-1}`, ErrMalformed},
		"too large":       {aList, `{"name":"` + aList + `","sha256":"` + hash + `","size":268435457}`, ErrTooLarge},
		"with more":       {aList, strings.Replace(string(text), "{", `{"more":1,`, 1), ErrMalformed},
	} {
		if got, err := ReadList(c.name, []byte(c.text)); !errors.Is(err, c.is) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

func FuzzReadList(f *testing.F) {
	f.Add([]byte(`{"name":"` + aList + `","sha256":"` + HashOf(nil) + `","size":3,"allow-cut":true}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if l, err := ReadList(aList, payload); err == nil && (l.Name != aList || !isHash(l.SHA256) || l.Size < 0 || l.Size > MaxList) {
			t.Fatalf("%s was taken: %+v", payload, l)
		}
	})
}

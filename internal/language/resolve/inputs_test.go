package resolve

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/language/geo"
)

// copies gives the texts of lists by their addresses.
type copies map[string]string

func (c copies) Open(url string, _ time.Duration) (io.ReadCloser, string, error) {
	text, ok := c[url]
	if !ok {
		return nil, "", errors.New("no copy")
	}
	return io.NopCloser(strings.NewReader(text)), url, nil
}

// TestInputs: what is asked without parsing is what resolving reads, and each
// input shows.
func TestInputs(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "lists/banned.txt", "192.0.2.1\n")
	write(t, dir, "lists/more.txt", "192.0.2.2\n")
	file := write(t, dir, "policy.yaml", `version: 1
sets:
  banned: { file: lists/banned.txt }
  again: { file: lists/banned.txt }
  more: { file: lists/more.txt }
  list: { url: "https://lists.example.net/x.txt" }
  monaco: { countries: [MC] }
output:
  default: allow
  rules:
    - allow smtp by user postfix
    - allow smtp by user 77
    - reject smtp
expect:
  - allow smtp by user 78
`)
	lists := copies{"https://lists.example.net/x.txt": "192.0.2.3\n"}
	postfix := uint32(25)
	opt := Options{
		Geo: builtin(t), Lists: lists,
		User: func(name string) (uint32, error) {
			if name == "postfix" {
				return postfix, nil
			}
			return hostUser(name)
		},
	}
	get := func() Inputs {
		t.Helper()
		p := load(t, file)
		in, err := InputsOf(p, opt)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Resolve(p, opt)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(in, r.Inputs) {
			t.Errorf("asked: %v\nread: %v", in, r.Inputs)
		}
		return in
	}
	before := get()
	if len(before) != 7 {
		t.Errorf("inputs are %v", before)
	}
	for _, c := range []struct {
		input  string
		change func()
	}{
		{"file " + filepath.Join(dir, "lists/more.txt"), func() { write(t, dir, "lists/more.txt", "192.0.2.4\n") }},
		{"list https://lists.example.net/x.txt", func() { lists["https://lists.example.net/x.txt"] = "192.0.2.9\n" }},
		{"user postfix", func() { postfix++ }},
		{"countries", func() {
			opt.Geo = func() (*geo.Database, error) { return otherCountries(t), nil }
		}},
	} {
		c.change()
		after := get()
		if before[c.input] == after[c.input] || before[c.input] == "" {
			t.Errorf("%s is %q before and after", c.input, after[c.input])
		}
		after[c.input] = before[c.input]
		if !maps.Equal(before, after) {
			t.Errorf("%s: other inputs changed too:\n%v\n%v", c.input, before, after)
		}
		before = get()
	}
}

func otherCountries(t *testing.T) *geo.Database {
	t.Helper()
	var table geo.Table
	if _, err := geo.Read(strings.NewReader("192.0.2.0,192.0.2.255,MC\n"), "x.csv", &table); err != nil {
		t.Fatal(err)
	}
	data, err := table.Encode(geo.Origin{Source: "test"})
	if err != nil {
		t.Fatal(err)
	}
	d, err := geo.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A file that changes between two sets that are made of it is no input that
// comes again.
func TestInputsThatChange(t *testing.T) {
	in := Inputs{}
	in.add("file x", [32]byte{1})
	in.add("file x", [32]byte{1})
	if strings.Contains(in["file x"], " ") {
		t.Errorf("the same twice: %s", in["file x"])
	}
	in.add("file x", [32]byte{2})
	if !strings.Contains(in["file x"], "changed") {
		t.Errorf("it changed: %s", in["file x"])
	}
}

func TestInputsOnlyOnce(t *testing.T) {
	file := write(t, t.TempDir(), "policy.yaml", "version: 1\nsets:\n  x: { file: /dev/null }\n")
	if in, err := InputsOf(load(t, file), Options{}); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("a device gives %v, %v", in, err)
	}
}

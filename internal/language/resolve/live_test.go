package resolve

import (
	"io"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/language/policy"
)

// TestLive: a live list is what the controller gave last, what was signed before that, and
// within its bounds whatever it names.
func TestLive(t *testing.T) {
	const url = "https://lists.example.net/a.txt"
	dir := t.TempDir()
	write(t, dir, "fleet.yaml", "version: 1\nfleet: example.net\nparts: [p.yaml]\nsets:\n  scan: { url: \""+url+"\", live: true, counters: true, within: [192.0.2.0/25, \"2001:db8::/32\"] }\n")
	write(t, dir, "p.yaml", "version: 1\ninput: {default: drop, rules: [drop from scan]}\n")
	write(t, dir, filepath.Join("lists", policy.SignedList("scan", url)), "192.0.2.1\n198.51.100.1\n")
	p := load(t, write(t, dir, "host.yaml", "version: 1\nfleet: fleet.yaml\nhost: web-1\nlists: lists\n"))
	given := ""
	opt := Options{Live: func(name string) (io.ReadCloser, error) {
		if name != LiveCopy(url) {
			t.Errorf("asked for %s", name)
		}
		if given == "" {
			return nil, nil
		}
		return io.NopCloser(strings.NewReader(given)), nil
	}}
	holds := func(want, elements string) {
		t.Helper()
		r, err := Resolve(p, opt)
		if err != nil {
			t.Fatal(err)
		}
		s := r.Sets["scan"]
		var counted []string
		for _, e := range s.Elements {
			counted = append(counted, e.String())
		}
		if got := strings.TrimSpace(strings.ReplaceAll(string(s.Addresses.Lines()), "\n", " ")); got != want || strings.Join(counted, " ") != elements || !s.Living {
			t.Errorf("it holds %s, counted by %s", got, counted)
		}
		in, err := InputsOf(p, opt)
		if err != nil || !maps.Equal(in, r.Inputs) || in["list live "+url] == "" {
			t.Errorf("%v: asked %v, read %v", err, in, r.Inputs)
		}
	}
	holds("192.0.2.1", "192.0.2.1")
	given = "192.0.2.0/24\n2001:db8::1\n2001:db9::/48\n"
	holds("192.0.2.0/25 2001:db8::1", "192.0.2.0/25 2001:db8::1")
	given = "198.51.100.1\n"
	holds("", "")
}

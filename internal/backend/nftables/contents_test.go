package nftables

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"strings"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/system/kernel/nft"
)

// TestScript: what a step sends is what its text says.
func TestScript(t *testing.T) {
	all := mustLower(t, together(t))
	rulesets := map[string]string{}
	for name, take := range map[string]func(backend.Step) error{
		"sent": func(s backend.Step) error { return s.Take(context.Background()) },
		"text": func(s backend.Step) error { return nft.Run(context.Background(), s.Text()) },
	} {
		host := kernelHost(t)
		for _, s := range stepsTo(t, all, host.read(t, true)) {
			if err := host.Do(func() error { return take(s) }); err != nil {
				t.Fatalf("%s %s %s: %v", name, s.Purpose, s.Name, err)
			}
		}
		rulesets[name] = host.MustRun("nft", "list", "ruleset")
	}
	if rulesets["sent"] != rulesets["text"] {
		t.Errorf("sent:\n%s\nas text:\n%s", rulesets["sent"], rulesets["text"])
	}
}

// TestMalformed: an element that cannot be written is an error before anything
// of its transaction is sent.
func TestMalformed(t *testing.T) {
	host := kernelHost(t)
	host.Nft("add table inet sluice; add set inet sluice s { type ipv4_addr . inet_service; }")
	s := &Set{Name: "s", Types: []string{"ipv4_addr", "inet_service"}, Elements: Elements{Tuples: []string{"192.0.2.1 . 80", "192.0.2.1 . http"}}}
	c := &contents{table: "sluice", edits: []edit{{insert: s}}}
	err := host.Do(func() error { return c.Take(context.Background()) })
	if err == nil || !strings.Contains(err.Error(), `set s: element "192.0.2.1 . http"`) {
		t.Errorf("got %v", err)
	}
	if text := host.MustRun("nft", "list", "ruleset"); strings.Contains(text, "192.0.2.1") {
		t.Errorf("it left\n%s", text)
	}
}

// TestSendFailures: a set that cannot be filled goes, with those that were filled
// before it for the same change; one that somebody else
// edited meanwhile is to be read again.
func TestSendFailures(t *testing.T) {
	host := kernelHost(t)
	host.Nft("add table inet sluice; add set inet sluice full { type ipv4_addr; size 2; }; add set inet sluice before { type ipv4_addr; }; add set inet sluice living { type ipv4_addr; }; add element inet sluice living { 192.0.2.9 }")
	full := &Set{Name: "full", Types: []string{"ipv4_addr"}, Elements: Elements{Addresses: addrset.MustParse("192.0.2.0/28")}}
	before := &Set{Name: "before", Types: []string{"ipv4_addr"}, Elements: Elements{Addresses: addrset.MustParse("198.51.100.1")}}
	var all fills
	if err := host.Do(func() error {
		return (&contents{table: "sluice", edits: []edit{{insert: before}}, fills: &all}).Take(context.Background())
	}); err != nil {
		t.Fatal(err)
	}
	fill := &contents{table: "sluice", edits: []edit{{insert: full}}, fills: &all}
	err := host.Do(func() error { return fill.Take(context.Background()) })
	if err == nil || !strings.Contains(err.Error(), "add to set sluice full element 192.0.2.2: the set is full") {
		t.Errorf("got %v", err)
	}
	gone := &Set{Name: "living", Types: []string{"ipv4_addr"}, Elements: Elements{Addresses: addrset.MustParse("192.0.2.1")}}
	come := &Set{Name: "living", Types: []string{"ipv4_addr"}, Elements: Elements{Addresses: addrset.MustParse("192.0.2.2")}}
	change := &contents{table: "sluice", edits: []edit{{remove: gone, insert: come}}}
	if err := host.Do(func() error { return change.Take(context.Background()) }); !errors.Is(err, nft.ErrChanged) {
		t.Errorf("got %v", err)
	}
	absent := *come
	absent.Name = "absent"
	if err := host.Do(func() error {
		return (&contents{table: "sluice", edits: []edit{{insert: &absent}}}).Take(context.Background())
	}); !errors.Is(err, nft.ErrChanged) || !strings.Contains(err.Error(), "set sluice absent: the set is not there") {
		t.Errorf("got %v", err)
	}
	text := host.MustRun("nft", "list", "ruleset")
	if strings.Contains(text, "set full") || strings.Contains(text, "set before") || strings.Contains(text, "192.0.2.2") || !strings.Contains(text, "192.0.2.9") {
		t.Errorf("left:\n%s", text)
	}
}

// TestDecodeAnother: what Encode did not write is refused with one sentence.
func TestDecodeAnother(t *testing.T) {
	var first bytes.Buffer // compressed JSON alone, as before sets had parts of their own
	z := gzip.NewWriter(&first)
	if _, err := z.Write([]byte(`{"Format":1,"Tree":{"Sets":[]}}`)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	const want = "decode the artifact: it is not an artifact of this version"
	for _, data := range [][]byte{nil, []byte("table inet sluice {}"), first.Bytes()} {
		if _, err := decode(data); err == nil || err.Error() != want {
			t.Errorf("of %q: %v, want %q", data, err, want)
		}
	}
}

// FuzzDecode: an artifact that was damaged on disk is an error or an artifact.
func FuzzDecode(f *testing.F) {
	a, err := New().Lower(constructs[0].program(), everything)
	if err != nil {
		f.Fatal(err)
	}
	data, err := a.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)-1])
	f.Add(backend.Join())
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := New().Decode(data)
		if err != nil {
			return
		}
		again, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New().Decode(again); err != nil {
			t.Fatal(err)
		}
		_ = a.Text()
	})
}

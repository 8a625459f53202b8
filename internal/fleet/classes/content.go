package classes

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Content is the same for classes of which every question has the same answer: by the texts of
// their parts, what sets hold, and what is known of the first host. Files of sets, and country
// data, are not in it.
func (f *Fleet) Content(c *Class) [sha256.Size]byte {
	h := sha256.New()
	add := func(text []byte) { fmt.Fprintf(h, "%d %s\n", len(text), text) }
	for _, file := range slices.Concat([]string{f.Policy.Fleet.File}, c.Parts) {
		add([]byte(file))
		add(f.text(file))
	}
	f.once.Do(func() { f.values = values(f) })
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		fmt.Fprintf(h, "%q %q\n", name, f.values[name])
	}
	host := *c.Hosts[0]
	text, err := json.Marshal(host)
	if err != nil {
		panic(err) // it is made of texts and addresses
	}
	add(text)
	return [sha256.Size]byte(h.Sum(nil))
}

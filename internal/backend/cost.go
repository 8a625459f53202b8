package backend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Cost is what an artifact takes. In JSON the kinds of its objects are keys beside the
// others, as every generation on disk has them.
type Cost struct {
	Rules    int       `json:"rules"`
	Objects  []Objects `json:"-"`
	Elements int       `json:"elements"`     // of all sets
	Memory   uint64    `json:"memory"`       // bytes of kernel memory, estimated
	LoadTime uint64    `json:"load-time-ns"` // ns, estimated
	// SwitchTime is what of that the switch takes, in ns.
	SwitchTime uint64 `json:"-"`
	// Growth is how many bytes of kernel memory the dynamic tables take beside
	// that when they are full, estimated. They are made empty, and an element
	// is allocated when a packet brings it.
	Growth uint64 `json:"memory-growth,omitempty"`
}

// Objects is how many of a kind of its own a backend keeps in the kernel, beside rules and
// elements.
type Objects struct {
	Kind   string // in the plural: "chains"
	Number int
}

// None is the cost of nothing, with the same kinds of objects.
func (c Cost) None() Cost {
	out := Cost{Objects: slices.Clone(c.Objects)}
	for i := range out.Objects {
		out.Objects[i].Number = 0
	}
	return out
}

// MarshalJSON writes the objects behind the rules.
func (c Cost) MarshalJSON() ([]byte, error) {
	type plain Cost
	data, err := json.Marshal(plain(c))
	rules, rest, _ := bytes.Cut(data, []byte(","))
	out := slices.Clone(rules)
	for _, o := range c.Objects {
		out = fmt.Appendf(out, ",%q:%d", o.Kind, o.Number)
	}
	return fmt.Appendf(out, ",%s", rest), err
}

// UnmarshalJSON reads what MarshalJSON wrote; the time of the switch is lost.
func (c *Cost) UnmarshalJSON(data []byte) error {
	type plain Cost
	*c = Cost{}
	if err := json.Unmarshal(data, (*plain)(c)); err != nil {
		return err
	}
	var numbers map[string]int
	if err := json.Unmarshal(data, &numbers); err != nil {
		return err
	}
	for _, name := range []string{"rules", "elements", "memory", "load-time-ns", "memory-growth"} {
		delete(numbers, name)
	}
	for _, kind := range slices.Sorted(maps.Keys(numbers)) {
		c.Objects = append(c.Objects, Objects{Kind: kind, Number: numbers[kind]})
	}
	return nil
}

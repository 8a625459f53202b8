package classes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/internal/base/english"
)

// name gives classes their names: how many hosts they are, and which labels all of them have,
// of those that select parts where there are any of these. Where that is the same for two, the
// first host is named too.
func (f *Fleet) name(list []*Class) {
	asked := map[string]bool{}
	for _, p := range f.Policy.Fleet.Parts {
		if p.Selector != nil {
			for _, label := range p.Selector.Labels() {
				asked[label] = true
			}
		}
	}
	same := map[string]int{}
	names := make([]string, len(list))
	for i, c := range list {
		common := c.common(slices.Sorted(maps.Keys(asked)))
		if len(common) == 0 {
			common = c.common(slices.Sorted(maps.Keys(c.Hosts[0].Labels)))
		}
		names[i] = strings.Join(common, " ")
		if len(c.Hosts) > 1 {
			same[names[i]]++
		}
	}
	for i, c := range list {
		first := c.Hosts[0].Name
		switch words := strings.TrimSpace(names[i] + " host"); {
		case len(c.Hosts) == 1:
			c.Name = "host " + first
		case same[names[i]] == 1:
			c.Name = english.Plural(len(c.Hosts), words)
		default:
			c.Name = fmt.Sprintf("%s like %s", english.Plural(len(c.Hosts), words), first)
		}
	}
}

// common are the values of labels that all hosts of the class have alike.
func (c *Class) common(labels []string) (out []string) {
	for _, label := range labels {
		value, is := c.Hosts[0].Labels[label]
		for _, h := range c.Hosts[1:] {
			is = is && h.Labels[label] == value
		}
		if is {
			out = append(out, value)
		}
	}
	return out
}

package nftables

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// document is the whole tree for a reader, and for "nft -f" on a host that has
// nothing of it yet. The table is there in one piece; what apply loads is
// the same in steps.
func (t *Tree) document(header []string) string {
	var b strings.Builder
	for _, line := range header {
		b.WriteString(strings.TrimRight("# "+oneLine(line), " ") + "\n")
	}
	for _, family := range t.families() {
		t.only(family).write(&b, family)
	}
	return b.String()
}

// only is what of the tree is in the table of a family.
func (t *Tree) only(family string) *Tree {
	return &Tree{
		Table:      t.Table,
		Counters:   within(family, t.Counters, func(c Counter) string { return c.Name }),
		Limits:     within(family, t.Limits, func(l Limit) string { return l.Name }),
		Sets:       within(family, t.Sets, func(k *Set) string { return k.Name }),
		Flowtables: within(family, t.Flowtables, func(f Flowtable) string { return f.Name }),
		Chains:     within(family, t.Chains, func(c *Chain) string { return c.Name }),
	}
}

// within are those whose names say that they are in the table of a family.
func within[T any](family string, all []T, name func(T) string) []T {
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return tableFamily(name(x)) != family })
}

func (t *Tree) write(b *strings.Builder, family string) {
	fmt.Fprintf(b, "\ntable %s %s {\n", family, t.Table)
	t.writeObjects(b)
	t.writeSets(b)
	for _, c := range t.Chains {
		b.WriteByte('\n')
		c.write(b)
	}
	b.WriteString("}\n")
}

// oneLine makes text fit behind "#": nft ends a comment at the line's end and
// chokes on zero bytes even there.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

func (t *Tree) writeObjects(b *strings.Builder) {
	if len(t.Counters) > 0 {
		b.WriteString("\t# counters: they go on over a reload\n")
		for _, c := range t.Counters {
			fmt.Fprintf(b, "\tcounter %s { %s}\n", c.Name, c.body())
		}
	}
	if len(t.Limits) > 0 {
		b.WriteString("\n\t# limits that several rules share\n")
		for _, l := range t.Limits {
			fmt.Fprintf(b, "\tlimit %s { rate %s; }\n", l.Name, l.Rate.text())
		}
	}
	for _, f := range t.Flowtables {
		fmt.Fprintf(b, "\n\tflowtable %s { %s }\n", f.Name, f.body())
	}
}

func (c Counter) body() string {
	if c.Comment == "" {
		return ""
	}
	return `comment "` + comment(c.Comment) + `"; `
}

func (f Flowtable) body() string {
	return fmt.Sprintf("hook ingress priority 0; devices = { %s };", quotedDevices(f.Devices))
}

func quotedDevices(devices []string) string {
	out := make([]string, len(devices))
	for i, d := range devices {
		out[i] = `"` + d + `"`
	}
	return strings.Join(out, ", ")
}

func (t *Tree) writeSets(b *strings.Builder) {
	for i, s := range t.Sets {
		if i == 0 {
			b.WriteString("\n\t# sets\n")
		}
		if s.Comment != "" {
			b.WriteString("\t# " + oneLine(s.Comment) + "\n")
		}
		fmt.Fprintf(b, "\t%s %s {\n\t\t%s\n", s.noun(), s.Name, s.definition())
		if items := s.texts(nil); len(items) > 0 {
			b.WriteString("\t\telements = {\n")
			wrap(b, items, "\t\t\t")
			b.WriteString("\n\t\t}\n")
		}
		b.WriteString("\t}\n")
	}
}

func (c *Chain) write(b *strings.Builder) {
	if c.Comment != "" {
		b.WriteString("\t# " + oneLine(c.Comment) + "\n")
	}
	fmt.Fprintf(b, "\tchain %s {\n", c.Name)
	if c.Base != nil {
		b.WriteString("\t\t" + c.Base.text() + "\n")
	}
	for _, r := range c.Rules {
		b.WriteString("\t\t" + r.line() + r.flagsSaid() + "\n")
	}
	b.WriteString("\t}\n")
}

// flagsSaid says by name which flags a rule asks with the bytes around them.
func (r Rule) flagsSaid() string {
	for _, s := range r.Statements {
		if flags, is := s.asFlags(); is {
			return " # " + flags.text()
		}
	}
	return ""
}

// text is the line that makes a chain a base chain.
func (base *Base) text() string {
	devices := ""
	if len(base.Devices) > 0 {
		devices = " devices = { " + quotedDevices(base.Devices) + " }"
	}
	return fmt.Sprintf("type %s hook %s%s priority %s; policy %s;", base.Type, base.Hook, devices, strconv.Itoa(base.Priority), base.Policy)
}

// sameHook says whether two base chains differ in nothing but the policy,
// which alone the kernel changes in place.
func (base *Base) sameHook(o *Base) bool {
	if base == nil || o == nil {
		return base == o
	}
	a, b := *base, *o
	a.Policy, b.Policy = "", ""
	return a.text() == b.text()
}

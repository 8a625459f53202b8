package applybench

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// ruleset is a text for nft, taken apart into the objects of its tables.
type ruleset []table

type table struct {
	name    string // "inet sluice"
	objects []object
}

// object is a set, a chain or another object with its braces.
type object struct {
	kind, name string
	text       string // whole, without the tab in front
}

// parse reads a text whose objects begin with one tab, as packages peers and nftables
// write them. No text in quotes has a brace of its own without the other.
func parse(text string) (ruleset, error) {
	var out ruleset
	var open *object
	var body strings.Builder // of the open one
	depth := 0
	count := func(line string) int { return strings.Count(line, "{") - strings.Count(line, "}") }
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		bare := strings.TrimSpace(line)
		switch {
		case open != nil:
			body.WriteString(line + "\n")
			if depth += count(line); depth == 0 {
				open.text, open = body.String(), nil
				body.Reset()
			}
		case bare == "" || strings.HasPrefix(bare, "#") || line == "}":
		case strings.HasPrefix(line, "table "):
			out = append(out, table{name: strings.TrimSuffix(strings.TrimPrefix(line, "table "), " {")})
		case len(out) > 0 && strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "\t\t"):
			kind, rest, _ := strings.Cut(bare, " ")
			name, _, _ := strings.Cut(rest, " ")
			t := &out[len(out)-1]
			t.objects = append(t.objects, object{kind, name, line + "\n"})
			if depth = count(line); depth > 0 {
				open = &t.objects[len(t.objects)-1]
				body.WriteString(open.text)
			}
		default:
			return nil, fmt.Errorf("no object of a table: %q", line)
		}
	}
	if open != nil || len(out) == 0 {
		return nil, fmt.Errorf("no whole table in %d bytes of rules", len(text))
	}
	return out, nil
}

// refill is what most people's file does: everything goes and comes in one
// transaction.
func (r ruleset) refill() string {
	var b strings.Builder
	for _, t := range r {
		fmt.Fprintf(&b, "table %s\ndelete table %s\n", t.name, t.name)
	}
	b.WriteString(r.text(func(object) (string, bool) { return "", false }))
	return b.String()
}

// text is the ruleset; replace may give another text for an object, "" for none.
func (r ruleset) text(replace func(object) (string, bool)) string {
	var b strings.Builder
	for _, t := range r {
		fmt.Fprintf(&b, "table %s {\n", t.name)
		for _, o := range t.objects {
			if other, is := replace(o); is {
				b.WriteString(other)
			} else {
				b.WriteString(o.text)
			}
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// keeps says of an object that packets fill it, or that it has no contents.
func (o object) keeps() bool {
	return o.kind != "set" && o.kind != "map" || strings.Contains(o.text, "dynamic") || strings.Contains(o.text, "timeout")
}

func (o object) isBase() bool { return strings.Contains(o.text, "\t\ttype ") }

// suffixed gives every set with contents a name of its own in a version, and the
// rules and maps that name it too.
func (r ruleset) suffixed(version string) (out ruleset) {
	names := map[string]string{} // by table and old name
	for _, t := range r {
		for _, o := range t.objects {
			if !o.keeps() {
				names[t.name+" "+o.name] = o.name + version
			}
		}
	}
	for _, t := range r {
		next := table{name: t.name}
		for _, o := range t.objects {
			if now, is := names[t.name+" "+o.name]; is && !o.keeps() {
				o.text = strings.Replace(o.text, o.kind+" "+o.name+" {", o.kind+" "+now+" {", 1)
				o.name = now
			}
			o.text = setName.ReplaceAllStringFunc(o.text, func(ref string) string {
				if now, is := names[t.name+" "+ref[1:]]; is {
					return "@" + now
				}
				return ref
			})
			next.objects = append(next.objects, o)
		}
		out = append(out, next)
	}
	return out
}

// setName is a set where a rule names it.
var setName = regexp.MustCompile(`@[A-Za-z][A-Za-z0-9/\\_.-]*`)

// steps are the three transactions that lose nothing: new sets, filled; the rules,
// switched; what drop says, deleted. The sets of this version have a suffix; drops
// are what deletes them when the next one runs.
func (r ruleset) steps(version, drop string) (steps []string, drops string) {
	next := r.suffixed(version)
	fill := next.text(func(o object) (string, bool) {
		switch {
		case o.kind != "chain":
			return "", false
		case o.isBase():
			return "", true
		}
		return "\tchain " + o.name + " { }\n", true // maps may jump there
	})
	var turn strings.Builder
	for _, t := range next {
		for _, o := range t.objects {
			switch {
			case o.kind == "chain":
				turn.WriteString(declare(t, o))
				fmt.Fprintf(&turn, "flush chain %s %s\n", t.name, o.name)
			case !o.keeps():
				drops += fmt.Sprintf("delete %s %s %s\n", o.kind, t.name, o.name)
			}
		}
	}
	turn.WriteString(next.text(func(o object) (string, bool) { return "", o.kind != "chain" }))
	steps = []string{fill, turn.String()}
	if drop != "" {
		steps = append(steps, drop)
	}
	return steps, drops
}

// declare makes a chain with its hook and without rules, so that it can be flushed
// whether or not it was there.
func declare(t table, o object) string {
	if !o.isBase() {
		return fmt.Sprintf("add chain %s %s\n", t.name, o.name)
	}
	for line := range strings.Lines(o.text) {
		if hook := strings.TrimSpace(line); strings.HasPrefix(hook, "type ") {
			return fmt.Sprintf("add chain %s %s { %s }\n", t.name, o.name, hook)
		}
	}
	return ""
}

// holder finds the set that has an address among its elements.
func (r ruleset) holder(a netip.Addr) (table, set string, found bool) {
	whole := regexp.MustCompile(`[\s,]` + regexp.QuoteMeta(a.String()) + `[\s,]`)
	for _, t := range r {
		for _, o := range t.objects {
			if (o.kind == "set" || o.kind == "map") && whole.MatchString(o.text) {
				return t.name, o.name, o.kind == "set"
			}
		}
	}
	return "", "", false
}

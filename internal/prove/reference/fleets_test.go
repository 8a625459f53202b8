package reference

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
)

// fleet is a fleet that was drawn, and what the test knows of it itself.
type fleet struct {
	texts map[string][]byte
	of    map[string]func(labels map[string]string) bool // by part
	rules map[string]int                                 // of input, by part
}

// Random fleets of 1 to 40 parts, and hosts of them: a host's policy has the rules of the
// parts that its labels select and no others, in their order, and what it is compiled to
// does to packets what the reference says, forged sources of guests among them.
func TestRandomFleets(t *testing.T) {
	uncertain := 0
	g := generator{testseed.Rand(t), &uncertain}
	fleets, packets := 300, 200
	if testing.Short() {
		fleets, packets = 25, 100
	}
	held, selected := map[policy.Action]int{}, map[bool]int{}
	for range fleets {
		f := g.fleet()
		for range 1 + g.IntN(3) {
			view := g.view()
			p, err := (policy.Reading{Texts: f.texts, View: view}).Load("fleet.yaml")
			if err != nil {
				t.Fatalf("%v\n%s", err, f)
			}
			var want, got []string
			for _, part := range p.Fleet.Parts {
				labels := map[string]string{"host": view.Host, "role": view.Labels["role"], "env": view.Labels["env"]}
				if slices.ContainsFunc(view.Guests, func(g policy.Guest) bool {
					return g.Name == "vm-1" && g.Addresses[0].Range.Contains(netip.MustParseAddr("10.20.0.5"))
				}) {
					labels["guest"] = "vm-1"
				}
				is := f.of[part.File](labels)
				if selected[is]++; is != part.Matches {
					t.Errorf("%s is of %s: %v", part.File, p.Fleet, part.Matches)
				}
				if is {
					want = append(want, slices.Repeat([]string{part.File}, f.rules[part.File])...)
				}
			}
			for _, r := range p.Input.Rules {
				got = append(got, r.Pos.File)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the rules of %s are of %v, want %v", p.Fleet, got, want)
			}
			r, err := resolve.Resolve(p, resolve.Options{Facts: town})
			if err != nil {
				t.Fatal(err)
			}
			plain, optimized := compiled(t, r, optional).BehindRouting(), compiled(t, r, nil).BehindRouting()
			for range packets {
				packet, way := g.packet()
				path := Explain(r, packet, way)
				if path.Stage == "held" {
					held[path.Verdict]++
				}
				g.compare(t, plain, "compiled", packet, way, path)
				g.compare(t, optimized, "optimized", packet, way, path)
			}
			if t.Failed() {
				t.Fatalf("%s, guests %+v, members %v\n%s", p.Fleet, view.Guests, view.Members, f)
			}
		}
	}
	if held[policy.Drop] == 0 || selected[true] == 0 || selected[false] == 0 {
		t.Errorf("the test shows nothing of forged sources, or of selectors: %v %v", held, selected)
	}
}

func (f *fleet) String() string {
	var b strings.Builder
	for name, text := range f.texts {
		fmt.Fprintf(&b, "# %s\n%s", name, text)
	}
	return b.String()
}

func (g generator) fleet() *fleet {
	f := &fleet{texts: map[string][]byte{}, of: map[string]func(map[string]string) bool{}, rules: map[string]int{}}
	f.texts["fleet.yaml"] = []byte("version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nsets:\n" +
		"  a: { hosts: role=web, within: [203.0.113.0/24, 192.0.2.0/24, \"2001:db8:77::/48\"] }\n" +
		"  d: { guests: app=api, within: [10.20.0.0/16, \"2001:db8:20::/48\", 203.0.113.0/24, 198.51.100.77] }\nguests: { public: [0.0.0.0/0, \"::/0\"] }\n")
	base := sides + "  bureau: { networks: [203.0.113.0/24, \"2001:db8:77::/48\"] }\nsets:\n  b: [" + g.prefixes(2) + "]\n  c: { union: [a, b], except: [d] }\n"
	if g.IntN(2) == 0 {
		base += "tracking: { invalid: allow }\n"
	}
	for _, section := range []string{"input", "forward", "output"} {
		base += section + ": { default: " + pick(g, "drop", "reject", "allow") + " }\n"
	}
	f.texts["parts/00.yaml"] = []byte(base)
	f.of["parts/00.yaml"] = func(map[string]string) bool { return true }
	f.texts["parts/99.yaml"] = []byte("version: 1\nonly: guests app=api\nforward: {rules: ['" + pick(g, "allow ssh to d", "drop any from b to d", "reject http to [d, 10.20.0.5]") + "']}\n")
	f.of["parts/99.yaml"] = func(labels map[string]string) bool { return labels["guest"] != "" }
	guests := g.IntN(3) // of the parts that say something of guests none but one may
	for i := 1; i <= 1+g.IntN(39); i++ {
		name := fmt.Sprintf("parts/%02d.yaml", i)
		text, of := g.selector(2)
		b := "version: 1\nhosts: " + text + "\n"
		if g.IntN(4) == 0 {
			b, of = "version: 1\nrequires: [c]\n", func(map[string]string) bool { return true }
			if guests == 1 {
				b += "guests: {enforce: forward, public: map}\n"
			}
			guests = 0
		}
		for _, section := range []string{"input", "forward", "output"} {
			if g.IntN(2) == 0 {
				continue
			}
			b += section + ":\n  rules:\n"
			for range 1 + g.IntN(3) {
				line := g.rule(section)
				if g.IntN(5) == 0 {
					line = strings.NewReplacer("from a", "from guests", "to c", "to guests").Replace(line)
				}
				b += "    - " + line + "\n"
				if section == "input" {
					f.rules[name]++
				}
			}
		}
		f.texts[name], f.of[name] = []byte(b), of
	}
	return f
}

// selector draws a selector and what it means.
func (g generator) selector(depth int) (string, func(map[string]string) bool) {
	if depth > 0 && g.IntN(2) == 0 {
		left, a := g.selector(depth - 1)
		right, b := g.selector(depth - 1)
		switch g.IntN(3) {
		case 0:
			return "(" + left + ") and (" + right + ")", func(l map[string]string) bool { return a(l) && b(l) }
		case 1:
			return "(" + left + ") or (" + right + ")", func(l map[string]string) bool { return a(l) || b(l) }
		}
		return "not (" + left + ")", func(l map[string]string) bool { return !a(l) }
	}
	name, value := "role", pick(g, "web", "db", "none")
	switch g.IntN(3) {
	case 0:
		name, value = "env", pick(g, "prod", "test")
	case 1:
		name, value = "host", pick(g, "h1", "h2")
	}
	switch g.IntN(4) {
	case 0:
		return name + "!=" + value, func(l map[string]string) bool { return l[name] != value }
	case 1:
		return name, func(l map[string]string) bool { return l[name] != "" }
	}
	return name + "=" + value, func(l map[string]string) bool { return l[name] == value }
}

func (g generator) view() *policy.View {
	v := &policy.View{Host: pick(g, "h1", "h2", "h3"), Labels: map[string]string{}, Members: map[string][]policy.Range{}}
	if g.IntN(4) > 0 {
		v.Labels["role"] = pick(g, "web", "db")
	}
	if g.IntN(4) > 0 {
		v.Labels["env"] = pick(g, "prod", "test")
	}
	some := func(list ...string) (out []policy.Range) {
		for _, text := range list {
			if r, err := addrset.ParseRange(text); err == nil && g.IntN(2) == 0 {
				out = append(out, policy.Range{Range: r})
			}
		}
		return out
	}
	v.Members["a"] = some("203.0.113.7", "203.0.113.200", "192.0.2.66", "2001:db8:77::7")
	v.Members["d"] = some("10.20.0.5", "10.20.0.6", "2001:db8:20::5", "203.0.113.7")
	if addresses := some("10.20.0.5", "2001:db8:20::5", "2001:db8:20::6"); len(addresses) > 0 {
		v.Guests = append(v.Guests, policy.Guest{Name: "vm-1", Interface: policy.Word{Text: "lan0"}, Addresses: addresses})
		if addresses[0].Range.From.Is4() {
			v.Guests[0].Labels = map[string]string{"app": "api"}
			v.Guests[0].Public = some("198.51.100.70")
		}
	}
	if addresses := some("203.0.113.7", "203.0.113.200", "198.51.100.77"); len(addresses) > 0 {
		v.Guests = append(v.Guests, policy.Guest{Name: "vm-2", Interface: policy.Word{Text: "dmz0"}, Addresses: addresses})
	}
	return v
}

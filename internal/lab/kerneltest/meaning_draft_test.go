package kerneltest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
)

// draft is a policy as lines that can be taken out one by one: what a random one
// is made as, and what a failing one is shrunk by.
type draft struct {
	head     []string            // keys with their whole value: "tracking: {…}"
	zones    []string            // "wan: {…}"
	sets     []string            // "a: […]"
	services []string            // "web: […]"
	ban      []string            // names and addresses
	never    []string            // the same
	bypass   []string            // "web to listeners"
	invalid  []string            // "invalid: allow", "icmp-errors: all", or nothing
	nat      []string            // lines
	sections []*draftSection     // input, output, forward
	files    map[string][]string // that sets name: lines by file
	included []string            // rules of forward or input in a file of their own
}

type draftSection struct {
	name, head string // head: "default: drop"
	rules      []string
}

// lists gives every list of lines of the draft, for shrinking.
func (d *draft) lists() []*[]string {
	out := []*[]string{&d.nat, &d.bypass, &d.invalid, &d.ban, &d.never, &d.included}
	for _, s := range d.sections {
		out = append(out, &s.rules)
	}
	return append(out, &d.sets, &d.services, &d.zones, &d.head)
}

func (d *draft) clone() *draft {
	out := *d
	out.sections = nil
	for _, s := range d.sections {
		c := *s
		c.rules = slices.Clone(s.rules)
		out.sections = append(out.sections, &c)
	}
	for _, list := range []*[]string{&out.head, &out.zones, &out.sets, &out.services, &out.ban, &out.never, &out.bypass, &out.invalid, &out.nat, &out.included} {
		*list = slices.Clone(*list)
	}
	out.files = map[string][]string{}
	for name, lines := range d.files {
		out.files[name] = lines
	}
	return &out
}

// size is how many lines the draft has.
func (d *draft) size() (n int) {
	for _, list := range d.lists() {
		n += len(*list)
	}
	for _, lines := range d.files {
		n += len(lines)
	}
	return n
}

func (d *draft) text() string {
	var b strings.Builder
	b.WriteString("version: 1\n")
	if len(d.included) > 0 {
		b.WriteString("include: [part.yaml]\n")
	}
	for _, line := range d.head {
		b.WriteString(line + "\n")
	}
	for _, group := range []struct {
		name  string
		lines []string
	}{{"zones", d.zones}, {"sets", d.sets}, {"services", d.services}} {
		if len(group.lines) > 0 {
			fmt.Fprintf(&b, "%s:\n  %s\n", group.name, strings.Join(group.lines, "\n  "))
		}
	}
	for _, group := range []struct {
		name  string
		items []string
	}{{"ban", d.ban}, {"never-ban", d.never}} {
		if len(group.items) > 0 {
			fmt.Fprintf(&b, "%s: [%s]\n", group.name, strings.Join(group.items, ", "))
		}
	}
	if len(d.bypass)+len(d.invalid) > 0 {
		b.WriteString("tracking:\n")
		if len(d.bypass) > 0 {
			fmt.Fprintf(&b, "  bypass: [%s]\n", strings.Join(d.bypass, ", "))
		}
		for _, line := range d.invalid {
			b.WriteString("  " + line + "\n")
		}
	}
	for _, s := range d.sections {
		fmt.Fprintf(&b, "%s:\n  %s\n", s.name, s.head)
		if len(s.rules) > 0 {
			fmt.Fprintf(&b, "  rules:\n    - %s\n", strings.Join(s.rules, "\n    - "))
		}
	}
	if len(d.nat) > 0 {
		fmt.Fprintf(&b, "nat:\n  - %s\n", strings.Join(d.nat, "\n  - "))
	}
	return b.String()
}

// write puts the policy with its files into a folder and gives the main file.
func (d *draft) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"policy.yaml": d.text()}
	for name, lines := range d.files {
		files[name] = strings.Join(lines, "\n") + "\n"
	}
	if len(d.included) > 0 {
		files["part.yaml"] = "version: 1\ninput:\n  rules:\n    - " + strings.Join(d.included, "\n    - ") + "\n"
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "policy.yaml")
}

// String is the policy and its files, long ones cut.
func (d *draft) String() string {
	text := d.text()
	for name, lines := range d.files {
		shown := lines[:min(len(lines), 12)]
		text += fmt.Sprintf("--- %s, %d lines\n%s\n", name, len(lines), strings.Join(shown, "\n"))
	}
	if len(d.included) > 0 {
		text += "--- part.yaml, rules of input\n" + strings.Join(d.included, "\n") + "\n"
	}
	return text
}

// drafter makes random policies.
type drafter struct {
	*rand.Rand
	draft *draft
	names []string // of sets that rules may name
	uses  []string // services
}

func (r *drafter) one(list ...string) string { return list[r.IntN(len(list))] }

// chance is true once in n times.
func (r *drafter) chance(n int) bool { return r.IntN(n) == 0 }

// scale is how large a policy is.
type scale struct{ rules, elements int }

// make makes a policy with about so many rules, and large sets of about so many
// elements where that is not 0.
func (r *drafter) make(s scale) *draft {
	r.draft = &draft{files: map[string][]string{}}
	r.zones()
	r.sets(s.elements)
	r.services()
	d := r.draft
	if r.chance(2) {
		for range 1 + r.IntN(3) {
			d.ban = append(d.ban, r.one(append(r.names, r.address())...))
		}
		if r.chance(2) {
			d.never = append(d.never, r.one(append(r.names, r.address())...))
		}
	}
	r.tracking()
	if s.elements > 0 && r.chance(2) {
		d.head = append(d.head, "layout: "+r.one("{memory: 1MiB, load: 100ms}", "{memory: 256MiB, load: 2s}", "{memory: 16MiB}"))
	}
	left := max(1, s.rules)
	hooks := []string{"input", "forward", "output"}
	for i, name := range hooks {
		if r.chance(9) {
			continue // not policed
		}
		section := &draftSection{name: name, head: "default: " + r.one("drop", "drop", "drop", "reject", "reject", "allow", `'drop log "x"'`, `'reject log "y"'`)}
		if name == "forward" && r.chance(4) {
			section.head += "\n  accelerate: true"
		}
		n := 1 + r.IntN(left)
		if i == len(hooks)-1 {
			n = max(1, left)
		}
		for len(section.rules) < n {
			if n-len(section.rules) > 4 && r.chance(4) {
				section.rules = append(section.rules, r.alike(name, n-len(section.rules))...)
				continue
			}
			section.rules = append(section.rules, r.rule(name))
		}
		left = max(1, left-n)
		d.sections = append(d.sections, section)
	}
	if r.chance(6) && slices.ContainsFunc(d.sections, func(s *draftSection) bool { return s.name == "input" }) {
		for range 1 + r.IntN(3) {
			d.included = append(d.included, r.rule("input"))
		}
	}
	if r.chance(2) {
		r.nat()
	}
	return d
}

func (r *drafter) zones() {
	r.draft.zones = []string{
		"wan: { interfaces: [" + r.one("default-route", "wan0", `"w*"`) + "] }",
		"lan: { interfaces: [" + r.one("lan0", `"lan0*"`) + `], networks: [10.20.0.0/24, "2001:db8:20::/64"] }`,
		r.one(`dmz: { interfaces: [lan1] }`, `dmz: { networks: [10.30.0.0/24, "2001:db8:30::/64"] }`, `dmz: { interfaces: [lan1], networks: [10.30.0.0/25] }`),
		r.one(`sides: { interfaces: ["lan*"] }`, `sides: { interfaces: [lan0, lan1], networks: [10.0.0.0/8, "2001:db8::/32"] }`),
		`bureau: { networks: [203.0.113.0/24, "2001:db8:77::/48"] }`,
	}
}

// countries of few ranges and of many.
var someCountries = []string{"[SM]", "[VA, MC]", "[IT]", "[NO, SE]", "[IS, LI]", "[NZ]"}

func (r *drafter) sets(elements int) {
	d := r.draft
	add := func(name, value string) {
		d.sets = append(d.sets, name+": "+value)
		r.names = append(r.names, name)
	}
	r.names = nil
	list := func(n int) string {
		var out []string
		for range n {
			out = append(out, `"`+r.address()+`"`)
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	add("a", list(1+r.IntN(6)))
	add("b", list(1+r.IntN(3)))
	add("d", list(1+r.IntN(2)))
	if r.chance(3) {
		add("counted", "{ addresses: "+list(1+r.IntN(5))+", counters: true }")
	}
	if r.chance(3) || elements > 0 {
		n := 2 + r.IntN(30)
		if elements > 0 {
			n = elements/2 + r.IntN(elements)
		}
		d.files["many.txt"] = r.manyAddresses(n)
		add("many", r.one("{ file: many.txt }", "{ file: many.txt, counters: true }", "{ file: many.txt, except: [d] }"))
	}
	if r.chance(4) {
		add("land", "{ countries: "+r.one(someCountries...)+" }")
	} else if elements > 1000 {
		add("land", r.one("{ continents: [EU] }", "{ continents: [AF], countries: [IT] }", "{ countries: [DE, FR, GB, NL, US] }"))
	}
	if r.chance(6) {
		add("listed", `{ url: "`+listURL+`", refresh: 1h }`)
	}
	add("c", "{ union: ["+strings.Join(r.some(r.names, 2), ", ")+"], except: [d] }")
}

// some takes some of a list, in any order.
func (r *drafter) some(list []string, n int) []string {
	out := slices.Clone(list)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(n, len(out))]
}

// manyAddresses are lines of a file: addresses, prefixes and ranges, half of them
// around the places that packets come from.
func (r *drafter) manyAddresses(n int) (out []string) {
	for range n {
		if n < 50 && r.chance(2) {
			out = append(out, r.address())
			continue
		}
		var a netip.Addr
		if r.chance(3) {
			b := netip.MustParseAddr("2001:db8::").As16()
			for i := 4; i < 16; i++ {
				b[i] = byte(r.IntN(256))
			}
			a = netip.AddrFrom16(b)
		} else {
			a = netip.AddrFrom4([4]byte{byte(1 + r.IntN(223)), byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))})
		}
		switch bits := a.BitLen() - max(0, r.IntN(14)-4); {
		case r.chance(8):
			to := a
			for range 1 + r.IntN(30) {
				if next := to.Next(); next.IsValid() {
					to = next
				}
			}
			out = append(out, a.String()+"-"+to.String())
		case bits == a.BitLen():
			out = append(out, a.String())
		default:
			out = append(out, netip.PrefixFrom(a, bits).Masked().String())
		}
	}
	return out
}

// quarters are the networks around which policies and packets meet.
var quarters = []string{
	"203.0.113.0/24", "2001:db8:77::/48", // the bureau
	"192.0.2.0/24", "2001:db8:99::/48", "2001:db8:bad::/48", // strangers
	"198.51.100.0/24", "2001:db8:100::/64", // the host's neighbours outside
	"10.20.0.0/24", "2001:db8:20::/64", // behind lan0
	"10.99.0.0/24", "2001:db8:aaaa::/64", // the same, of networks that are not the lan's
	"10.30.0.0/24", "2001:db8:30::/64", // behind lan1
	"198.51.100.32/28", "2001:db8:100:f::/64", // what is mapped
}

// address is an address, prefix or range in or around one of the quarters.
func (r *drafter) address() string {
	q := netip.MustParsePrefix(r.one(quarters...))
	a := near(r.Rand, q)
	bits := a.BitLen()
	switch r.IntN(5) {
	case 0, 1:
	case 2:
		bits -= r.IntN(9)
	default:
		bits = q.Bits() + r.IntN(bits-q.Bits()+1)
	}
	p := netip.PrefixFrom(a, bits).Masked()
	if r.chance(4) {
		to := a
		for range 1 + r.IntN(40) {
			to = to.Next()
		}
		if range1, err := addrset.NewRange(a, to); err == nil {
			return range1.String()
		}
	}
	if bits == a.BitLen() {
		return a.String()
	}
	return p.String()
}

// near is an address of a network, mostly one of its first.
func near(r *rand.Rand, p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	n := len(b)
	b[n-1] += byte(r.IntN(12))
	if r.IntN(3) == 0 {
		b[n-1] |= byte(r.IntN(256)) & byte(1<<min(8, p.Addr().BitLen()-p.Bits())-1)
	}
	if n == 16 && r.IntN(3) == 0 && p.Bits() <= 48 {
		b[7] = byte(r.IntN(4)) // another /64
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

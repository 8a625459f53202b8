// Package drafts makes random policies that use every word of the language, by a seed:
// kerneltest holds them against the kernel, and the oracle one program against another.
package drafts

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
)

// Draft is a policy as lines that can be taken out one by one: what a random one
// is made as, and what a failing one is shrunk by.
type Draft struct {
	Head     []string            // keys with their whole value: "tracking: {…}"
	Zones    []string            // "wan: {…}"
	Sets     []string            // "a: […]"
	Services []string            // "web: […]"
	Ban      []string            // names and addresses
	Never    []string            // the same
	Bypass   []string            // "web to listeners"
	Invalid  []string            // "invalid: allow", "icmp-errors: all", or nothing
	NAT      []string            // lines
	Sections []*Section          // input, output, forward
	Files    map[string][]string // that sets name: lines by file
	Included []string            // rules of forward or input in a file of their own
	// Allowed are who is let in by command, in no file: "ADDRESS SERVICE", with " over bans"
	// behind where that holds before bans.
	Allowed []string
	Added   []string // to the set "lived" by command, in no file: "ADDRESS", with " ends" behind
}

// Section is one of input, output and forward.
type Section struct {
	Name, Head string // Head: "default: drop"
	Rules      []string
}

// Lists gives every list of lines of the draft, for shrinking.
func (d *Draft) Lists() []*[]string {
	out := []*[]string{&d.NAT, &d.Bypass, &d.Invalid, &d.Ban, &d.Never, &d.Included, &d.Allowed, &d.Added}
	for _, s := range d.Sections {
		out = append(out, &s.Rules)
	}
	return append(out, &d.Sets, &d.Services, &d.Zones, &d.Head)
}

// Clone shares no list with the draft but those of Files.
func (d *Draft) Clone() *Draft {
	out := *d
	out.Sections = nil
	for _, s := range d.Sections {
		c := *s
		c.Rules = slices.Clone(s.Rules)
		out.Sections = append(out.Sections, &c)
	}
	for _, list := range []*[]string{&out.Head, &out.Zones, &out.Sets, &out.Services, &out.Ban, &out.Never, &out.Bypass, &out.Invalid, &out.NAT, &out.Included, &out.Allowed, &out.Added} {
		*list = slices.Clone(*list)
	}
	out.Files = map[string][]string{}
	for name, lines := range d.Files {
		out.Files[name] = lines
	}
	return &out
}

// Size is how many lines the draft has.
func (d *Draft) Size() (n int) {
	for _, list := range d.Lists() {
		n += len(*list)
	}
	for _, lines := range d.Files {
		n += len(lines)
	}
	return n
}

// Text is the policy without its files.
func (d *Draft) Text() string {
	var b strings.Builder
	b.WriteString("version: 1\n")
	if len(d.Included) > 0 {
		b.WriteString("include: [part.yaml]\n")
	}
	for _, line := range d.Head {
		b.WriteString(line + "\n")
	}
	for _, group := range []struct {
		name  string
		lines []string
	}{{"zones", d.Zones}, {"sets", d.Sets}, {"services", d.Services}} {
		if len(group.lines) > 0 {
			fmt.Fprintf(&b, "%s:\n  %s\n", group.name, strings.Join(group.lines, "\n  "))
		}
	}
	for _, group := range []struct {
		name  string
		items []string
	}{{"ban", d.Ban}, {"never-ban", d.Never}} {
		if len(group.items) > 0 {
			fmt.Fprintf(&b, "%s: [%s]\n", group.name, strings.Join(group.items, ", "))
		}
	}
	if len(d.Bypass)+len(d.Invalid) > 0 {
		b.WriteString("tracking:\n")
		if len(d.Bypass) > 0 {
			fmt.Fprintf(&b, "  bypass: [%s]\n", strings.Join(d.Bypass, ", "))
		}
		for _, line := range d.Invalid {
			b.WriteString("  " + line + "\n")
		}
	}
	for _, s := range d.Sections {
		fmt.Fprintf(&b, "%s:\n  %s\n", s.Name, s.Head)
		if len(s.Rules) > 0 {
			fmt.Fprintf(&b, "  rules:\n    - %s\n", strings.Join(s.Rules, "\n    - "))
		}
	}
	if len(d.NAT) > 0 {
		fmt.Fprintf(&b, "nat:\n  - %s\n", strings.Join(d.NAT, "\n  - "))
	}
	return b.String()
}

// Main is the name of the file that includes and names the others.
const Main = "policy.yaml"

// Texts are the policy's files by their names, [Main] among them.
func (d *Draft) Texts() map[string]string {
	files := map[string]string{Main: d.Text()}
	for name, lines := range d.Files {
		files[name] = strings.Join(lines, "\n") + "\n"
	}
	if len(d.Included) > 0 {
		files["part.yaml"] = "version: 1\ninput:\n  rules:\n    - " + strings.Join(d.Included, "\n    - ") + "\n"
	}
	return files
}

// Drop takes out what these lines of the text say, and with included all that is in the
// other file: what the language refuses. It is false where nothing was found.
func (d *Draft) Drop(lines []int, included bool) bool {
	text := strings.Split(d.Text(), "\n")
	before := d.Size()
	if included {
		d.Included = nil
	}
	for _, n := range lines {
		if n < 1 || n > len(text) {
			continue
		}
		line := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text[n-1]), "- "))
		switch {
		case strings.HasPrefix(line, "bypass:"):
			d.Bypass = nil
		case strings.HasPrefix(line, "ban:"):
			d.Ban = nil
		case strings.HasPrefix(line, "never-ban:"):
			d.Never = nil
		default:
			for _, l := range d.Lists() {
				*l = slices.DeleteFunc(*l, func(s string) bool { return s == line })
			}
		}
	}
	return d.Size() < before
}

// String is the policy and its files, long ones cut.
func (d *Draft) String() string {
	text := d.Text()
	for name, lines := range d.Files {
		shown := lines[:min(len(lines), 12)]
		text += fmt.Sprintf("--- %s, %d lines\n%s\n", name, len(lines), strings.Join(shown, "\n"))
	}
	if len(d.Included) > 0 {
		text += "--- part.yaml, rules of input\n" + strings.Join(d.Included, "\n") + "\n"
	}
	if len(d.Allowed) > 0 {
		text += "--- let in by command\n" + strings.Join(d.Allowed, "\n") + "\n"
	}
	if len(d.Added) > 0 {
		text += "--- added to lived by command\n" + strings.Join(d.Added, "\n") + "\n"
	}
	return text
}

// drafter makes random policies.
type drafter struct {
	*rand.Rand
	draft *Draft
	names []string // of sets that rules may name
	uses  []string // services
}

func (r *drafter) one(list ...string) string { return list[r.IntN(len(list))] }

// chance is true once in n times.
func (r *drafter) chance(n int) bool { return r.IntN(n) == 0 }

// Scale is how large a policy is.
type Scale struct{ Rules, Elements int }

// New makes a random policy with about so many rules, and large sets of about so many
// elements where that is not 0. The language may refuse it: what is random has words
// that mean nothing together.
func New(random *rand.Rand, s Scale) *Draft {
	r := &drafter{Rand: random}
	r.draft = &Draft{Files: map[string][]string{}}
	r.zones()
	r.sets(s.Elements)
	r.services()
	d := r.draft
	if r.chance(2) {
		for range 1 + r.IntN(3) {
			d.Ban = append(d.Ban, r.one(append(r.names, r.address())...))
		}
		if r.chance(2) {
			d.Never = append(d.Never, r.one(append(r.names, r.address())...))
		}
	}
	r.tracking()
	if s.Elements > 0 && r.chance(2) {
		d.Head = append(d.Head, "layout: "+r.one("{memory: 1MiB, load: 100ms}", "{memory: 256MiB, load: 2s}", "{memory: 16MiB}"))
	}
	if r.chance(4) {
		d.Head = append(d.Head, "counters: false")
	}
	if r.chance(4) {
		d.Head = append(d.Head, "log: netlink")
	}
	left := max(1, s.Rules)
	hooks := []string{"input", "forward", "output"}
	for i, name := range hooks {
		if r.chance(9) {
			continue // not policed
		}
		section := &Section{Name: name, Head: "default: " + r.one("drop", "drop", "drop", "reject", "reject", "allow", `'drop log "x"'`, `'reject log "y"'`)}
		if name == "forward" && r.chance(4) {
			section.Head += "\n  accelerate: true"
		}
		n := 1 + r.IntN(left)
		if i == len(hooks)-1 {
			n = max(1, left)
		}
		for len(section.Rules) < n {
			if n-len(section.Rules) > 4 && r.chance(4) {
				section.Rules = append(section.Rules, r.alike(name, n-len(section.Rules))...)
				continue
			}
			section.Rules = append(section.Rules, r.rule(name))
		}
		left = max(1, left-n)
		d.Sections = append(d.Sections, section)
	}
	if r.chance(6) && slices.ContainsFunc(d.Sections, func(s *Section) bool { return s.Name == "input" }) {
		for range 1 + r.IntN(3) {
			d.Included = append(d.Included, r.rule("input"))
		}
	}
	if r.chance(2) {
		r.nat()
	}
	for range r.IntN(2) * (1 + r.IntN(3)) {
		who := r.address()
		if len(d.Ban) > 0 && r.chance(2) {
			if banned := r.one(d.Ban...); !slices.Contains(r.names, banned) {
				who = banned
			}
		}
		d.Allowed = append(d.Allowed, who+" "+r.one("any", "tcp/22", "tcp/80", "tcp/8080", "tcp", "udp/53", "[tcp/25, udp/123]", "icmp echo-request", "proto/47")+r.one("", " over bans", " over bans"))
	}
	return d
}

func (r *drafter) zones() {
	r.draft.Zones = []string{
		"wan: { interfaces: [" + r.one("default-route", "wan0", `"w*"`) + "] }",
		"lan: { interfaces: [" + r.one("lan0", `"lan0*"`) + `], networks: [10.20.0.0/24, "2001:db8:20::/64"] }`,
		r.one(`dmz: { interfaces: [lan1] }`, `dmz: { networks: [10.30.0.0/24, "2001:db8:30::/64"] }`, `dmz: { interfaces: [lan1], networks: [10.30.0.0/25] }`),
		r.one(`sides: { interfaces: ["lan*"] }`, `sides: { interfaces: [lan0, lan1], networks: [10.0.0.0/8, "2001:db8::/32"] }`),
		`bureau: { networks: [203.0.113.0/24, "2001:db8:77::/48"] }`,
	}
}

// ListURL is the list of a policy that has one.
const ListURL = "https://lists.example.net/villains.txt"

// countries of few ranges and of many.
var someCountries = []string{"[SM]", "[VA, MC]", "[IT]", "[NO, SE]", "[IS, LI]", "[NZ]"}

func (r *drafter) sets(elements int) {
	d := r.draft
	add := func(name, value string) {
		d.Sets = append(d.Sets, name+": "+value)
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
		d.Files["many.txt"] = r.manyAddresses(n)
		add("many", r.one("{ file: many.txt }", "{ file: many.txt, counters: true }", "{ file: many.txt, except: [d] }"))
	}
	if r.chance(4) {
		add("land", "{ countries: "+r.one(someCountries...)+" }")
	} else if elements > 1000 {
		add("land", r.one("{ continents: [EU] }", "{ continents: [AF], countries: [IT] }", "{ countries: [DE, FR, GB, NL, US] }"))
	}
	if r.chance(6) {
		add("listed", `{ url: "`+ListURL+`", refresh: 1h }`)
	}
	add("c", "{ union: ["+strings.Join(r.some(r.names, 2), ", ")+"], except: [d] }")
	if r.chance(2) {
		add("lived", "{ living: true, addresses: "+list(r.IntN(3))+" }")
		for range r.IntN(5) {
			d.Added = append(d.Added, r.address()+r.one("", " ends"))
		}
	}
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

// Quarters are the networks around which policies and packets meet.
var Quarters = []string{
	"203.0.113.0/24", "2001:db8:77::/48", // the bureau
	"192.0.2.0/24", "2001:db8:99::/48", "2001:db8:bad::/48", // strangers
	"198.51.100.0/24", "2001:db8:100::/64", // the host's neighbours outside
	"10.20.0.0/24", "2001:db8:20::/64", // behind lan0
	"10.99.0.0/24", "2001:db8:aaaa::/64", // the same, of networks that are not the lan's
	"10.30.0.0/24", "2001:db8:30::/64", // behind lan1
	"198.51.100.32/28", "2001:db8:100:f::/64", // what is mapped
}

// address is an address, prefix or range in or around one of the Quarters.
func (r *drafter) address() string {
	q := netip.MustParsePrefix(r.one(Quarters...))
	a := Near(r.Rand, q)
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

// Near is an address of a network, mostly one of its first.
func Near(r *rand.Rand, p netip.Prefix) netip.Addr {
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

package nftables

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sluice/internal/backend"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nft"
)

// ReadSince reads the sets that are edited in place, and those that came since.
func (n nftables) ReadSince(ctx context.Context, before backend.State) (backend.State, error) {
	b, err := stateOf(before)
	if err != nil {
		return nil, err
	}
	s, err := readSome(ctx, n.table, func(k *Set) bool { return edited(k) || k.Life != program.Dynamic && b.Tree.set(k.Name) == nil })
	if err != nil {
		return nil, fmt.Errorf("read table inet %s: %w", n.table, err)
	}
	return s, nil
}

// read reads the table of the calling thread's network namespace.
func read(ctx context.Context, table string, contents bool) (*State, error) {
	wanted := edited
	if contents {
		wanted = func(k *Set) bool { return !k.byCommand() }
	}
	s, err := readSome(ctx, table, wanted)
	if s != nil && s.Present {
		s.Contents = contents
	}
	return s, err
}

// ReadWhole reads everything, what commands banned included.
func (n nftables) ReadWhole(ctx context.Context, bans backend.ReadBans) (backend.State, error) {
	s, err := readSome(ctx, n.table, func(k *Set) bool { return !k.take(bans) })
	if err != nil {
		return nil, fmt.Errorf("read table inet %s: %w", n.table, err)
	}
	s.Contents, s.Whole = s.Present, true
	return s, nil
}

// Complete reads the sets that commands and packets fill, and takes the others that were not
// read from the artifact.
func (nftables) Complete(ctx context.Context, have backend.State, loaded backend.Artifact, bans backend.ReadBans) (backend.State, error) {
	h, err := stateOf(have)
	if err != nil {
		return nil, err
	}
	a, err := artifactOf(loaded)
	if err != nil {
		return nil, err
	}
	out := *h
	out.Tree.Sets = slices.Clone(h.Tree.Sets)
	for i, k := range out.Tree.Sets {
		if !k.Elements.Unknown && k.Life != program.Dynamic {
			continue
		}
		own := *k
		out.Tree.Sets[i] = &own
		if a == nil || k.Life != program.Static {
			continue
		}
		if known := a.Tree.set(k.Name); known != nil && len(known.Elements.Ends) == 0 && known.definition() == k.definitionOf(known) {
			own.Elements = known.Elements
		}
	}
	if err := out.readContents(ctx, func(k *Set) bool { return !k.take(bans) && (k.Elements.Unknown || k.Life == program.Dynamic) }); err != nil {
		return nil, fmt.Errorf("read the sets of table inet %s: %w", h.Tree.Table, err)
	}
	out.Contents, out.Whole = true, true
	return &out, nil
}

// take gives a set the elements that were read before; it is false where none were.
func (s *Set) take(bans backend.ReadBans) bool {
	read, was := bans[s.Name]
	if was = was && s.byCommand(); was {
		s.Elements = Elements{Addresses: read}
	}
	return was
}

// edited says whether elements of a set come and go while it keeps its name.
func edited(k *Set) bool {
	return k.Life == program.Living || k.Counted && k.Life != program.Dynamic
}

// tries is how often a table is read again where somebody changes the ruleset
// meanwhile.
const tries = 10

// readSome reads the rules as nft lists them, elements by netlink. All of it is
// of one moment, unless the ruleset changes all the time; then each set is of
// one moment.
func readSome(ctx context.Context, table string, wanted func(*Set) bool) (*State, error) {
	for try := 1; ; try++ {
		before, err := nft.Generation()
		if err != nil {
			return nil, err
		}
		s, readErr := readOnce(ctx, table, wanted)
		after, err := nft.Generation()
		switch {
		case err != nil:
			return nil, err
		case before == after || try == tries || ctx.Err() != nil:
			return s, readErr
		}
	}
}

// readOnce lists all tables of a family tersely, or of all families: so nft 1.0.6 reads
// no elements, while for one table it reads those of all sets even where it does not
// show them.
func readOnce(ctx context.Context, table string, wanted func(*Set) bool) (*State, error) {
	var there, asleep []string
	for _, family := range tableFamilies {
		is, dormant, err := nft.Table(nfprotoOf(family), table)
		if err != nil {
			return nil, err
		}
		if is {
			there = append(there, family)
		}
		if dormant {
			asleep = append(asleep, family)
		}
	}
	var text []byte
	var err error
	switch {
	case len(there) == 0:
	case slices.Equal(there, []string{inet}):
		text, err = nft.ListTerse(ctx, "ruleset", inet)
	default:
		text, err = nft.ListTerse(ctx, "ruleset")
	}
	if err != nil {
		return nil, err
	}
	s, err := parse(text, table)
	switch {
	case err != nil:
		return nil, err
	case !slices.Equal(s.Families, there): // nft 1.0.6 lists nothing where its dump of the tables fails
		return nil, fmt.Errorf("nft lists table %s of %q, the kernel has that of %q", table, s.Families, there)
	case !s.Present:
		return s, nil
	}
	s.Tree.Dormant = asleep
	if err := s.readGrace(ctx); err != nil {
		return nil, err
	}
	if err := s.readContents(ctx, wanted); err != nil {
		return nil, err
	}
	return s, s.readDevices(ctx)
}

var deviceList = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bdevices = \{([^}]*)\}|\bdevice "?([^" ]+)"?`) })

// readDevices reads the devices of ingress chains from nft's text: version
// 1.0.6 leaves them out of its JSON.
func (s *State) readDevices(ctx context.Context) error {
	unknown := func(c *Chain) bool {
		return c.Base != nil && c.Base.Hook == string(program.Ingress) && len(c.Base.Devices) == 0
	}
	if !slices.ContainsFunc(s.Tree.Chains, unknown) {
		return nil
	}
	text, err := nft.ListText(ctx, "ruleset", "inet")
	if err != nil {
		return err
	}
	_, own, _ := strings.Cut("\n"+string(text), "\ntable inet "+s.Tree.Table+" {\n")
	own, _, _ = strings.Cut(own, "\n}\n")
	for _, c := range s.Tree.Chains {
		if !unknown(c) {
			continue
		}
		_, body, _ := strings.Cut(own, "\n\tchain "+c.Name+" {\n")
		body, _, _ = strings.Cut(body, "\n\t}")
		if found := deviceList().FindStringSubmatch(body); found != nil {
			for d := range strings.FieldsFuncSeq(found[1]+" "+found[2], func(r rune) bool { return strings.ContainsRune(`", `, r) }) {
				c.Base.Devices = append(c.Base.Devices, d)
			}
			slices.Sort(c.Base.Devices)
		}
	}
	return nil
}

// fields are the members of an object of libnftables-json(5).
type fields map[string]any

func (f fields) text(key string) string { text, _ := f[key].(string); return text }

func (f fields) number(key string) uint64 { n, _ := number(f[key]); return n }

// parse reads the tables of one name of what "nft -n -j -t list ruleset" printed. What it does
// not know stays in the state by name and is a difference from every tree.
func parse(text []byte, table string) (*State, error) {
	s := &State{Tree: Tree{Table: table}, Values: map[string]backend.Count{}}
	if err := objects(text, s.listed); err != nil {
		return nil, err
	}
	sorting.By(s.Tree.Sets, func(a, b *Set) int { return strings.Compare(a.Name, b.Name) })
	sorting.By(s.Families, func(a, b string) int { return slices.Index(tableFamilies, a) - slices.Index(tableFamilies, b) })
	s.takePassages()
	return s, nil
}

// objects calls back with each object of what "nft -j" printed.
func objects(text []byte, listed func(kind string, in fields)) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	next := func(want ...json.Token) error {
		for _, w := range want {
			if is, err := d.Token(); err != nil || is != w {
				return fmt.Errorf("what nft printed: %w", cmp.Or(err, fmt.Errorf("found %v instead of %v", is, w)))
			}
		}
		return nil
	}
	if err := next(json.Delim('{'), "nftables", json.Delim('[')); err != nil {
		return err
	}
	for d.More() {
		var object map[string]fields
		if err := d.Decode(&object); err != nil {
			return fmt.Errorf("what nft printed: %w", err)
		}
		for kind, in := range object {
			listed(kind, in)
		}
	}
	return next(json.Delim(']'), json.Delim('}'))
}

// listed takes an object of the ruleset.
func (s *State) listed(kind string, in fields) {
	table, family, name := s.Tree.Table, in.text("family"), in.text("name")
	switch {
	case kind == "metainfo", !slices.Contains(tableFamilies, family), kind != "table" && in.text("table") != table, kind == "table" && name != table:
	case kind == "table":
		s.Present, s.Families = true, append(s.Families, family)
	case kind == "rule" && tableFamily(in.text("chain")) != family: // of a chain that is not known here
	case kind != "rule" && tableFamily(name) != family:
		s.Extra = append(s.Extra, Extra{kind, family, name})
	default:
		s.object(kind, name, in)
	}
}

func (s *State) object(kind, name string, in fields) {
	t := &s.Tree
	switch kind {
	case "chain":
		c := t.readChain(name)
		if hook := in.text("hook"); hook != "" {
			prio, _ := in["prio"].(json.Number)
			priority, _ := strconv.Atoi(prio.String())
			c.Base = &Base{Type: in.text("type"), Hook: hook, Priority: priority, Policy: in.text("policy"), Devices: stringList(in["dev"])}
		}
	case "rule":
		r := Rule{Comment: in.text("comment"), Handle: in.number("handle")}
		chain := in.text("chain")
		for _, e := range listOf(in["expr"]) {
			r.Statements = append(r.Statements, translating(statement(e), chain))
		}
		c := t.readChain(chain)
		c.Rules = append(c.Rules, r)
	case "set", "map":
		s.set(kind, name, in)
	case "counter":
		t.Counters = append(t.Counters, Counter{Name: name, ID: programName(bare(name)), Comment: in.text("comment")})
		s.Values[name] = backend.Count{Packets: in.number("packets"), Bytes: in.number("bytes")}
	case "limit":
		if unit := in.text("rate_unit"); in["inv"] == true || unit != "" && unit != "packets" {
			s.Extra = append(s.Extra, Extra{kind, tableFamily(name), name})
			break
		}
		t.Limits = append(t.Limits, Limit{name, Rate{in.number("rate"), in.text("per"), in.number("burst")}})
	case "flowtable":
		t.Flowtables = append(t.Flowtables, Flowtable{name, stringList(in["dev"])})
	default:
		s.Extra = append(s.Extra, Extra{kind, tableFamily(name), name})
	}
}

// translating is a statement with the family that nft leaves out where the table has it.
func translating(s Statement, chain string) Statement {
	switch s.Kind {
	case DNAT, SNAT, DNATPrefix, SNATPrefix:
		if s.Name == "" {
			s.Name = tableFamily(chain)
		}
	}
	return s
}

// readChain gives the chain of that name and makes it where it was not listed
// yet.
func (t *Tree) readChain(name string) *Chain {
	if c := t.chain(name); c != nil {
		return c
	}
	c := &Chain{Name: name}
	t.Chains = append(t.Chains, c)
	return c
}

// stringList reads a text or a list of texts, sorted.
func stringList(v any) []string {
	out := texts(v)
	slices.Sort(out)
	return out
}

// texts reads a text or a list of texts; nil is anything else.
func texts(v any) (out []string) {
	for _, item := range listOf(v) {
		text, is := item.(string)
		if !is {
			return nil
		}
		out = append(out, text)
	}
	return out
}

// listOf is a list, one of a single value, or none.
func listOf(v any) []any {
	list, several := v.([]any)
	if !several && v != nil {
		return []any{v}
	}
	return list
}

func (s *State) set(kind, name string, in fields) {
	if kind == "map" && in.text("map") != "verdict" {
		s.Extra = append(s.Extra, Extra{kind, tableFamily(name), name})
		return
	}
	k := &Set{Verdicts: kind == "map", Name: name, Life: lifeOf(name), Size: int(in.number("size")), Timeout: in.number("timeout") * 1000} //nolint:gosec // 32 bits
	if k.Types = texts(in["type"]); k.Types == nil {
		k.Types = rawTypes(in["type"])
	}
	flags := texts(in["flags"])
	k.Interval = slices.Contains(flags, "interval")
	if slices.Contains(flags, "dynamic") {
		k.Life = program.Dynamic
	}
	for _, st := range listOf(in["stmt"]) {
		does, _ := st.(map[string]any)
		if _, counts := does["counter"]; counts {
			k.Counted = true
		} else {
			k.Asks = true
		}
	}
	if _, others := ofOthers(name); others && k.Life != program.Dynamic {
		k.Life, k.Others = program.Dynamic, true
	}
	k.Expires = k.Life != program.Dynamic && slices.Contains(flags, "timeout")
	k.Elements.Unknown = k.Life != program.Dynamic
	s.Tree.Sets = append(s.Tree.Sets, k)
}

// lifeOf tells the lives of sets by their names.
func lifeOf(name string) program.Life {
	if _, hashed := cutHash(name, 16); hashed {
		return program.Static
	}
	if _, hashed := cutHash(name, 8); hashed {
		return program.Dynamic
	}
	return program.Living
}

package nftables

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// Tables of other owners. They are read as the backend's own is, by statements, and what
// has no words in a program stays in it as what nobody knows: lift_foreign.go.

// Foreign is a table of another owner. Its program is that of the packets that its family
// of tables sees.
type Foreign struct {
	Family, Name string
	Lifted       *backend.Lifted
	Priorities   map[string]int // of base chains
	Rules        []ForeignRule
	Sets         []ForeignSet
}

// ForeignSet is how nft lists a set or a map.
type ForeignSet struct {
	Name, Type string // a type of several parts with " . " between them
	Entries    int
	Size       int  // 0: no bound
	Dynamic    bool // rules add to it, or its elements end by themselves
	Interval   bool // flags interval
	Single     bool // no element is a prefix, a range or of several parts
}

// ForeignRule is one rule of the kernel's.
type ForeignRule struct {
	ID     string // of the program's rules that it became
	Chain  string
	Number int // in its chain, from 1
	Handle uint64
	Text   string         // as nft lists it
	Count  *backend.Count // of its last counter; nil: it has none of its own
}

// ReadForeign reads the tables that "nft -n -j list ruleset" lists. "nft -t -a list
// ruleset" has the texts of rules, and what the JSON of nft 1.0.6 lacks: devices, and which
// tables sleep.
func ReadForeign(listing, text []byte) ([]*Foreign, error) {
	var tables []*foreign
	by := map[string]*foreign{}
	err := objects(listing, func(kind string, in fields) {
		name := in.text("table")
		if kind == "table" {
			name = in.text("name")
		}
		key := in.text("family") + " " + name
		if kind == "metainfo" {
			return
		}
		if by[key] == nil {
			by[key] = newForeign(in.text("family"), name)
			tables = append(tables, by[key])
		}
		by[key].listed(kind, in)
	})
	if err != nil {
		return nil, err
	}
	readTexts(text, by)
	out := make([]*Foreign, len(tables))
	for i, f := range tables {
		out[i] = f.lift()
		if err := out[i].Lifted.Program.Check(); err != nil {
			return nil, fmt.Errorf("what nft printed of table %s %s: %w", f.out.Family, f.out.Name, err)
		}
	}
	return out, nil
}

// foreign is such a table on its way.
type foreign struct {
	out    *Foreign
	state  State
	chains map[string]*Chain
	counts map[string]int // by rule: counters that were met; the last one is the rule's
	texts  map[uint64]string
	asleep bool
}

func newForeign(family, name string) *foreign {
	return &foreign{
		out:    &Foreign{Family: family, Name: name, Priorities: map[string]int{}},
		state:  State{Tree: Tree{Table: name}, Values: map[string]backend.Count{}},
		chains: map[string]*Chain{}, counts: map[string]int{}, texts: map[uint64]string{},
	}
}

func (f *foreign) listed(kind string, in fields) {
	t := &f.state.Tree
	switch kind {
	case "table":
	case "rule":
		c := f.chain(in.text("chain"))
		r := Rule{Comment: in.text("comment"), Handle: in.number("handle")}
		own := ForeignRule{Chain: c.Name, Number: len(c.Rules) + 1, Handle: r.Handle, ID: fmt.Sprintf("%s:%d", c.Name, len(c.Rules)+1)}
		for _, e := range listOf(in["expr"]) {
			s := statement(e)
			switch s.Kind {
			case Count:
				if s.Name == "" {
					own.Count = countOf(e)
				}
			case DNAT, SNAT, DNATPrefix, SNATPrefix:
				s.Name = cmp.Or(s.Name, f.out.Family)
			}
			r.Statements = append(r.Statements, s)
		}
		c.Rules = append(c.Rules, r)
		f.out.Rules = append(f.out.Rules, own)
	case "set", "map":
		f.out.Sets = append(f.out.Sets, foreignSet(in))
		before := len(t.Sets)
		if f.state.set(kind, in.text("name"), in); len(t.Sets) > before {
			k := t.Sets[before]
			k.Life = program.Living
			k.listedElements(listOf(in["elem"]))
		}
	default:
		f.state.object(kind, in.text("name"), in)
	}
}

func foreignSet(in fields) ForeignSet {
	elements, flags := listOf(in["elem"]), texts(in["flags"])
	s := ForeignSet{
		Name: in.text("name"), Type: strings.Join(texts(in["type"]), " . "), Entries: len(elements), Size: int(in.number("size")), //nolint:gosec // 32 bits
		Dynamic: slices.Contains(flags, "dynamic") || slices.Contains(flags, "timeout"), Interval: slices.Contains(flags, "interval"), Single: true,
	}
	for _, e := range elements {
		if m, is := e.(map[string]any); is {
			body, _ := m["elem"].(map[string]any)
			e = body["val"]
		}
		_, plain := e.(string)
		s.Single = s.Single && plain
	}
	return s
}

// chain is readChain, of which there may be many.
func (f *foreign) chain(name string) *Chain {
	if f.chains[name] == nil {
		f.chains[name] = f.state.Tree.readChain(name)
	}
	return f.chains[name]
}

func countOf(statement any) *backend.Count {
	m, _ := statement.(map[string]any)
	in, is := m["counter"].(map[string]any)
	if !is {
		return nil
	}
	return &backend.Count{Packets: fields(in).number("packets"), Bytes: fields(in).number("bytes")}
}

// listedElements are what nft lists of a set.
func (s *Set) listedElements(list []any) {
	s.Elements = Elements{Unknown: len(s.Types) == 0}
	plain := len(s.Types) == 1 && s.addresses() != 0 && !s.Verdicts
	var b addrset.Builder
	for _, item := range list {
		verdict := ""
		if s.Verdicts {
			pair, _ := item.([]any)
			if len(pair) != 2 {
				s.Elements = Elements{Unknown: true}
				return
			}
			v := statement(pair[1])
			item, verdict = pair[0], v.text()
		}
		if m, is := item.(map[string]any); is {
			e, _ := m["elem"].(map[string]any)
			s.Asks = s.Asks || !onlyKeys(e, "val", "timeout", "expires", "comment", "counter")
		}
		text, ok := valueOf(item)
		r, err := addrset.Range{}, error(nil)
		if plain {
			r, err = addrset.ParseRange(text)
		}
		switch {
		case !ok || err != nil:
			s.Elements = Elements{Unknown: true}
			return
		case plain:
			b.AddRange(r)
		default:
			s.Elements.Tuples = append(s.Elements.Tuples, text)
			if s.Verdicts {
				s.Elements.Verdicts = append(s.Elements.Verdicts, verdict)
			}
		}
	}
	s.Elements.Addresses = b.Set()
	s.Elements.sortTuples()
}

var (
	textTable  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^table (\S+) (\S+) \{`) })
	textChain  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\tchain (\S+) \{`) })
	textHandle = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(` # handle ([0-9]+)$`) })
)

// readTexts reads rules' texts by their handles.
func readTexts(text []byte, by map[string]*foreign) {
	var f *foreign
	chain, rule := "", ""
	for lines := range bytes.Lines(text) {
		line := strings.TrimRight(string(lines), "\n")
		if m := textTable().FindStringSubmatch(line); m != nil {
			f, chain = by[m[1]+" "+m[2]], ""
			continue
		}
		if m := textChain().FindStringSubmatch(line); m != nil {
			chain, rule = m[1], ""
			continue
		}
		body, nested := strings.CutPrefix(line, "\t\t")
		switch {
		case f == nil:
		case chain == "":
			f.asleep = f.asleep || strings.HasPrefix(line, "\tflags ") && strings.Contains(line, "dormant")
		case !nested:
			chain = ""
		case strings.HasPrefix(body, "type ") && rule == "":
			f.devices(chain, body)
		default:
			// A long list of values goes over several lines.
			rule = strings.TrimSpace(rule + " " + strings.TrimSpace(body))
			if m := textHandle().FindStringSubmatch(rule); m != nil {
				handle, _ := strconv.ParseUint(m[1], 10, 64)
				f.texts[handle] = strings.TrimSuffix(rule, m[0])
				rule = ""
			}
		}
	}
}

// devices reads those of a base chain, which the JSON of nft 1.0.6 lacks.
func (f *foreign) devices(chain, text string) {
	c := f.state.Tree.chain(chain)
	found := deviceList().FindStringSubmatch(text)
	if c == nil || c.Base == nil || len(c.Base.Devices) > 0 || found == nil {
		return
	}
	for d := range strings.FieldsFuncSeq(found[1]+" "+found[2], func(r rune) bool { return strings.ContainsRune(`", `, r) }) {
		c.Base.Devices = append(c.Base.Devices, d)
	}
	slices.Sort(c.Base.Devices)
}

// lift makes the program.
func (f *foreign) lift() *Foreign {
	t := &f.state.Tree
	sorting.By(t.Sets, func(a, b *Set) int { return strings.Compare(a.Name, b.Name) })
	for i := range f.out.Rules {
		r := &f.out.Rules[i]
		if r.Text = f.texts[r.Handle]; r.Text == "" {
			r.Text = f.chain(r.Chain).Rules[r.Number-1].text()
		}
	}
	var bases []*Chain
	for _, c := range t.Chains {
		if c.Base != nil {
			f.out.Priorities[c.Name] = c.Base.Priority
			bases = append(bases, c)
		}
	}
	r := newLifter(t)
	r.foreign = f
	var refused error
	switch {
	case f.asleep:
		refused = fmt.Errorf("its table is dormant: the kernel evaluates none of its chains")
	case f.out.Family == "bridge" || f.out.Family == "arp":
		refused = fmt.Errorf("it sees frames of family %s, which a program cannot express", f.out.Family)
	}
	if refused != nil {
		for _, c := range bases {
			r.refuse(c, -1, c.title(), refused)
			c.Base = nil
		}
	}
	// Chains of one hook are asked in the order of their priorities.
	sorting.StableBy(t.Chains, func(a, b *Chain) int {
		if a.Base == nil || b.Base == nil {
			return cmp.Compare(btoi(a.Base == nil), btoi(b.Base == nil))
		}
		return cmp.Compare(a.Base.Priority, b.Base.Priority)
	})
	f.out.Lifted = r.lift()
	for i := range r.out.Sets {
		if s := &r.out.Sets[i]; s.Life == program.Static && t.set(s.ID) != nil {
			s.Life = program.Living
		}
	}
	return f.out
}

func btoi(is bool) int {
	if is {
		return 1
	}
	return 0
}

// foreignPhase is the phase that comes closest to a priority: connection tracking is at
// -200, NAT of destinations at -100 and of sources at 100 (enum nf_ip_hook_priorities).
func foreignPhase(b *Base) (program.Phase, error) {
	switch program.HookKind(b.Hook) {
	case program.Ingress:
		return program.Early, nil
	case program.Prerouting, program.Input, program.Forward, program.Output, program.Postrouting:
	default:
		return "", fmt.Errorf("hook %s is not known", b.Hook)
	}
	source := b.Hook == string(program.Postrouting) || b.Hook == string(program.Input)
	switch {
	case b.Type == "nat":
		return program.NAT, nil
	case b.Priority < -200:
		return program.Raw, nil
	case b.Priority < priorityDestinationNAT:
		return program.Mangle, nil
	case b.Priority < 0:
		return program.Watching, nil
	case b.Priority == 0:
		return program.Filter, nil
	case source && b.Priority > prioritySourceNAT:
		return program.Behind, fmt.Errorf("it runs after source NAT, but is read as if it ran before")
	}
	return program.Behind, nil
}

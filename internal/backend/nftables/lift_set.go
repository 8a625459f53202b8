package nftables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/program"
)

var errUnread = errors.New("the content of the set was not read")

// set makes sure that a set of the kernel's is one of the program and gives its
// id.
func (r *lifter) set(k *Set, key []program.Field) (string, error) {
	if id, is := r.ids[k.Name]; is {
		return id, nil
	}
	if len(key) != len(k.Types) {
		return "", fmt.Errorf("set %s has %s but is looked up with %d", k.Name, english.Plural(len(k.Types), "key"), len(key))
	}
	if id := k.followsAddresses(); id != "" && !r.tree.differs(k) {
		return r.followAddresses(k, id), nil
	}
	s := program.Set{ID: k.Name, Key: key, Life: program.Static, Verdicts: k.Verdicts}
	switch {
	case k.Life == program.Dynamic && !k.byCommand():
		return r.filled(k)
	case k.Elements.Unknown:
		return "", errUnread
	case k.Asks:
		return "", fmt.Errorf("the elements of set %s do more than count", k.Name)
	case len(k.Types) == 1 && strings.HasPrefix(k.Types[0], "ipv") && !k.Verdicts && len(k.Elements.Tuples) == 0:
		s.Addresses = k.Elements.all()
		if k.byCommand() {
			r.banned += k.Len()
		}
	}
	if len(k.Elements.Counters) > 0 {
		s.Counters, s.Addresses = true, addrset.Set{}
		for a := range k.Elements.Addresses.Each() {
			s.Elements = append(s.Elements, addressElement(k, a))
		}
		for _, a := range k.Elements.Ranges {
			s.Elements = append(s.Elements, addressElement(k, a))
		}
	}
	for i, tuple := range k.Elements.Tuples {
		e, err := elementOf(k, tuple)
		if err != nil {
			return "", fmt.Errorf("set %s: element %s: %w", k.Name, tuple, err)
		}
		if k.Verdicts {
			v, err := r.elementVerdict(k.Elements.Verdicts[i])
			if err != nil {
				return "", fmt.Errorf("map %s: element %s: %w", k.Name, tuple, err)
			}
			if v == nil {
				continue // goes on as if it were not there
			}
			e.Verdict = v
		}
		s.Elements = append(s.Elements, e)
	}
	r.ids[k.Name] = s.ID
	r.out.Sets = append(r.out.Sets, s)
	return s.ID, nil
}

func addressElement(k *Set, a addrset.Range) program.Element {
	return program.Element{
		Parts:   []program.Value{{Addresses: a}},
		Counter: k.Elements.Counters[a.String()],
	}
}

// follows says of a set that the host decides which interfaces are in it. Whoever
// puts in what does not belong there is found by comparing it with the host.
func (s *Set) follows() bool {
	return bare(s.Name) == stem(program.DefaultRouteSet) && !s.Interval && !s.Verdicts && !s.Asks && slices.Equal(s.Types, []string{"ifname"})
}

func (r *lifter) follow(k *Set) {
	if r.out.Set(program.DefaultRouteSet) != nil {
		return
	}
	set := program.Set{ID: program.DefaultRouteSet, Key: []program.Field{program.InInterface}, Life: program.Followed}
	set.Hold(program.Held{Names: k.Elements.Tuples})
	r.out.Sets = append(r.out.Sets, set)
}

// followsAddresses is the id of the set of addresses that the host decides on; "" where
// it is none.
func (s *Set) followsAddresses() string {
	f := s.addresses()
	if f == 0 || s.Interval || s.Verdicts || s.Asks || len(s.Types) != 1 || s.Life != program.Living {
		return ""
	}
	id, is := strings.CutSuffix(bare(s.Name), fmt.Sprintf("_v%d", f))
	if _, own := program.CutOwnSet(id); is && (own || id == stem(program.ExemptSet)) {
		return id
	}
	return ""
}

// differs says of a set that those of its name in other tables have something else.
func (t *Tree) differs(k *Set) bool {
	return slices.ContainsFunc(t.Sets, func(o *Set) bool {
		return bare(o.Name) == bare(k.Name) && !sameElements(o.Elements, k.Elements)
	})
}

// followAddresses makes one set of those of both families.
func (r *lifter) followAddresses(k *Set, id string) string {
	r.ids[k.Name] = id
	set := r.out.Set(id)
	if set == nil {
		r.out.Sets = append(r.out.Sets, program.Set{ID: id, Key: []program.Field{program.Source}, Life: program.Followed})
		set = r.out.Set(id)
	}
	held := set.Held()
	for a := range k.ranges() {
		held.Addresses = append(held.Addresses, a.From)
	}
	set.Hold(held)
	return id
}

// filled makes a set that packets fill. Of both families the program has one,
// whose name in the kernel says so.
func (r *lifter) filled(k *Set) (string, error) {
	if len(k.Types) != 1 || !strings.HasPrefix(k.Types[0], "ipv") {
		return "", fmt.Errorf("the kernel fills set %s, whose key is not one address", k.Name)
	}
	if k.Asks {
		return "", fmt.Errorf("the elements of set %s do more than count", k.Name)
	}
	id, others := ofOthers(k.Name)
	if !others {
		id = dynamicID(k.Name)
	}
	for other, taken := range r.ids {
		if taken == id && r.tree.set(other).family() == k.family() {
			id = k.Name
			break
		}
	}
	if s := r.out.Set(id); s != nil && (s.Size != k.Size || s.Timeout != k.Timeout) {
		return "", fmt.Errorf("set %s has a different size or timeout from the one of the other family", k.Name)
	}
	r.ids[k.Name] = id
	if r.out.Set(id) == nil {
		r.out.Sets = append(r.out.Sets, program.Set{
			ID: id, Key: []program.Field{program.Source}, Life: program.Dynamic, Size: k.Size, Timeout: k.Timeout, Counters: k.Counted, Others: k.Others,
		})
	}
	return id, nil
}

// dynamicID is the name in the program of a set that packets or commands fill.
func dynamicID(kernel string) string {
	base, _ := cutHash(kernel, 8)
	for _, end := range []string{"_v4", "_v6"} {
		if id, is := strings.CutSuffix(base, end); is {
			return programName(id)
		}
	}
	return kernel
}

// elementOf reads an element of several keys, or of one that is not a plain address.
func elementOf(k *Set, tuple string) (program.Element, error) {
	parts := []string{tuple}
	if len(k.Types) > 1 {
		parts = strings.Split(tuple, " . ")
	}
	e := program.Element{Parts: make([]program.Value, len(parts)), Counter: k.Elements.Counters[tuple]}
	if len(parts) != len(k.Types) {
		return e, errKeySize
	}
	for i, text := range parts {
		v, err := valueIn(k.Types[i], text)
		if err != nil {
			return e, err
		}
		e.Parts[i] = v
	}
	return e, nil
}

// valueIn reads a part of an element of a type.
func valueIn(kind, text string) (program.Value, error) {
	switch {
	case kind == "ifname":
		if !validInterface(text) || strings.HasSuffix(text, "*") {
			return program.Value{}, fmt.Errorf("%q is not the name of an interface", text)
		}
		return program.Value{Name: text}, nil
	case strings.HasPrefix(kind, "ipv"):
		a, err := addrset.ParseRange(text)
		return program.Value{Addresses: a}, err
	}
	n, ok := parseNumberValue(text)
	if !ok {
		return program.Value{}, fmt.Errorf("%q is not a number", text)
	}
	return program.Value{Numbers: n}, nil
}

// elementVerdict reads the verdict of an element; nil goes on.
func (r *lifter) elementVerdict(text string) (program.Action, error) {
	verb, chain, leads := strings.Cut(text, " ")
	if leads && r.tree.chain(chain) == nil {
		return nil, fmt.Errorf("there is no chain %s", chain)
	}
	switch {
	case leads && r.asksOffsets(chain):
		return nil, fmt.Errorf("chain %s matches parts of an address of a family that is not known there", chain)
	case leads && verb == "jump":
		return program.Jump{Chain: r.lead(chain)}, nil
	case leads && verb == "goto":
		return program.Goto{Chain: r.lead(chain)}, nil
	}
	switch text {
	case "accept":
		return program.Accept, nil
	case "drop":
		return program.Drop, nil
	case "return":
		return program.Return, nil
	case "continue":
		return nil, nil
	}
	return nil, errUnknown
}

// verdictMap lifts a lookup of a verdict.
func (w *ruleLifter) verdictMap(s Statement) error {
	k := w.lifter.tree.set(s.Set)
	if s.Set == "" {
		k = inlineMap(s, fmt.Sprintf("%s rule %d map", w.chain.Name, w.number+1))
	}
	switch {
	case k == nil:
		return fmt.Errorf("there is no map %s", s.Set)
	case s.Mask != "":
		return fmt.Errorf("the mask %q of %s is not known", s.Mask, s.Field)
	case w.inner:
		return errReturn // its verdicts may be any
	}
	key, err := w.key(s.Field)
	if err != nil {
		return err
	}
	if k.Types == nil {
		k.Types = typesOf(s.Field)
	}
	id, err := w.set(k, key)
	if err != nil {
		return err
	}
	w.act(program.VerdictMap{Set: id, Key: key})
	return nil
}

// inlineMap is the map of a rule as a set.
func inlineMap(s Statement, name string) *Set {
	k := &Set{Name: name, Life: program.Static, Verdicts: true}
	for tuple, verdict := range s.Map {
		k.Elements.Tuples = append(k.Elements.Tuples, tuple)
		k.Elements.Verdicts = append(k.Elements.Verdicts, verdict)
	}
	k.Elements.sortTuples()
	return k
}

// typesOf are the types of a key.
func typesOf(field string) []string {
	var out []string
	for part := range strings.SplitSeq(field, " . ") {
		f, _ := fieldInKernel(part)
		switch {
		case isAddress(f) && strings.Contains(part, "ip6"):
			out = append(out, addressType(6))
		case isAddress(f):
			out = append(out, addressType(4))
		case keyTypes[f] != "":
			out = append(out, keyTypes[f])
		default:
			out = append(out, "mark") // a number
		}
	}
	return out
}

// setAdd lifts the adding of a source to a set.
func (w *ruleLifter) setAdd(s Statement) error {
	id, err := w.sourceTable(s)
	switch {
	case err != nil:
		return err
	case s.Op != "add" && s.Op != "delete", len(s.Inner) > 0 && (s.Op != "add" || !sameStatements(s.Inner, []Statement{once})):
		return fmt.Errorf("what it does with %s is not known", s.Set)
	}
	add := program.SetAdd{Set: id, Key: program.PerSource, Timeout: s.Number * 1000, Once: len(s.Inner) > 0, Remove: s.Op == "delete"}
	_, key := sourceFamily(s)
	switch {
	case add.Once || add.Remove:
		add.Key = key
	case key == program.PerDestination:
		add.Key, add.Fields = program.Together, []program.Field{program.Destination}
	}
	w.act(add)
	return nil
}

// sourceTable is the set that a statement puts the source into, or the destination.
func (r *lifter) sourceTable(s Statement) (string, error) {
	k := r.tree.set(s.Set)
	switch {
	case k == nil:
		return "", fmt.Errorf("there is no set %s", s.Set)
	case k.Life != program.Dynamic || k.byCommand() || k.Others:
		return "", fmt.Errorf("packets fill set %s", s.Set)
	}
	if f, _ := sourceFamily(s); f != 0 {
		return r.table(k)
	}
	return "", fmt.Errorf("the key of set %s is not an address of the packet", s.Set)
}

func (r *lifter) table(k *Set) (string, error) {
	if id, is := r.ids[k.Name]; is {
		return id, nil
	}
	return r.filled(k)
}

// rewrite lifts what writes to a packet.
func (w *ruleLifter) rewrite(s Statement) error {
	switch {
	case s.Field == "tcp option maxseg size" && len(s.Values) == 1 && s.Values[0] == "rt mtu":
		w.act(program.ClampMSS{})
		return nil
	case len(s.Values) > 0:
		return errUnknown
	case s.Field == "ct label" && s.Mask == "":
		bit, err := strconv.ParseUint(s.Name, 10, 7)
		if err != nil {
			return errUnknown
		}
		w.act(program.SetLabel{Bit: uint8(bit)})
		return nil
	case s.Field == "meta mark":
		value, keep := numberOf(s.Name), numberOf(s.Mask)
		mask := ^uint32(keep)                //nolint:gosec // the mark has 32 bits
		if uint32(value)&uint32(keep) != 0 { //nolint:gosec // the same
			return errUnknown
		}
		w.act(program.SetMark{Value: uint32(value), Mask: mask}) //nolint:gosec // the same
		return nil
	}
	field, known := fieldInKernel(s.Field)
	if !known || field != program.Source && field != program.Destination {
		return errUnknown
	}
	to, err := netip.ParseAddr(s.Name)
	if err != nil {
		return err
	}
	length := to.BitLen()
	if s.Mask != "" {
		if length = hostBits(s.Mask); length < 0 {
			return errUnknown
		}
	}
	prefix := netip.PrefixFrom(to, length)
	if prefix.Masked().Addr() != to {
		return errUnknown
	}
	from, err := w.prefixAsked(field, length, to.BitLen())
	if err != nil {
		return err
	}
	if field == program.Source {
		w.act(program.MapSource{From: from, To: prefix})
	} else {
		w.act(program.MapDestination{From: from, To: prefix})
	}
	return nil
}

// hostBits is the length of the prefix that a mask leaves the rest of; -1 where it
// does not leave just that.
func hostBits(mask string) int {
	a, err := netip.ParseAddr(mask)
	if err != nil {
		return -1
	}
	for n := range a.BitLen() + 1 {
		if hostMask(netip.PrefixFrom(a, n)) == a {
			return n
		}
	}
	return -1
}

// prefixAsked is the prefix that the rule's conditions keep an address in.
func (w *ruleLifter) prefixAsked(field program.Field, length, bits int) (netip.Prefix, error) {
	for _, c := range w.known() {
		mine, ok := w.addressesOf(c)
		if !ok || c.Field != field || c.Not || mine.IsEmpty() {
			continue
		}
		first, _, _ := mine.Bounds()
		if p := netip.PrefixFrom(first, length).Masked(); first.BitLen() == bits && addrset.FromPrefixes(p).ContainsSet(mine) {
			return p, nil
		}
	}
	// The condition may be before a jump to this chain.
	if mine, known := w.comeTo(w.chain.Name, field, 0); known && !w.inner && !mine.IsEmpty() && !rewritten(w.chain, w.number, field) {
		if bits == 32 {
			mine = mine.Only4()
		} else {
			mine = mine.Only6()
		}
		first, _, some := mine.Bounds()
		if p := netip.PrefixFrom(first, length).Masked(); some && addrset.FromPrefixes(p).ContainsSet(mine) {
			return p, nil
		}
	}
	return netip.Prefix{}, errors.New("the prefix that it rewrites is not matched before")
}

// translate lifts a translation with state.
func (w *ruleLifter) translate(s Statement) error {
	if s.Kind == DNATPrefix || s.Kind == SNATPrefix {
		from, err := netip.ParsePrefix(s.Values[0])
		if err != nil {
			return err
		}
		to, err := netip.ParsePrefix(s.Values[1])
		if err != nil {
			return err
		}
		if samePrefixes(from, to) != nil {
			return errUnknown
		}
		if s.Kind == DNATPrefix {
			w.act(program.DNATPrefix{From: from, To: to})
		} else {
			w.act(program.SNATPrefix{From: from, To: to})
		}
		return nil
	}
	to, err := netip.ParseAddr(s.Values[0])
	switch {
	case err != nil:
		return err
	case s.Kind == DNAT:
		w.act(program.DNAT{To: to, Port: uint16(s.Number)}) //nolint:gosec // a port
	case s.Number != 0:
		return errUnknown
	default:
		ports, err := portRange(s.Ports)
		if err != nil {
			return err
		}
		w.act(program.SNAT{To: to, Ports: ports})
	}
	return nil
}

// portRange reads what Statement.Ports says.
func portRange(text string) (r program.NumberRange, err error) {
	if text == "" {
		return r, nil
	}
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	if r.From, err = strconv.ParseUint(first, 10, 16); err == nil {
		r.To, err = strconv.ParseUint(last, 10, 16)
	}
	return r, err
}

package policy

import (
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/source"
)

// natUsage is how the lines of nat are written, for the reference and hints.
var natUsage = map[NATKind]string{
	Masquerade: "masquerade [from WHO] out ZONE [ipv4|ipv6] [as ADDRESS]",
	Redirect:   "redirect SERVICE [ipv4|ipv6] [in ZONE] [on ADDRESS] to TARGET",
	Map:        "map PREFIX to PREFIX [stateless]",
}

// natNode reads a line of nat in either form; nil when it has an error.
func (f *file) natNode(n *yaml.Node) *NAT {
	var toks []token
	var ok bool
	switch {
	case n.Kind == yaml.MappingNode && f.Accident(n) == "":
		toks, ok = f.natMapping(n)
	case n.Kind == yaml.ScalarNode && !source.IsNull(n) && strings.TrimSpace(n.Value) != "":
		toks, ok = f.tokens(n)
	case n.Kind == yaml.MappingNode:
		f.fail(f.After(n.Content[0]), f.Accident(n), "a line of nat must be one line of words")
	default:
		f.fail(f.At(n), "", "a line of nat must be a line of words or a mapping, not %s", source.KindName(n))
	}
	if !ok {
		return nil
	}
	w := &nat{words: &words{file: f, toks: toks}, nat: &NAT{Pos: f.At(n)}, seen: map[string]token{}}
	if !w.parse() {
		return nil
	}
	w.nat.Text = w.nat.canonical()
	f.setLine(n, w.nat.Text)
	return w.nat
}

// nat is a line of nat while it is read.
type nat struct {
	*words
	nat  *NAT
	seen map[string]token
}

func (w *nat) parse() bool {
	const hint = "write masquerade, redirect or map"
	t, ok := w.word("masquerade, redirect or map", hint)
	if !ok {
		return false
	}
	before := len(w.errs)
	switch kind := NATKind(t.text); kind {
	case Masquerade, Redirect, Map:
		w.nat.Kind = kind
	default:
		way := hint
		switch t.text {
		case "snat":
			way = "write " + natUsage[Masquerade]
		case "dnat":
			way = "write " + natUsage[Redirect]
		case "allow", "drop", "reject":
			way = "put rules under input, output or forward"
		}
		return w.failAt(t, way, "unknown word %s in nat%s", source.Quote(t.text), source.DidYouMean(t.text, []string{"masquerade", "redirect", "map"}))
	}
	if w.nat.Kind == Redirect && !w.redirected() {
		return false
	}
	if w.nat.Kind == Map {
		if w.nat.Outside, ok = w.prefix(); !ok {
			return false
		}
	}
	for !w.done() {
		if !w.clause() {
			return false
		}
	}
	return w.complete(t) && len(w.errs) == before
}

// clauseOrder are the words that may follow each kind.
var natClauses = map[NATKind][]string{
	Masquerade: {"from", "out", "ipv4", "ipv6", "as"},
	Redirect:   {"ipv4", "ipv6", "in", "on", "to"},
	Map:        {"to", "stateless"},
}

func (w *nat) clause() bool {
	t := w.peek()
	known := natClauses[w.nat.Kind]
	if t.kind != wordToken || !slices.Contains(known, t.text) {
		return w.failAt(t, "write "+natUsage[w.nat.Kind], "unexpected %s in %s%s", t.describe(), w.nat.Kind, source.DidYouMean(t.text, known))
	}
	if _, twice := w.seen[t.text]; twice {
		return w.failAt(t, "", "duplicate %s", source.Quote(t.text))
	}
	w.seen[t.text] = t
	w.take()
	var ok bool
	switch t.text {
	case "ipv4", "ipv6":
		if w.nat.Family != 0 {
			return w.failAt(t, "remove both", "both ipv4 and ipv6 in one line")
		}
		w.nat.Family = int(t.text[3] - '0')
		return true
	case "from":
		w.nat.From, ok = w.who()
		w.mayFillAll(w.nat.From, "nat")
		w.checkWho(w.nat.From, "from", false)
	case "out":
		w.nat.Out, ok = w.zone("out")
	case "in":
		w.nat.In, ok = w.zone("in")
	case "as":
		w.nat.As, ok = w.address()
	case "on":
		ok = w.list("addresses", func() bool {
			r, ok := w.address()
			if ok {
				w.nat.On = append(w.nat.On, *r)
			}
			return ok
		})
	case "to":
		if w.nat.Kind == Map {
			w.nat.Inside, ok = w.prefix()
		} else {
			w.nat.Target, ok = w.target()
		}
	case "stateless":
		w.nat.Stateless, ok = true, true
	}
	return ok
}

// redirected reads the service of a redirect; a list becomes one service.
func (w *nat) redirected() bool {
	t := w.peek()
	refs, ok := w.services()
	if !ok {
		return false
	}
	if len(refs) == 0 {
		return w.failAt(t, "write a service with ports, as in redirect tcp/8080", "redirect needs a service with ports")
	}
	ref := &ServiceRef{Pos: refs[0].Pos, Text: servicesText(refs)}
	w.nat.Service = ref
	var all []ServiceMatch
	for _, r := range refs {
		all = append(all, r.Matches...)
	}
	ref.Matches = mergeMatches(all)
	w.after(func() {
		ref.Matches = nil
		for _, r := range refs {
			ref.Matches = append(ref.Matches, r.Matches...)
		}
		ref.Matches = mergeMatches(ref.Matches)
		w.needPorts(ref, "redirect")
	})
	return true
}

// needPorts reports services that have no ports, where only ports make sense.
func (f *file) needPorts(ref *ServiceRef, what string) {
	for _, m := range ref.Matches {
		if m.Any || packet.PortProtocolName(m.Protocol) == "" {
			f.fail(ref.Pos, "name services of tcp, udp or sctp", "%s needs a service with ports, but %s has none", what, source.Quote(ref.Text))
			return
		}
	}
}

// address reads one address.
func (w *words) address() (*Range, bool) {
	t, ok := w.word("an address", "")
	if !ok {
		return nil, false
	}
	r, p := parseAddress(t.text)
	return &Range{t.pos, r}, w.problemAt(t, p)
}

// parseAddress reads one address.
func parseAddress(s string) (addrset.Range, *problem) {
	r, p := parseRange(s)
	if p == nil && r.From != r.To {
		p = problemf("write one address", "%s is more than one address", source.Quote(s))
	}
	return r, p
}

// prefix reads an address or a prefix.
func (w *words) prefix() (*Range, bool) {
	t, ok := w.word("a prefix", "write "+natUsage[Map])
	if !ok {
		return nil, false
	}
	r, p := parseRange(t.text)
	if p != nil {
		return nil, w.problemAt(t, p)
	}
	if _, ok := r.Prefix(); !ok {
		return nil, w.failAt(t, "write prefixes of one length", "range %s is not a prefix", t.text)
	}
	return &Range{t.pos, r}, true
}

// target reads where a redirect leads: ADDRESS:PORT, [ADDRESS]:PORT, ADDRESS or
// :PORT.
func (w *words) target() (*Target, bool) {
	t, ok := w.word("an address or a port", "write ADDRESS:PORT, [ADDRESS]:PORT, ADDRESS or :PORT")
	if !ok {
		return nil, false
	}
	out := &Target{Pos: t.pos}
	s := t.text
	if a, err := netip.ParseAddr(s); err == nil && !strings.HasPrefix(s, "[") || strings.Count(s, ":") > 1 && !strings.HasPrefix(s, "[") {
		r, p := parseRange(s)
		if p != nil || a.Is4In6() {
			return nil, w.problemAt(t, p)
		}
		if r.From != r.To {
			return nil, w.failAt(t, "write one address", "%s is more than one address", source.Quote(s))
		}
		out.Address = r
		return out, true
	}
	at := strings.LastIndexByte(s, ':')
	if at < 0 || strings.HasSuffix(s, "]") {
		if r, p := parseRange(s); p == nil && r.From != r.To {
			return nil, w.failAt(t, "write one address", "%s is more than one address", source.Quote(s))
		}
		return nil, w.failAt(t, "write ADDRESS:PORT, [ADDRESS]:PORT, ADDRESS or :PORT", "%s is not an address or a port", source.Quote(s))
	}
	port, p := parsePort(s[at+1:])
	if p != nil {
		return nil, w.problemAt(t, p)
	}
	out.Port = port
	if host := s[:at]; host != "" {
		bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		r, p := parseAddress(bare)
		if p != nil {
			return nil, w.problemAt(t, p)
		}
		if brackets := bare != host; brackets != (familyOf(r) == 6) {
			return nil, w.failAt(t, "write [2001:db8::1]:80 for IPv6 and 192.0.2.1:80 for IPv4", "%s is not an address and a port", source.Quote(s))
		}
		out.Address = r
	}
	return out, true
}

// complete checks what must be there, and that the families agree.
func (w *nat) complete(t token) bool {
	n := w.nat
	need := func(word string) bool {
		return w.failAt(t, "write "+natUsage[n.Kind], "%s needs %s", n.Kind, word)
	}
	switch {
	case n.Kind == Masquerade && n.Out == nil:
		return need("out ZONE")
	case n.Kind == Redirect && n.In == nil && len(n.On) == 0:
		return need("in ZONE or on ADDRESS")
	case n.Kind == Redirect && n.Target == nil:
		return need("to TARGET")
	case n.Kind == Map && n.Inside == nil:
		return need("to PREFIX")
	}
	if n.Kind == Map {
		return w.completeMap()
	}
	agree := func(pos Pos, what string, r addrset.Range) bool {
		f := familyOf(r)
		if n.Family != 0 && n.Family != f {
			w.fail(pos, "", "%s is IPv%d, but the rest of the line is IPv%d", what, f, n.Family)
			return false
		}
		n.Family = f
		return true
	}
	if n.As != nil && !agree(n.As.Pos, n.As.Range.String(), n.As.Range) {
		return false
	}
	if n.Target != nil && n.Target.Address.IsValid() && !agree(n.Target.Pos, n.Target.Address.String(), n.Target.Address) {
		return false
	}
	for _, r := range n.On {
		if !agree(r.Pos, r.Range.String(), r.Range) {
			return false
		}
	}
	if n.From != nil && !n.From.Not && n.Family != 0 {
		v4, v6 := n.From.families()
		if n.Family == 4 && !v4 || n.Family == 6 && !v6 {
			return w.failAt(token{pos: n.From.Pos}, "", "%s is IPv%d, but the rest of the line is IPv%d", n.From.canonical(), 10-n.Family, n.Family)
		}
	}
	return true
}

func (w *nat) completeMap() bool {
	n := w.nat
	out, _ := n.Outside.Range.Prefix()
	in, _ := n.Inside.Range.Prefix()
	fail := func(hint, format string, args ...any) bool {
		return w.failAt(token{pos: n.Inside.Pos}, hint, format, args...)
	}
	switch {
	case familyOf(n.Outside.Range) != familyOf(n.Inside.Range):
		return fail("", "map between IPv4 and IPv6: %s is IPv%d, %s IPv%d", out, familyOf(n.Outside.Range), in, familyOf(n.Inside.Range))
	case out.Bits() != in.Bits():
		return fail("write prefixes of one length", "prefixes of different lengths: %s and %s", out, in)
	case out == in:
		return fail("", "map of %s to itself", out)
	}
	n.Family = familyOf(n.Outside.Range)
	return true
}

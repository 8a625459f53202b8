package policy

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/packet"
	"sluice/internal/language/source"
)

// endpoints reads the elements of a set of endpoints. What their services mean
// is filled in when all is read, since one may be named before it is defined.
func (f *file) endpoints(s *Set, n *yaml.Node) {
	var refs []ServiceRef
	for _, c := range f.List(n, "endpoints") {
		if _, ok := f.Text(c, "an endpoint"); !ok {
			continue
		}
		toks, ok := f.tokens(c)
		if !ok {
			continue
		}
		w := &words{file: f, toks: toks}
		at, ok := w.endpointAddress()
		if !ok {
			continue
		}
		ref, ok := w.service()
		if !ok {
			continue
		}
		if t := w.peek(); t.kind != endToken {
			w.failAt(t, "write ADDRESS SERVICE", "unexpected %s in an endpoint", t.describe())
			continue
		}
		text := at.Range.String()
		if familyOf(at.Range) == 6 {
			text = "[" + text + "]"
		}
		f.canon[c] = text + " " + ref.Text
		s.Endpoints = append(s.Endpoints, Endpoint{Pos: at.Pos, Address: at.Range})
		refs = append(refs, ref)
	}
	f.after(func() {
		bare := s.Endpoints
		s.Endpoints = nil
		for i := range bare {
			f.resolve(&refs[i])
			s.Endpoints = append(s.Endpoints, f.expandEndpoint(bare[i], &refs[i])...)
		}
		if len(s.Endpoints) == 0 {
			s.Endpoints = bare // after an error it stays a set of endpoints
		}
	})
}

// maxEndpointPorts bounds what one endpoint may stand for.
const maxEndpointPorts = 64

// expandEndpoint makes one endpoint for each protocol and port of a service.
func (f *file) expandEndpoint(e Endpoint, ref *ServiceRef) []Endpoint {
	var out []Endpoint
	for _, m := range ref.Matches {
		if packet.PortProtocolName(m.Protocol) == "" || len(m.Ports) == 0 {
			f.fail(ref.Pos, "write tcp/PORT or udp/PORT", "an endpoint needs a service with ports, but %s has none", source.Quote(ref.Text))
			return nil
		}
		for _, p := range m.Ports {
			if int(p.To)-int(p.From) >= maxEndpointPorts {
				f.fail(ref.Pos, "bypass the service to the address instead", "an endpoint has single ports, but %s has more than %d", source.Quote(ref.Text), maxEndpointPorts)
				return nil
			}
			for port := int(p.From); port <= int(p.To); port++ {
				e.Protocol, e.Port = m.Protocol, uint16(port)
				out = append(out, e)
			}
		}
	}
	return out
}

func (w *words) endpointAddress() (*Range, bool) {
	const hint = "write an address, a space and a service: \"198.51.100.1 tcp/80\""
	var text string
	t := w.take()
	pos := t.pos
	switch t.kind {
	case wordToken:
		text = t.text
	case openToken:
		inner := w.take()
		end := w.take()
		if inner.kind != wordToken || end.kind != closeToken {
			return nil, w.failAt(t, hint, "an endpoint begins with an address")
		}
		text = inner.text
	default:
		return nil, w.failAt(t, hint, "an endpoint begins with an address, found %s", t.describe())
	}
	r, p := parseRange(text)
	if p != nil {
		if strings.Contains(text, "]:") || strings.Count(text, ":") == 1 {
			p.hint = hint
		}
		return nil, w.problemAt(token{pos: pos}, p)
	}
	if _, ok := r.Prefix(); !ok {
		return nil, w.failAt(t, "write one address or a prefix", "an endpoint must be one address or a prefix, not a range")
	}
	if w.done() {
		return nil, w.failAt(w.peek(), hint, "endpoint has no service")
	}
	return &Range{pos, r}, true
}

func (f *file) duration(n *yaml.Node, what string) time.Duration {
	return valueOf(f, n, what, parseDuration, formatDuration)
}

// valueOf reads a scalar that has a canonical form; zero where it has an error.
func valueOf[T any](f *file, n *yaml.Node, what string, parse func(string) (T, *problem), format func(T) string) (v T) {
	s, ok := f.Text(n, what)
	if !ok {
		return v
	}
	v, p := parse(s)
	if f.checked(n, p) {
		f.canon[n] = format(v)
	}
	return v
}

func (f *file) tracking(n *yaml.Node) {
	t := &f.policy.Tracking
	for _, k := range f.Known(n, grammar.Of("tracking")) {
		switch k.Name {
		case "bypass":
			f.bypasses(k.Value)
		case "table":
			if t.Table != nil {
				f.fail(f.At(k.Key), "", "table is already set, see %s", t.Table.Pos)
				continue
			}
			t.Table = f.table(k)
		case "grace":
			if f.Once(k, &t.GracePos) {
				t.Grace = f.grace(k.Value, "grace")
			}
		case "invalid":
			if f.Once(k, &t.InvalidPos) {
				t.InvalidAllow = f.Either(k, "drop", "allow")
			}
		case "icmp-errors":
			if f.Once(k, &t.ErrorsPos) {
				t.ErrorsAll = f.Either(k, "related", "all")
			}
		}
	}
}

// maxGrace bounds how long connections pass that nobody knows.
const maxGrace = 24 * time.Hour

// grace reads a duration; zero is none.
func (f *file) grace(n *yaml.Node, what string) time.Duration {
	if n.Kind == yaml.ScalarNode && n.Value == "none" {
		return 0
	}
	if n.Value == "0s" {
		f.fail(f.At(n), "write none", "%s is zero", what)
		return 0
	}
	d := f.duration(n, what)
	if d > maxGrace {
		f.fail(f.At(n), "write at most 24h, or none", "%s %s is too long", what, n.Value)
	}
	return d
}

func (f *file) bypasses(n *yaml.Node) {
	nodes := []*yaml.Node{n}
	if n.Kind != yaml.MappingNode || f.Accident(n) != "" {
		nodes = f.List(n, "bypass")
	}
	for _, c := range nodes {
		if b := f.bypass(c); b != nil {
			f.policy.Tracking.Bypass = append(f.policy.Tracking.Bypass, *b)
		}
	}
}

// bypass reads SERVICE or SERVICE to WHO.
func (f *file) bypass(n *yaml.Node) *Bypass {
	var toks []token
	var ok bool
	if n.Kind == yaml.MappingNode && f.Accident(n) == "" {
		m := &mappingForm{file: f, node: n}
		by := m.sub(n, "bypass", "service")
		if m.bad {
			return nil
		}
		m.values(by["service"])
		if to, has := by["to"]; has {
			m.word(to, "to")
			m.values(to)
		}
		toks, ok = m.done()
	} else if _, isText := f.Text(n, "a bypass"); isText {
		toks, ok = f.tokens(n)
	}
	if !ok {
		return nil
	}
	w := &words{file: f, toks: toks}
	b := &Bypass{Pos: toks[0].pos}
	if b.Services, ok = w.services(); !ok {
		return nil
	}
	if len(b.Services) == 0 {
		w.failAt(toks[0], "name services", "bypass needs services with ports, but any has none")
		return nil
	}
	if w.accept("to") {
		who, ok := w.who()
		if !ok {
			return nil
		}
		if who != nil && who.Not {
			w.fail(who.Pos, "define a set with except", "not cannot be used in bypass")
			return nil
		}
		b.To = who
		f.checkBypassTo(who)
	}
	if t := w.peek(); t.kind != endToken {
		w.failAt(t, "write SERVICE to WHO", "unexpected %s in bypass%s", t.describe(), source.DidYouMean(t.text, []string{"to"}))
		return nil
	}
	f.after(func() {
		for i := range b.Services {
			f.needPorts(&b.Services[i], "bypass")
		}
	})
	f.setLine(n, b.canonical())
	return b
}

// checkBypassTo is checkWho with endpoints allowed and zones not: which side a
// packet comes from is not asked before tracking.
func (f *file) checkBypassTo(w *Who) {
	if w == nil {
		return
	}
	for _, item := range w.Items {
		if item.Name == "" {
			continue
		}
		f.after(func() {
			switch {
			case f.sets[item.Name] != nil:
				f.mayLive(item.Name, item.Pos, "bypass")
			case f.zones[item.Name] != nil:
				f.fail(item.Pos, "name a set or addresses of this host", "zone %s cannot be used in bypass", source.Quote(item.Name))
			default:
				f.unknownWho(item, true)
			}
		})
	}
}

// The kernel keeps sizes in an int, and time-outs in milliseconds in one.
const (
	maxTable   = 1<<31 - 1
	maxTimeout = maxTable * time.Millisecond
)

func (f *file) table(e source.Entry) *Table {
	t := &Table{Pos: f.At(e.Key)}
	n := e.Value
	if n.Kind == yaml.ScalarNode {
		if n.Value != "auto" {
			f.fail(f.At(n), "write auto, or a mapping such as {max: 262144}", "table must be auto or a mapping, not %s", source.KindName(n))
		}
		t.Auto = true
		return t
	}
	for _, k := range f.Known(n, grammar.Of("table")) {
		switch k.Name {
		case "max":
			t.Max = f.number(k.Value, "max", maxTable)
		case "buckets":
			t.Buckets = f.number(k.Value, "buckets", maxTable)
		case "timeouts":
			t.Timeouts = f.timeouts(k.Value)
		}
	}
	return t
}

func (f *file) number(n *yaml.Node, what string, most uint64) uint64 {
	s, ok := f.Text(n, what)
	if !ok {
		return 0
	}
	v, p := parseNumber(s, what, most)
	f.checked(n, p)
	return v
}

func (f *file) timeouts(n *yaml.Node) []Timeout {
	var out []Timeout
	s := grammar.Of("timeouts")
	for _, k := range f.Entries(n, s.What) {
		if s.Key(k.Name) == nil {
			name := strings.ToLower(k.Name)
			name = strings.TrimPrefix(strings.TrimPrefix(name, "net.netfilter."), "nf_conntrack_")
			name = strings.ReplaceAll(strings.Replace(name, "_timeout", "", 1), "_", "-")
			hint := "write the kernel's name without nf_conntrack_ and _timeout, and - for _: tcp-time-wait"
			if s.Key(name) != nil {
				hint = "write " + name
			}
			f.fail(f.At(k.Key), hint, "unknown timeout %s%s", source.Quote(k.Name), source.DidYouMean(k.Name, s.KeyNames()))
			continue
		}
		d := f.duration(k.Value, k.Name)
		if d > maxTimeout {
			f.fail(f.At(k.Value), "at most 24d", "timeout %s is too long for the kernel", k.Value.Value)
		}
		out = append(out, Timeout{f.At(k.Key), k.Name, d})
	}
	return out
}

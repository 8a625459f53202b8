package inventory

import (
	"cmp"
	"errors"
	"path/filepath"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/addrset"
	"sluice/internal/base/selector"
	"sluice/internal/base/sorting"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
	"sluice/internal/language/source"
)

// What a host or a guest may have at most.
const (
	mostLabels    = 64
	mostAddresses = 256
)

// Load reads the file. What is wrong with it is of type [source.Errors].
func Load(path string) (*Inventory, error) {
	data, err := source.Read(path, dialect.MaxSize)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse reads a text; name is what errors begin with, and where files of facts are beside.
func Parse(name string, data []byte) (*Inventory, error) {
	var errs source.Errors
	p := &parser{File: source.New(name, data, dialect, &errs), inv: &Inventory{File: name}}
	if errs = p.CheckText(data); len(errs) == 0 {
		if doc := p.Document(); doc != nil {
			p.top(doc)
		}
	}
	if len(errs) > 0 {
		return nil, errs.Sorted([]string{name})
	}
	return p.inv, nil
}

type parser struct {
	*source.File
	inv *Inventory
}

func (p *parser) top(doc *yaml.Node) {
	const begin = "the file begins with version: 1"
	if len(doc.Content) == 0 || source.IsNull(doc.Content[0]) {
		p.Fail(p.Pos(1, 1), begin, "file is empty")
		return
	}
	root := doc.Content[0]
	entries := p.Known(root, grammar.Of("inventory"))
	value := map[string]*yaml.Node{}
	for _, e := range entries {
		value[e.Name] = e.Value
	}
	switch version := value["version"]; {
	case version != nil:
		p.Version(version)
	case root.Kind == yaml.MappingNode:
		p.Fail(p.At(root), begin, "version is missing")
	}
	at := map[string]int{}
	if n := value["hosts"]; n != nil {
		for _, e := range p.Entries(n, "hosts") {
			p.host(e)
		}
	}
	sorting.By(p.inv.Hosts, func(a, b Host) int { return cmp.Compare(a.Name, b.Name) })
	for i := range p.inv.Hosts {
		at[p.inv.Hosts[i].Name] = i
	}
	if n := value["guests"]; n != nil {
		for _, e := range p.Entries(n, "guests") {
			p.guest(e, at)
		}
	}
	for i := range p.inv.Hosts {
		sorting.By(p.inv.Hosts[i].Guests, func(a, b policy.Guest) int { return cmp.Compare(a.Name, b.Name) })
	}
}

// name checks the name of a host or guest.
func (p *parser) name(e source.Entry, what string) {
	if wire.CheckHost(e.Name) != nil {
		p.Fail(p.At(e.Key), "write small letters, digits, dots and hyphens", "%s is not the name of %s", source.Quote(e.Name), what)
	}
}

func (p *parser) host(e source.Entry) {
	h := Host{Pos: p.At(e.Key), Name: e.Name}
	p.name(e, "a host")
	for _, k := range p.Known(e.Value, grammar.Of("host")) {
		switch k.Name {
		case "labels":
			h.Labels = p.labels(k.Value)
		case "addresses":
			for _, r := range p.addresses(k) {
				if r.Range.From != r.Range.To {
					p.Fail(r.Pos, "write the addresses that it has", "a host has addresses, and %s is many", r.Range)
					continue
				}
				h.Addresses = append(h.Addresses, r.Range.From)
			}
		case "facts":
			if text, ok := p.Text(k.Value, "facts"); ok {
				h.Facts, h.FactsPos = text, p.At(k.Value)
				if !filepath.IsAbs(text) {
					h.Facts = filepath.Join(filepath.Dir(p.Name), text)
				}
			}
		}
	}
	p.inv.Hosts = append(p.inv.Hosts, h)
}

var interfaceSyntax = regexp.MustCompile(interfacePattern)

func (p *parser) guest(e source.Entry, hosts map[string]int) {
	g := policy.Guest{Pos: p.At(e.Key), Name: e.Name}
	p.name(e, "a guest")
	at, placed := 0, false
	keys := map[string]bool{}
	for _, k := range p.Known(e.Value, grammar.Of("guest")) {
		keys[k.Name] = true
		switch k.Name {
		case "host":
			name, ok := p.Text(k.Value, "host")
			if at, placed = hosts[name]; ok && !placed {
				p.Fail(p.At(k.Value), "name a host of this file", "%s is on no host that is known: there is no %s under hosts", source.Quote(e.Name), source.Quote(name))
			}
		case "interface":
			if name, ok := p.Text(k.Value, "interface"); ok {
				g.Interface = policy.Word{Pos: p.At(k.Value), Text: name}
				if !interfaceSyntax.MatchString(name) {
					p.Fail(p.At(k.Value), "ip link shows the names", "%s is not the name of an interface", source.Quote(name))
				}
			}
		case "addresses":
			g.Addresses = p.addresses(k)
		case "public":
			g.Public = p.addresses(k)
		case "labels":
			g.Labels = p.labels(k.Value)
		}
	}
	if e.Value.Kind == yaml.MappingNode {
		for _, name := range []string{"host", "interface", "addresses"} {
			if !keys[name] {
				p.Fail(p.At(e.Key), "", "guest %s has no %s", source.Quote(e.Name), name)
			}
		}
	}
	if placed {
		h := &p.inv.Hosts[at]
		h.Guests = append(h.Guests, g)
	}
}

func (p *parser) labels(n *yaml.Node) map[string]string {
	entries := p.Entries(n, "labels")
	if len(entries) > mostLabels {
		p.Fail(p.At(n), "leave out what no selector asks for", "%d labels, and there may be %d at most", len(entries), mostLabels)
		return nil
	}
	out := make(map[string]string, len(entries))
	for _, e := range entries {
		value, ok := p.Text(e.Value, "a label")
		if !ok {
			continue
		}
		if err := selector.CheckLabel(e.Name, value); err != nil {
			p.Fail(p.At(e.Key), "", "%v", err)
			continue
		}
		out[e.Name] = value
	}
	return out
}

func (p *parser) addresses(e source.Entry) []policy.Range {
	nodes := p.List(e.Value, e.Name)
	if len(nodes) > mostAddresses {
		p.Fail(p.At(e.Value), "write prefixes in place of single addresses", "%d %s, and there may be %d at most", len(nodes), e.Name, mostAddresses)
		return nil
	}
	var out []policy.Range
	for _, n := range nodes {
		text, ok := p.Text(n, "an address")
		if !ok {
			continue
		}
		r, err := addrset.ParseRange(text)
		if err != nil {
			hint, message := "", err.Error()
			if parse := (*addrset.ParseError)(nil); errors.As(err, &parse) {
				hint, message = parse.Hint, parse.Problem
			}
			p.Fail(p.At(n), hint, "%.200s", message)
			continue
		}
		if slices.ContainsFunc(out, func(o policy.Range) bool { return o.Range == r }) {
			p.Fail(p.At(n), "", "duplicate %s in %s", r, e.Name)
			continue
		}
		out = append(out, policy.Range{Pos: p.At(n), Range: r})
	}
	return out
}

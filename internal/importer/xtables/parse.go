package xtables

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/base/sorting"
	"sluice/internal/importer"
	"sluice/internal/importer/ipset"
	"sluice/internal/program"
)

// place is where a table hooks in: priorities as in enum nf_ip_hook_priorities of
// include/uapi/linux/netfilter_ipv4.h.
type place struct {
	phase    program.Phase
	priority int
	hooks    []program.HookKind
}

var everywhere = []program.HookKind{program.Prerouting, program.Input, program.Forward, program.Output, program.Postrouting}

var places = map[string]place{
	"raw":      {program.Raw, -300, []program.HookKind{program.Prerouting, program.Output}},
	"mangle":   {program.Mangle, -150, everywhere},
	"nat":      {program.NAT, -100, []program.HookKind{program.Prerouting, program.Input, program.Output, program.Postrouting}},
	"filter":   {program.Filter, 0, []program.HookKind{program.Input, program.Forward, program.Output}},
	"security": {program.Behind, 50, []program.HookKind{program.Input, program.Forward, program.Output}},
}

// sourceNAT is the priority of table nat where it rewrites sources.
const sourceNAT = 100

// deepest is how many chains prove/reach follows into one another, which is what
// nf_tables allows (NFT_JUMP_STACK_SIZE).
const deepest = 16

// Parse reads the text of one family, 4 or 6. The tool is the one that printed it:
// "iptables-legacy" or "iptables-nft". Of sets that are not there nothing is known. An
// error is an *importer.SyntaxError.
func Parse(text, tool string, family int, sets map[string]*ipset.Set) (*importer.Ruleset, error) {
	p := &parser{
		family: family, sets: sets, begun: map[string]bool{}, chains: map[string]int{}, jumps: map[string][]jump{}, has: map[string]bool{},
		out: &importer.Ruleset{Tool: tool, Family: "ip", Program: &program.Program{Owner: tool}, Rules: map[string]*importer.Rule{}},
	}
	if family == 6 {
		p.out.Family = "ip6"
	}
	for line := range strings.Lines(text) {
		p.line++
		if err := p.read(strings.TrimRight(line, "\r\n")); err != nil {
			return nil, err
		}
	}
	if p.table != "" {
		p.line++
		return nil, p.fail(0, "the text ends inside table %s, before its COMMIT", p.table)
	}
	if err := p.circles(); err != nil {
		return nil, err
	}
	p.hook()
	return p.out, nil
}

type parser struct {
	family int
	line   int
	out    *importer.Ruleset

	table  string // "" between tables
	begun  map[string]bool
	chains map[string]int // of all tables, by their name in the program: which of the program's
	bases  []base
	jumps  map[string][]jump // by chain, to others
	has    map[string]bool   // sets that are in the program

	sets map[string]*ipset.Set
}

type base struct {
	hook program.Hook
	of   importer.Base
}

type jump struct {
	to           string
	line, column int
}

func (p *parser) fail(at int, format string, args ...any) error {
	return &importer.SyntaxError{Line: p.line, Column: at + 1, What: fmt.Sprintf(format, args...)}
}

func (p *parser) read(line string) error {
	trimmed := strings.TrimLeft(line, " \t")
	at := len(line) - len(trimmed)
	switch {
	case trimmed == "" || trimmed[0] == '#':
		return nil
	case trimmed[0] == '*':
		return p.begin(strings.TrimRight(trimmed[1:], " \t"), at)
	case p.table == "":
		return p.fail(at, "%q is in no table: a line such as *filter is missing before it", trimmed)
	case strings.TrimRight(trimmed, " \t") == "COMMIT":
		p.table = ""
		return nil
	case trimmed[0] == ':':
		return p.chain(line, at)
	}
	return p.rule(line)
}

func (p *parser) begin(table string, at int) error {
	switch {
	case p.table != "":
		return p.fail(at, "table %s begins inside table %s, before its COMMIT", table, p.table)
	case table == "" || strings.ContainsAny(table, "/ \t"):
		return p.fail(at, "%q is not the name of a table", table)
	case p.begun[table]:
		return p.fail(at, "table %s is defined twice", table)
	}
	p.begun[table], p.table = true, table
	return nil
}

// chain reads a line such as ":INPUT DROP [24:1488]".
func (p *parser) chain(line string, at int) error {
	words, err := split(line[at+1:], p.line)
	switch {
	case err != nil:
		return err
	case len(words) < 2:
		return p.fail(at, "a chain has a name and a policy: %q", line)
	}
	name := p.table + "/" + words[0].text
	if _, there := p.chains[name]; there {
		return p.fail(at, "chain %s is defined twice in table %s", words[0].text, p.table)
	}
	policy := map[string]program.Verdict{"ACCEPT": program.Accept, "DROP": program.Drop}[words[1].text]
	if policy == "" && words[1].text != "-" {
		return p.fail(at+1+words[1].from, "%q is not a policy: ACCEPT, DROP or -", words[1].text)
	}
	p.chains[name] = len(p.out.Program.Chains)
	p.out.Program.Chains = append(p.out.Program.Chains, program.Chain{Name: name})
	if policy == "" {
		return nil
	}
	hook := program.HookKind(strings.ToLower(words[0].text))
	b := base{program.Hook{Kind: hook, Default: policy, Chain: name}, importer.Base{Table: p.table, Chain: words[0].text, Hook: hook}}
	where, known := places[p.table]
	if !known || !slices.Contains(where.hooks, hook) || words[0].text != strings.ToUpper(words[0].text) {
		p.out.Unlifted = append(p.out.Unlifted, backend.Unlifted{Chain: name, Text: line, Why: "its hook is not known"})
		return nil
	}
	b.hook.Phase, b.of.Priority = where.phase, where.priority
	if p.table == "nat" && (hook == program.Input || hook == program.Postrouting) {
		b.of.Priority = sourceNAT
	}
	if len(words) > 2 {
		if b.of.Count, err = p.counters(words[2].text, at+1+words[2].from); err != nil {
			return err
		}
	}
	p.bases = append(p.bases, b)
	return nil
}

// counters reads "[24:1488]".
func (p *parser) counters(text string, at int) (*importer.Count, error) {
	inner, opened := strings.CutPrefix(text, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	packets, bytes, two := strings.Cut(inner, ":")
	n, err := strconv.ParseUint(packets, 10, 64)
	m, err2 := strconv.ParseUint(bytes, 10, 64)
	if !opened || !closed || !two || err != nil || err2 != nil {
		return nil, p.fail(at, "%q is not a count: [PACKETS:BYTES]", text)
	}
	return &importer.Count{Packets: n, Bytes: m}, nil
}

// rule reads a line such as "[3:180] -A INPUT -p tcp -j ACCEPT".
func (p *parser) rule(line string) error {
	words, err := split(line, p.line)
	if err != nil {
		return err
	}
	r := &importer.Rule{Table: p.table, Line: p.line, Text: line, Whole: true}
	if words[0].text[:min(1, len(words[0].text))] == "[" {
		if r.Count, err = p.counters(words[0].text, words[0].from); err != nil {
			return err
		}
		if words = words[1:]; len(words) > 0 {
			r.Text = line[words[0].from:]
		}
	}
	switch {
	case len(words) == 0 || words[0].text != "-A" && words[0].text != "--append":
		return p.fail(0, "%q is not a rule: -A CHAIN, then matches and a target", line)
	case len(words) < 2:
		return p.fail(words[0].from, "-A names no chain")
	}
	r.Chain = words[1].text
	name := p.table + "/" + r.Chain
	at, there := p.chains[name]
	if !there {
		return p.fail(words[1].from, "table %s has no chain %s", p.table, r.Chain)
	}
	c := &p.out.Program.Chains[at]
	read := reader{parser: p, rule: r, chain: name, line: line}
	if err := read.read(words[2:]); err != nil {
		return err
	}
	r.Number = p.number(c) + 1
	read.id = fmt.Sprintf("%s:%d", name, r.Number)
	p.out.Rules[read.id] = r
	c.Rules = append(c.Rules, read.lift()...)
	return nil
}

// number is how many of the text's rules a chain has.
func (p *parser) number(c *program.Chain) int {
	if len(c.Rules) == 0 {
		return 0
	}
	return c.Rules[len(c.Rules)-1].Origin.Line
}

// circles refuses what the kernel refuses too: a chain that leads back to itself.
func (p *parser) circles() error {
	const open, done = 1, 2
	state := map[string]int{}
	depth := map[string]int{}
	type at struct {
		chain string
		next  int
	}
	for _, c := range p.out.Program.Chains {
		if state[c.Name] != 0 {
			continue
		}
		state[c.Name] = open
		for path := []at{{c.Name, 0}}; len(path) > 0; {
			top := &path[len(path)-1]
			if top.next == len(p.jumps[top.chain]) {
				state[top.chain] = done
				depth[top.chain]++
				path = path[:len(path)-1]
				if len(path) > 0 {
					above := path[len(path)-1].chain
					depth[above] = max(depth[above], depth[top.chain])
				}
				continue
			}
			j := p.jumps[top.chain][top.next]
			top.next++
			switch state[j.to] {
			case open:
				return &importer.SyntaxError{Line: j.line, Column: j.column, What: fmt.Sprintf("chain %s returns to itself here", j.to)}
			case done:
				depth[top.chain] = max(depth[top.chain], depth[j.to])
			default:
				state[j.to] = open
				path = append(path, at{j.to, 0})
			}
		}
	}
	for _, b := range p.bases {
		if d := depth[b.hook.Chain]; d > deepest {
			p.out.Unlifted = append(p.out.Unlifted, backend.Unlifted{Chain: b.hook.Chain, Text: b.of.Chain, Why: fmt.Sprintf("its jumps go %d chains deep, and at most %d are followed", d, deepest)})
		}
	}
	return nil
}

// hook hooks the base chains in, those of a hook in the order of their priorities, and puts
// them before the others.
func (p *parser) hook() {
	sorting.StableBy(p.bases, func(a, b base) int {
		return cmp.Or(cmp.Compare(slices.Index(everywhere, a.of.Hook), slices.Index(everywhere, b.of.Hook)), cmp.Compare(a.of.Priority, b.of.Priority))
	})
	based := map[string]bool{}
	var chains []program.Chain
	for _, b := range p.bases {
		p.out.Program.Hooks = append(p.out.Program.Hooks, b.hook)
		p.out.Bases = append(p.out.Bases, b.of)
		based[b.hook.Chain] = true
		chains = append(chains, p.out.Program.Chains[p.chains[b.hook.Chain]])
	}
	for _, c := range p.out.Program.Chains {
		if !based[c.Name] {
			chains = append(chains, c)
		}
	}
	p.out.Program.Chains = chains
}

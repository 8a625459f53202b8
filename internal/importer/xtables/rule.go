package xtables

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/importer"
	"sluice/internal/program"
)

// reader is one rule on its way into the program.
type reader struct {
	*parser
	rule  *importer.Rule
	line  string
	chain string // of the program
	id    string

	protocol extension // -p; its option negated says that
	parts    []*extension
	target   *extension
	goes     bool // by -g
	comment  string

	conditions []program.Condition
	gates      []program.Action
	both       []program.NumberRange // ports of which one side has to have one
}

// extension is a match or a target with its options.
type extension struct {
	name    string // of base options "", of those without their -m that of the protocol
	options []option
	text    string // as it was written
}

type option struct {
	name   string // with its dashes
	not    bool
	values []word
	text   string // as it was written
}

// value is the only value of an option.
func (o option) value() (string, error) {
	if len(o.values) != 1 {
		return "", fmt.Errorf("%s has %d values", o.name, len(o.values))
	}
	return o.values[0].text, nil
}

// long are the names of base options that iptables-save prints in short.
var long = map[string]string{
	"--protocol": "-p", "--proto": "-p", "--source": "-s", "--src": "-s", "--destination": "-d", "--dst": "-d",
	"--in-interface": "-i", "--out-interface": "-o", "--fragment": "-f", "--match": "-m", "--jump": "-j", "--goto": "-g",
	"--set-counters": "-c",
}

// valued are options whose value is a text, and may begin with a dash.
var valued = []string{
	"--comment", "--log-prefix", "--nflog-prefix", "--ulog-prefix", "--string", "--hex-string", "--name", "--hashlimit-name", "--match-set",
	"--add-set", "--del-set", "--map-set", "--bytecode", "--nfacct-name", "--rateest-name", "--led-trigger-id", "--label", "--path",
	"--tos", "--set-tos", "--pol", "--helper", "-i", "-o", "-m", "-j", "-g", "-p",
}

// ofProtocol are options that belong to the match of the protocol wherever they stand.
var ofProtocol = []string{"--dport", "--sport", "--destination-port", "--source-port", "--tcp-flags", "--syn", "--tcp-option", "--icmp-type", "--icmpv6-type"}

// read takes the words behind the chain apart.
func (r *reader) read(words []word) error {
	var owner *extension
	for i := 0; i < len(words); {
		first := i
		not := words[i].not()
		if not {
			if i++; i == len(words) {
				return r.fail(words[first].from, "a ! with nothing after it")
			}
		}
		name := words[i]
		if !name.option() {
			return r.fail(name.from, "%q is in place of an option", name.text)
		}
		o := option{name: name.text, not: not}
		if short := long[o.name]; short != "" && !(o.name == "--proto" && owner != nil && owner.name == "policy") {
			o.name = short
		}
		i++
		if i+1 < len(words) && words[i].not() && !words[i+1].option() {
			o.not = true // iptables before 1.4.3 has it behind the option
			i++
		}
		if i < len(words) && slices.Contains(valued, o.name) {
			o.values = append(o.values, words[i])
			i++
		}
		for i < len(words) && !words[i].option() && !words[i].not() {
			o.values = append(o.values, words[i])
			i++
		}
		o.text = r.line[words[first].from:words[i-1].to]
		next, err := r.option(o, name, owner)
		if err != nil {
			return err
		}
		owner = next
	}
	return nil
}

// option gives an option to whom it belongs, and says who owns those that follow.
func (r *reader) option(o option, at word, owner *extension) (*extension, error) {
	switch o.name {
	case "-m", "-j", "-g", "-p", "-s", "-d", "-i", "-o":
		if len(o.values) != 1 {
			return nil, r.fail(at.from, "%s has %d values, not one", at.text, len(o.values))
		}
	}
	switch o.name {
	case "-m":
		e := &extension{name: o.values[0].text, text: o.text}
		r.parts = append(r.parts, e)
		return e, nil
	case "-j", "-g":
		if r.target != nil {
			return nil, r.fail(at.from, "a second target, %s", o.values[0].text)
		}
		r.target, r.goes = &extension{name: o.values[0].text, text: o.text}, o.name == "-g"
		if to := r.table + "/" + r.target.name; r.leads() {
			r.jumps[r.chain] = append(r.jumps[r.chain], jump{to, r.parser.line, at.from + 1})
		} else if r.goes {
			return nil, r.fail(o.values[0].from, "table %s has no chain %s", r.table, r.target.name)
		}
		return r.target, nil
	case "-p":
		r.protocol = extension{name: o.values[0].text, options: []option{o}, text: o.text}
		r.parts = append(r.parts, &extension{options: []option{o}, text: o.text})
		return owner, nil
	case "-s", "-d", "-i", "-o", "-f":
		r.parts = append(r.parts, &extension{options: []option{o}, text: o.text})
		return owner, nil
	case "-c":
		if len(o.values) != 2 {
			return nil, r.fail(at.from, "-c needs packets and bytes")
		}
		count, err := r.counters(fmt.Sprintf("[%s:%s]", o.values[0].text, o.values[1].text), at.from)
		r.rule.Count = count
		return owner, err
	}
	if owner == nil || slices.Contains(ofProtocol, o.name) && !slices.Contains(protocols, owner.name) {
		if r.protocol.name == "" {
			return nil, r.fail(at.from, "%s belongs to no match and no target", at.text)
		}
		owner = r.implied()
	}
	owner.options = append(owner.options, o)
	if owner.text += " " + o.text; owner.text[0] == ' ' {
		owner.text = o.text
	}
	return owner, nil
}

// leads says whether the target is a chain.
func (r *reader) leads() bool {
	_, is := r.chains[r.table+"/"+r.target.name]
	return is
}

// implied is the match that iptables loads by itself for the protocol of -p.
func (r *reader) implied() *extension {
	name := r.protocol.name
	if alias := aliases[name]; alias != "" {
		name = alias
	}
	for _, e := range r.parts {
		if e.name == name {
			return e
		}
	}
	e := &extension{name: name}
	r.parts = append(r.parts, e)
	return e
}

// refuse names a part of the rule that the program does not say.
func (r *reader) refuse(text string, why error) {
	r.rule.Whole = false
	r.out.Unlifted = append(r.out.Unlifted, backend.Unlifted{Chain: r.chain, Rule: r.rule.Number, Text: text, Why: why.Error()})
}

// opaque stands for a match that the program has no words for.
func (r *reader) opaque(e *extension, why error) {
	r.refuse(e.text, why)
	c := program.Condition{Field: program.Opaque, Text: strings.TrimSpace(e.text)}
	switch {
	case slices.Contains(ofTheMoment, e.name):
		c.Text = fmt.Sprintf("%s (%s)", c.Text, r.id)
	case len(e.options) == 1 && e.options[0].not:
		if before, after, found := strings.Cut(c.Text, "! "); found {
			c.Not, c.Text = true, before+after
		}
	}
	r.conditions = append(r.conditions, c)
}

// ofTheMoment are matches that answer two packets alike in all ways differently, so that
// one answer is no other's.
var ofTheMoment = []string{"statistic", "quota", "quota2", "recent", "limit", "hashlimit", "connlimit", "random", "nth", "rateest", "dstlimit"}

// lift makes the program's rules.
func (r *reader) lift() []program.Rule {
	for _, e := range r.parts {
		before, gates := len(r.conditions), len(r.gates)
		if err := r.match(e); err != nil {
			r.conditions, r.gates = r.conditions[:before], r.gates[:gates]
			r.opaque(e, err)
		}
	}
	r.ordered()
	origin := program.Origin{Foreign: true, File: r.command() + " -t " + r.chain[:len(r.table)] + " " + r.rule.Chain, Line: r.rule.Number, Text: r.rule.Text}
	r.out.Program.Counters = append(r.out.Program.Counters, program.Counter{Name: r.id, Origin: origin})
	var out []program.Rule
	add := func(more []program.Condition, actions ...program.Action) {
		out = append(out, program.Rule{
			ID: r.id, Match: slices.Concat(r.conditions, more), Actions: slices.Concat(r.gates, []program.Action{program.Count{Counter: r.id}}, actions),
			Origin: origin, Comment: r.comment,
		})
	}
	does, why := r.action()
	if why != nil {
		text := "no target"
		if r.target != nil {
			text = r.target.text
		}
		r.refuse(text, why)
	}
	either := [][]program.Condition{nil}
	if r.both != nil {
		source, port := program.Condition{Field: program.SourcePort, Numbers: r.both}, program.Condition{Field: program.Port, Numbers: r.both}
		other := source
		other.Not = true
		either = [][]program.Condition{{source}, {other, port}}
	}
	for _, ports := range either {
		for _, d := range does.others {
			add(append(slices.Clone(ports), program.Condition{Field: program.Opaque, Text: fmt.Sprintf("%s: %s (%s)", r.target.text, d, r.id)}), d)
		}
		add(ports, does.actions...)
	}
	return out
}

// ordered names what a bucket counts beyond the rule: the kernel asks matches in their
// order, and the program asks rates behind all conditions.
func (r *reader) ordered() {
	limited := ""
	for _, e := range r.parts {
		switch {
		case slices.Contains(ofTheMoment, e.name):
			limited = e.text
		case limited != "" && e.name != "" && e.name != "comment" && len(r.gates) > 0:
			r.refuse(limited, fmt.Errorf("it also counts packets that %s then refuses", e.text))
			return
		}
	}
}

// command is the program that loads the rules.
func (r *reader) command() string {
	if r.family == 6 {
		return "ip6tables"
	}
	return "iptables"
}

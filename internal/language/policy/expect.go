package policy

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"sluice/internal/language/source"
)

// Expectation is one line of expect: a verdict that every packet must get that
// fits the words. Action may be Deny; Limit, Max and Log are never set.
type Expectation struct {
	Rule
	On     Hook     // as written; "": the other words say it
	States []string // of connection tracking, as package packet names them; empty: new
}

// expectClauses are the parts that expectations have beside those of rules.
var expectClauses = []*clause{
	{"on", "on input|output|forward", "The direction of the packets, if the other words do not imply it.", []string{"reject smtp on output"}, (*rule).on},
	{"state", "state STATE", "The state of the packets in connection tracking: `new`, `established`, `related`, `invalid`, or a list of these. Default: `new`.", []string{"allow [tcp, udp] from 198.51.100.53 state established"}, (*rule).state},
}

// ruleClausesExpected are the clauses of rules that expectations have as well.
var ruleClausesExpected = []string{"published", "ipv4", "ipv6", "from", "to", "in", "out", "by"}

var (
	verdictWords = []string{"allow", "drop", "reject", "deny"}
	hookWords    = []string{string(Input), string(Output), string(Forward)}
	stateWords   = []string{"new", "established", "related", "invalid"}
)

func expectClauseNamed(word string) *clause {
	for _, c := range expectClauses {
		if c.word == word {
			return c
		}
	}
	return nil
}

// expectWords are the words that a clause of an expectation may begin with.
func expectWords() []string {
	out := slices.Clone(ruleClausesExpected)
	for _, c := range expectClauses {
		out = append(out, c.word)
	}
	return out
}

// noSenseExpected says why a word of rules is none of expectations, and the way
// out; "" when it is one.
func noSenseExpected(word string) (why, wayOut string) {
	switch word {
	case "limit", "max":
		return "limits count as not reached", "remove it"
	case "until":
		return "an expectation is about the present", "remove it"
	case "log":
		return "an expectation is only about verdicts", "remove it"
	}
	return "", ""
}

// expect reads a list of expectations.
func (f *file) expect(e source.Entry) {
	f.blockList[e.Value] = true
	for _, n := range f.List(e.Value, "expect") {
		if x := f.expectation(n); x != nil {
			f.policy.Expect = append(f.policy.Expect, x)
		}
	}
}

// expectation reads an expectation in either form; nil when it has an error.
func (f *file) expectation(n *yaml.Node) *Expectation {
	toks, ok := f.ruleTokens(n, "expectation")
	if !ok {
		return nil
	}
	x := &Expectation{Rule: Rule{Pos: f.At(n)}}
	r := &rule{words: &words{file: f, toks: toks}, rule: &x.Rule, expect: x, seen: map[string]bool{}, mark: len(f.later)}
	if !r.parse() {
		return nil
	}
	x.Text = x.canonical()
	f.setLine(n, x.Text)
	return x
}

func (x *Expectation) canonical() string {
	text := x.Rule.canonical()
	if x.On != "" {
		text += " on " + string(x.On)
	}
	if len(x.States) > 0 {
		text += " state " + listText(x.States)
	}
	return text
}

func (r *rule) verdict() bool {
	const hint = "an expectation begins with allow, drop, reject or deny"
	t, ok := r.word("a verdict", hint)
	if !ok {
		return false
	}
	if slices.Contains(verdictWords, t.text) {
		r.rule.Action = Action(t.text)
		return true
	}
	way := hint
	switch strings.ToLower(t.text) {
	case "accept", "permit", "pass", "open":
		way = "write allow"
	case "block", "refuse", "forbid", "closed", "close":
		way = "write deny, or drop or reject if it matters which"
	case "discard":
		way = "write drop"
	case "clamp", "masquerade", "redirect", "map":
		way = "expectations are about verdicts: allow, drop, reject or deny"
	}
	return r.failAt(t, way, "unknown verdict %s%s", source.Quote(t.text), source.DidYouMean(t.text, verdictWords))
}

func (r *rule) on() bool {
	t, ok := r.word("input, output or forward", "write on input, on output or on forward")
	if !ok {
		return false
	}
	if !slices.Contains(hookWords, t.text) {
		return r.failAt(t, "write on input, on output or on forward", "expected input, output or forward after on, found %s%s", t.describe(), source.DidYouMean(t.text, hookWords))
	}
	r.expect.On = Hook(t.text)
	return true
}

func (r *rule) state() bool {
	return r.list("states", func() bool {
		t, ok := r.word("a state", "known are "+strings.Join(stateWords, ", "))
		if !ok {
			return false
		}
		switch {
		case t.text == "untracked":
			return r.failAt(t, "remove state: packets that begin a connection are meant, tracked or not", "write bypass in the policy to leave packets untracked")
		case !slices.Contains(stateWords, t.text):
			return r.failAt(t, "known are "+strings.Join(stateWords, ", "), "unknown state %s%s", source.Quote(t.text), source.DidYouMean(t.text, stateWords))
		case slices.Contains(r.expect.States, t.text):
			return r.failAt(t, "", "duplicate state %s", source.Quote(t.text))
		}
		r.expect.States = append(r.expect.States, t.text)
		return true
	})
}

// way checks that the words make sense together on the way that they say.
func (r *rule) way() {
	x := r.expect
	hook := x.On
	if hook == "" && len(x.Users) > 0 {
		hook = Output
	}
	for _, t := range r.toks {
		if t.kind != wordToken || !r.seen[t.text] || !slices.Contains(ruleClausesExpected, t.text) {
			continue
		}
		if why, wayOut := noSense(t.text, hook); hook != "" && why != "" {
			r.failAt(t, strings.Replace(wayOut, "put the rule under", "write on", 1), "%s cannot be used on %s: %s", source.Quote(t.text), hook, why)
		}
	}
	r.mayFillAll(x.From, "expect")
	r.mayFillAll(x.To, "expect")
	r.checkWho(x.From, "from", hook == Output)
	r.checkWho(x.To, "to", hook == Input)
}

// ReadExpectations reads a file of expectations about p and appends them to
// those that p has. The names in it are those of p. Errors about it are of type
// [Errors]; p is then as it was.
func (p *Policy) ReadExpectations(path string) error {
	data, err := source.Read(path, dialect.MaxSize)
	if err != nil {
		return err
	}
	return p.AddExpectations(path, data)
}

// AddExpectations is ReadExpectations for a text that is already read.
func (p *Policy) AddExpectations(name string, data []byte) error {
	l := p.knowing(name)
	before := p.Expect
	l.policy, l.files = p, []string{name}
	if _, twice := p.lines[name]; twice {
		l.fail(Pos{File: name}, "name a file that has only version and expect", "the file is part of the policy already")
		return l.errs
	}
	f := &file{loader: l, File: source.New(name, data, dialect, &l.errs), stack: []string{name}}
	p.lines[name] = f.Lines
	if l.errs = f.CheckText(data); len(l.errs) == 0 {
		if doc := f.Document(); doc != nil {
			f.expectations(doc)
		}
	}
	if err := l.finish(); err != nil {
		p.Expect = before
		delete(p.lines, name)
		return err
	}
	return nil
}

// expectations reads the document of a file that has nothing else.
func (f *file) expectations(doc *yaml.Node) {
	const hint = "write version: 1 and a list under expect"
	if len(doc.Content) == 0 || source.IsNull(doc.Content[0]) {
		f.fail(f.Pos(1, 1), hint, "file is empty")
		return
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		f.fail(f.At(root), hint, "the file must be a mapping, not %s", source.KindName(root))
		return
	}
	seen := map[string]bool{}
	for _, e := range f.Entries(root, "the file") {
		seen[e.Name] = true
		switch {
		case e.Name == "version":
			f.Version(e.Value)
		case e.Name == "expect":
			f.expect(e)
		case grammar.Of("policy").Key(e.Name) != nil:
			f.fail(f.At(e.Key), hint+"; everything else belongs in the policy file", "%s cannot be used in a file of expectations", source.Quote(e.Name))
		default:
			f.fail(f.At(e.Key), hint, "unknown key %s in a file of expectations%s", source.Quote(e.Name), source.DidYouMean(e.Name, []string{"version", "expect"}))
		}
	}
	for _, name := range []string{"version", "expect"} {
		if !seen[name] && len(f.errs) == 0 {
			f.fail(f.At(root), hint, "%s is missing", name)
		}
	}
}

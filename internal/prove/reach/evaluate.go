package reach

import (
	"cmp"
	"fmt"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// Way is the way of a packet through the host.
type Way = packet.Way

// Ways.
const (
	In      = packet.In
	Through = packet.Through
	Out     = packet.Out
)

// Result is what happens to one packet.
type Result struct {
	Verdict program.Verdict // Accept, Drop or Reject
	Rule    *program.Rule   // that decided; nil where a hook's default did, or nobody objected
	Hook    program.HookKind
	Chain   string        // base chain that dropped; "" for an accepted packet
	Packet  packet.Packet // as it was at the end, after rewriting
	// Certain is false where the verdict depends on something unknown; the rest
	// is then the first possible outcome that is not accepted.
	Certain bool
	// Doubts names what was unknown, Assumed what was assumed.
	Doubts  []string
	Assumed []string
	// Done is what was counted, logged, let through by a limit or noted in a
	// set on the way, as program.ActionText has it.
	Done []string
}

// maxWays bounds how many combinations of unknown answers are tried.
const maxWays = 512

// maxAsked bounds how many rules a packet is asked by: chains that call others several times
// each are few rules, and more than anybody can follow. manyAsked bounds it for all
// combinations but the first.
const (
	maxAsked  = 1 << 22
	manyAsked = 1 << 19
)

// Evaluate judges one packet. A packet without State is given New where
// connection tracking would look at it, or Untracked.
func Evaluate(p *program.Program, pkt packet.Packet, way Way) Result {
	var results []Result
	var script []bool
	for left := maxAsked; len(results) < maxWays && left > 0; left = min(left, manyAsked) {
		e := &evaluation{program: p, packet: pkt, way: way, script: script, left: left}
		r := e.run()
		if left = e.left; left < 0 && len(results) > 0 {
			break // it was given up half way
		}
		if left < 0 {
			e.doubts = append(e.doubts, cmp.Or(e.lost, fmt.Sprintf("what comes behind the %d rules that it is asked by first", maxAsked)))
		}
		r.Doubts, r.Assumed, r.Done = e.doubts, e.assumed, e.done
		results = append(results, r)
		// The next combination: the last answer "yes" becomes "no".
		script = e.answers
		for len(script) > 0 && !script[len(script)-1] {
			script = script[:len(script)-1]
		}
		if len(script) == 0 {
			return merge(results, left >= 0)
		}
		script = append(slices.Clone(script[:len(script)-1]), false)
	}
	return merge(results, false)
}

// merge says what all combinations have in common.
func merge(results []Result, complete bool) Result {
	out := results[0]
	out.Certain = complete
	accepted := out.Verdict == program.Accept
	for _, r := range results[1:] {
		for _, d := range r.Doubts {
			if !slices.Contains(out.Doubts, d) {
				out.Doubts = append(slices.Clone(out.Doubts), d)
			}
		}
		if (r.Verdict == program.Accept) != accepted {
			out.Certain = false
			if accepted {
				r.Certain, r.Doubts, r.Assumed = false, out.Doubts, out.Assumed
				out, accepted = r, false
			}
		}
	}
	return out
}

// phases of the hooks on each way, in the order of the kernel.
type stop struct {
	kind  program.HookKind
	phase program.Phase
}

var prerouting = []stop{
	{program.Ingress, program.Early},
	{program.Prerouting, program.Early},
	{program.Prerouting, program.Raw},
	{program.Prerouting, program.Mangle},
	{program.Prerouting, program.NAT},
	{program.Prerouting, program.Watching},
	{program.Prerouting, program.Filter},
	{program.Prerouting, program.Behind},
}

var ways = map[Way][]stop{
	In: {
		{program.Input, program.Raw},
		{program.Input, program.Mangle},
		{program.Input, program.Watching},
		{program.Input, program.Filter},
		{program.Input, program.Behind},
		{program.Input, program.NAT},
	},
	Through: append([]stop{
		{program.Forward, program.Raw},
		{program.Forward, program.Mangle},
		{program.Forward, program.Watching},
		{program.Forward, program.Filter},
		{program.Forward, program.Behind},
	}, postrouting...),
	Out: append([]stop{
		{program.Output, program.Raw},
		{program.Output, program.Mangle},
		{program.Output, program.NAT},
		{program.Output, program.Watching},
		{program.Output, program.Filter},
		{program.Output, program.Behind},
	}, postrouting...),
}

var postrouting = []stop{
	{program.Postrouting, program.Raw},
	{program.Postrouting, program.Mangle},
	{program.Postrouting, program.Watching},
	{program.Postrouting, program.Filter},
	{program.Postrouting, program.Behind},
	{program.Postrouting, program.NAT},
}

// untracked says whether connection tracking comes behind a place.
func (s stop) untracked() bool {
	switch s.kind {
	case program.Ingress:
		return true
	case program.Prerouting, program.Output:
		return s.phase == program.Raw || s.phase == program.Early
	}
	return false
}

// followed says whether any packet is led to a hook's base chain.
func followed(h program.Hook) bool {
	at := stop{h.Kind, h.Phase}
	return slices.Contains(prerouting, at) || slices.Contains(ways[In], at) || slices.Contains(ways[Through], at) || slices.Contains(ways[Out], at)
}

type evaluation struct {
	program *program.Program
	packet  packet.Packet
	way     Way
	hook    stop

	script  []bool // answers given from outside
	answers []bool // all answers so far
	known   map[string]bool
	doubts  []string
	assumed []string
	done    []string
	met     program.Origin // of the element by which the present rule matches
	depth   int
	left    int    // rules that may still be asked; below 0: it was given up
	lost    string // where, if that is not for their number
	meter   *Meter // nil: nobody listens
}

// guess answers a question that nobody can: as the script says, then yes. One
// question has one answer.
func (e *evaluation) guess(question string) bool {
	if answer, asked := e.known[question]; asked {
		return answer
	}
	answer := true
	if n := len(e.answers); n < len(e.script) {
		answer = e.script[n]
	}
	e.answers = append(e.answers, answer)
	if e.known == nil {
		e.known = map[string]bool{}
	}
	e.known[question] = answer
	e.doubts = append(e.doubts, question)
	return answer
}

func (e *evaluation) assume(text string) {
	if !slices.Contains(e.assumed, text) {
		e.assumed = append(e.assumed, text)
	}
}

func (e *evaluation) run() Result {
	if e.way != Out {
		if r, ended := e.walk(prerouting); ended {
			return r
		}
		if e.packet.DNAT && e.packet.DestinationLocal == packet.No {
			e.way = Through
		}
	}
	if r, ended := e.walk(ways[e.way]); ended {
		return r
	}
	return Result{Verdict: program.Accept, Packet: e.packet}
}

// walk asks the base chains of the stops in turn.
func (e *evaluation) walk(stops []stop) (Result, bool) {
	for _, at := range stops {
		e.hook = at
		// Connection tracking stands between raw and mangle.
		if e.packet.State == "" && !at.untracked() {
			e.packet.State = packet.New
		}
		if at.phase == program.NAT && !e.packet.Begins() {
			continue // only the first packet of a tracked flow is asked about
		}
		for _, h := range e.program.Hooks {
			if h.Kind != at.kind || h.Phase != at.phase || !e.onDevice(h) {
				continue
			}
			if r, ended := e.base(h); ended {
				return r, true
			}
		}
	}
	return Result{}, false
}

func (e *evaluation) onDevice(h program.Hook) bool {
	if len(h.Devices) == 0 {
		return true
	}
	if e.packet.In == "" {
		return e.guess("the packet comes in by one of " + fmt.Sprint(h.Devices))
	}
	return slices.Contains(h.Devices, e.packet.In)
}

// outcome is how a chain ended.
type outcome struct {
	verdict program.Verdict // "" fell off the end or returned
	rule    *program.Rule
}

func (e *evaluation) base(h program.Hook) (Result, bool) {
	chain := e.program.Chain(h.Chain)
	if chain == nil {
		return Result{}, false
	}
	if e.meter != nil {
		e.meter.Base(h)
	}
	o := e.chain(chain)
	if o.verdict == "" {
		o.verdict = h.Default
	}
	if o.verdict == program.Accept {
		return Result{}, false
	}
	return Result{Verdict: o.verdict, Rule: o.rule, Hook: h.Kind, Chain: h.Chain, Packet: e.packet}, true
}

// maxDepth is how many jumps into one another are followed. It is the bound of nf_tables
// (NFT_JUMP_STACK_SIZE); legacy iptables has none.
const maxDepth = 16

func (e *evaluation) chain(c *program.Chain) outcome {
	if e.depth++; e.depth > maxDepth {
		e.depth--
		e.left, e.lost = -1, fmt.Sprintf("what comes behind %d jumps into one another", maxDepth)
		return outcome{verdict: program.Drop}
	}
	defer func() { e.depth-- }()
	for i := range c.Rules {
		r := &c.Rules[i]
		if e.left--; e.left < 0 {
			return outcome{verdict: program.Drop}
		}
		if !e.matches(r) {
			continue
		}
		if o, ended := e.actions(r); ended {
			return o
		}
	}
	return outcome{}
}

func (e *evaluation) matches(r *program.Rule) bool {
	if e.meter != nil {
		return e.metered(r)
	}
	for i := range r.Match {
		switch e.condition(&r.Match[i]) {
		case packet.No:
			return false
		case packet.Unknown:
			if e.guess(question(&r.Match[i], r)) == r.Match[i].Not {
				return false
			}
		}
	}
	e.met = program.Origin{}
	for i := range r.Match {
		e.meet(&r.Match[i])
	}
	return true
}

// meet notes the element of a set that the packet has met, and counts it where
// it stands for a counter.
func (e *evaluation) meet(c *program.Condition) {
	set := e.program.Set(c.Set)
	if set == nil || c.Not || len(set.Elements) == 0 {
		return
	}
	fields := c.SetKey
	if len(fields) == 0 {
		fields = []program.Field{c.Field}
	}
	if key, ok := e.key(fields); ok {
		if found, answer := element(set, key); answer == packet.Yes {
			e.count(found)
		}
	}
}

func (e *evaluation) count(found *program.Element) {
	e.met = found.Origin
	if found.Counter != "" {
		e.done = append(e.done, program.ActionText(program.Count{Counter: found.Counter}))
	}
}

// decider is the rule that decides: of one that stands for several, the one
// whose element the packet has met.
func (e *evaluation) decider(r *program.Rule) *program.Rule {
	if r.Origin != (program.Origin{}) || e.met == (program.Origin{}) {
		return r
	}
	out := *r
	out.Origin = e.met
	return &out
}

// actions runs the actions of a rule that matches; ended says that its chain is
// over, with an empty verdict for a return.
func (e *evaluation) actions(r *program.Rule) (o outcome, ended bool) {
	for _, action := range r.Actions {
		if e.meter != nil {
			e.meter.Done(action)
		}
		does := program.EffectOf(action)
		if does.Map != "" {
			if action = e.verdictOf(does, r); action == nil {
				continue
			}
			does = program.EffectOf(action)
		}
		switch {
		case does.Decides == program.Return:
			return outcome{}, true
		case does.Decides != "":
			return outcome{does.Decides, e.decider(r)}, true
		case does.Calls != "":
			if c := e.program.Chain(does.Calls); c != nil {
				if o := e.chain(c); o.verdict != "" {
					return o, true
				}
			}
		case does.Gates || does.Bounds || does.Counts != "" || len(does.Fills) > 0:
			e.done = append(e.done, effectTexts(action)...)
			switch {
			case does.Gates && does.Bounds && !does.Tracks:
				e.assume("the rate of " + place(r) + " is not used up")
			case does.Gates:
				e.assume("the connections of " + place(r) + " are not used up")
			}
		case does.Goes != "":
			if c := e.program.Chain(does.Goes); c != nil {
				return e.chain(c), true
			}
			return outcome{}, true
		case does.Untracks:
			if e.packet.State == "" {
				e.packet.State = packet.Untracked
			}
		case does.Marks.Mask != 0:
			e.packet.Mark = e.packet.Mark&^does.Marks.Mask | does.Marks.Value
		case does.Rewrites.Field != "":
			if does.Ends && e.pastTranslation(does.Rewrites) {
				return outcome{}, false
			}
			if e.rewrite(does.Rewrites, does.Ends); does.Ends {
				return outcome{program.Accept, r}, true
			}
		}
	}
	return outcome{}, false
}

// verdictOf asks a verdict map; nil where the packet has no element in it.
// Where that cannot be told, each element that it may be is asked about in turn.
func (e *evaluation) verdictOf(does program.Effect, r *program.Rule) program.Action {
	set := e.program.Set(does.Map)
	key, ok := e.key(does.Reads)
	if set == nil || !ok {
		return nil
	}
	if found, answer := element(set, key); answer == packet.Yes {
		e.count(found)
		return found.Verdict
	} else if answer == packet.No {
		return nil
	}
	for i := range set.Elements {
		if fits(&set.Elements[i], key) == packet.Unknown && e.guess(fmt.Sprintf("%s: it is %s in %s", place(r), set.Elements[i], does.Map)) {
			e.count(&set.Elements[i])
			return set.Elements[i].Verdict
		}
	}
	return nil
}

// place names a rule for a reader.
func place(r *program.Rule) string {
	switch {
	case r.Origin.File != "":
		return fmt.Sprintf("%s:%d", r.Origin.File, r.Origin.Line)
	case r.Comment != "":
		return r.Comment
	default:
		return "a rule without a name"
	}
}

// Describe names what decided, for a reader: "policy.yaml:12: drop tcp from
// banned", or the default of a chain.
func (r Result) Describe() string {
	if r.Verdict == program.Accept {
		return "nothing objects"
	}
	if r.Rule == nil {
		return fmt.Sprintf("the default of %s (%s)", r.Chain, r.Verdict)
	}
	switch {
	case r.Rule.Origin.File != "" && r.Rule.Origin.Text != "":
		return fmt.Sprintf("%s:%d: %s", r.Rule.Origin.File, r.Rule.Origin.Line, r.Rule.Origin.Text)
	case r.Rule.Origin.File != "":
		return fmt.Sprintf("%s:%d (%s)", r.Rule.Origin.File, r.Rule.Origin.Line, r.Verdict)
	case r.Rule.Comment != "":
		return fmt.Sprintf("a built-in rule: %s", r.Rule.Comment)
	default:
		return fmt.Sprintf("a rule of the chain %s", r.Chain)
	}
}

package expect

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/bdd"
	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/prove/query"
	"sluice/internal/prove/reach"
	"sluice/internal/prove/reference"
)

// Result is what was found of one expectation.
type Result struct {
	Expectation *policy.Expectation
	Hook        policy.Hook // on which its packets arrive, or are sent
	Failures    []Failure   // none: it holds for every packet
	// Unjudged is why nothing could be judged, and Note the same for a reader.
	Unjudged Unjudged
	Note     string
}

// Unjudged is why nothing could be judged of an expectation; "" where it was.
type Unjudged string

// Why nothing could be judged of an expectation about published ports.
const (
	UnknownHost  Unjudged = "unknown host"  // what publishes ports there is not known
	NotPublished Unjudged = "not published" // nothing publishes such a port now
	NoMembers    Unjudged = "no members"    // a set of a fleet that it names is empty now
)

// UnprovableError says that the expectations cannot be proved.
type UnprovableError struct{ Err error }

func (e *UnprovableError) Error() string {
	return "the expectations cannot be proved: " + e.Err.Error()
}

func (e *UnprovableError) Unwrap() error { return e.Err }

// Holds says that every packet meets what is expected.
func (r *Result) Holds() bool { return len(r.Failures) == 0 }

// Failure is packets that meet something else, all by one line of the policy.
type Failure struct {
	Verdict policy.Action // Allow, Drop or Reject
	// Line is the line of the policy that decides, as it is written; its Pos.Line
	// is 0 where no line does, and Why then says what.
	Pos     policy.Pos
	Text    string
	Why     string
	Traffic []query.Traffic // all of the packets; nil behind the first failures of an expectation
	Witness packet.Packet   // one of them
}

// By is the line that decides, with its place, or why there is none.
func (f *Failure) By() string {
	if f.Pos.Line == 0 {
		return "no line: " + f.Why
	}
	return f.Pos.String() + ": " + f.Text
}

// Unmet says of an expectation that fails by what, on one line.
func (r *Result) Unmet() string {
	var parts []string
	for i := range r.Failures {
		f := &r.Failures[i]
		if i == 2 {
			parts = append(parts, "and by "+english.Plural(len(r.Failures)-i, "more line"))
			break
		}
		of := "a packet"
		if len(f.Traffic) > 0 {
			of = f.Traffic[0].Service() + " " + f.Traffic[0].Place()
		}
		parts = append(parts, fmt.Sprintf("%s is %s by %s", of, f.Verdict.Done(), f.By()))
	}
	return fmt.Sprintf("%q does not hold: %s", r.Expectation.Text, strings.Join(parts, "; "))
}

func (f *Failure) sameLine(o Failure) bool {
	return f.Verdict == o.Verdict && f.Pos == o.Pos && f.Text == o.Text && f.Why == o.Why
}

// FaultError is a disagreement between what was proved of the program and what the
// policy says. It is a bug in Sluice.
type FaultError struct {
	Pos     policy.Pos
	Packet  packet.Packet
	Program program.Verdict // what was proved
	Policy  policy.Action   // what the reference says
	Text    string          // of the line that the reference names
}

func (f *FaultError) Error() string {
	return fmt.Sprintf("%s: trust neither answer: of %s the program says %s and the policy %s (%s)",
		f.Pos, PacketText(f.Packet), f.Program, f.Policy, f.Text)
}

// OfSluice says that the bug is not in the policy.
func (*FaultError) OfSluice() {}

// Judge proves the expectations of a policy against its program, which only the
// required passes have seen, or says for which packets they do not hold.
// Expectations that make no sense on this host come back as policy.Errors. The
// countries have the names of sets that the policy does not name; nil: none has.
func Judge(c query.Compiled, countries func() (*geo.Database, error)) ([]Result, error) {
	return JudgeGuard(c, c.Resolved, countries)
}

// JudgeGuard is Judge of the expectations of another policy, whose names are its own and
// which was resolved for the same host.
func JudgeGuard(c query.Compiled, by *resolve.Resolved, countries func() (*geo.Database, error)) ([]Result, error) {
	c.Program = c.Program.BehindRouting()
	lines, err := linesOf(c, by)
	if err != nil || len(lines) == 0 {
		return nil, err
	}
	j := &judge{Compiled: c, names: query.NewNames(countries, c.Resolved), outcomes: map[packet.Way][]reach.Outcome{}, all: map[packet.Way]reach.Region{}, prepared: map[packet.Way]prepared{}}
	var a asked
	for _, p := range lines {
		for _, l := range p.parts {
			for _, way := range l.ways() {
				l.region(&a, way)
				outByAny(&a, way, c.Facts, l.by)
				bypassed(&a, way)
			}
		}
	}
	var addresses addrset.Set
	if !c.Facts.NonLocalBind { // else any address may be its own
		addresses, _ = own(c.Facts)
	}
	var out []Result
	tooLarge := bdd.Guard(func() {
		j.universe = reach.NewUniverse(reach.Options{Own: addresses, Elsewhere: !c.Facts.Known, Here: c.Here(), Apart: c.Apart(), Questions: a.questions, Settled: true, Stop: c.Stop}, c.Program)
		out, err = j.lines(lines)
	})
	if tooLarge != nil {
		return nil, &UnprovableError{tooLarge}
	}
	return out, err
}

func linesOf(c query.Compiled, by *resolve.Resolved) ([]*promise, error) {
	var lines []*promise
	var errs policy.Errors
	for _, x := range by.Policy.Expect {
		hook, err := hookOf(by, x)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		l := &line{Expectation: x, Resolved: by, hook: hook, here: asks(c.Program, program.DestinationHere)}
		parts := []*line{l}
		if x.Published {
			parts = published(l)
		}
		lines = append(lines, &promise{l, parts})
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return lines, nil
}

// asks says whether a condition of a program is on a field.
func asks(p *program.Program, f program.Field) bool {
	return slices.ContainsFunc(p.Chains, func(c program.Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r program.Rule) bool {
			return slices.ContainsFunc(r.Match, func(c program.Condition) bool { return c.Field == f || slices.Contains(c.SetKey, f) })
		})
	})
}

type judge struct {
	query.Compiled
	names    *query.Names
	universe *reach.Universe
	outcomes map[packet.Way][]reach.Outcome
	all      map[packet.Way]reach.Region // that take the way
	prepared map[packet.Way]prepared
}

func (j *judge) lines(lines []*promise) ([]Result, error) {
	var out []Result
	var senseless policy.Errors
	var faults []error
	for _, l := range lines {
		result, some, err := j.one(l)
		switch {
		case !some && l.Published:
			result.Unjudged, result.Note = unpublished(l.Resolved)
		case !some && (l.ofNobody(l.From) || l.ofNobody(l.To)):
			result.Unjudged, result.Note = NoMembers, "nothing was judged: a set by hosts or guests that it names has no members now"
		case !some:
			senseless = append(senseless, nobody(l.line))
		}
		if err != nil {
			faults = append(faults, err)
		}
		out = append(out, result)
	}
	switch {
	case len(faults) > 0:
		return out, errors.Join(faults...)
	case len(senseless) > 0:
		return nil, senseless
	}
	return out, nil
}

// ofNobody says that there would be addresses if a set by hosts or guests had members.
func (l *line) ofNobody(w *policy.Who) bool {
	if w == nil || w.Not || !addresses(l.Resolved, w).IsEmpty() {
		return false
	}
	var ofFleet func(name string) bool
	ofFleet = func(name string) bool {
		set := l.Policy.Set(name)
		return set != nil && (set.IsGroup() || slices.ContainsFunc(set.Union, func(w policy.Word) bool { return ofFleet(w.Text) }))
	}
	return slices.ContainsFunc(w.Items, func(item policy.WhoItem) bool { return ofFleet(item.Name) })
}

// nobody is the error of a line that no packet fits.
func nobody(l *line) *policy.Error {
	hint := "an expectation leaves out loopback, packets that arrive from an address of this host, ICMP that IP needs, and replies to DHCP"
	switch {
	case slices.Contains(l.States, string(packet.Established)):
		hint = "the connections of banned addresses end when the ban comes"
	case l.From != nil && addresses(l.Resolved, l.From).IsEmpty() || l.To != nil && addresses(l.Resolved, l.To).IsEmpty():
		hint = "a set that it names may be empty"
	}
	return l.Policy.Errorf(l.Pos, hint, "no packet can match the expectation: %s (%s)", l.Text, l.hook)
}

// decided is packets of a line that one line of the policy decides on one way.
type decided struct {
	decision
	line          *line
	region, among reach.Region
}

type decision struct {
	way     packet.Way
	verdict program.Verdict
	origin  program.Origin
	rule    *program.Rule // of those without an origin
	hook    program.HookKind
}

// decided parts the line's packets by whoever decides.
func (j *judge) decided(l *line) (out []decided) {
	u := j.universe
	at := map[decision]int{}
	for _, way := range l.ways() {
		fits, among := l.region(u, way)
		among = u.Minus(u.Unlimited(among), u.And(j.bypassing(way), bypassed(u, way)))
		fits = u.And(fits, among)
		if l.by == byPolicy {
			fits = u.And(fits, j.before(way).led)
		}
		for _, o := range j.of(way) {
			region := u.And(o.Region, fits)
			if u.Empty(region) {
				continue
			}
			d := decision{way: way, verdict: o.Verdict, origin: o.Origin}
			if d.origin == (program.Origin{}) {
				d.rule, d.hook = o.Rule, o.Hook
			}
			if i, known := at[d]; known {
				out[i].region = u.Or(out[i].region, region)
				continue
			}
			at[d] = len(out)
			out = append(out, decided{d, l, region, among})
		}
	}
	return out
}

// alsoAsked is of how many lines that decide as expected the reference is asked
// for one packet each; of those that do not, it is asked of all.
const alsoAsked = 16

// described is of how many lines that decide otherwise the packets are told in
// words: more help nobody, and to find names of large sets takes time.
const described = 20

// one judges one line; some says that there are packets that fit it.
func (j *judge) one(p *promise) (out Result, some bool, err error) {
	out = Result{Expectation: p.Expectation, Hook: p.hook}
	var parts []decided
	for _, l := range p.parts {
		parts = append(parts, j.decided(l)...)
	}
	var all reach.Region // whatever way they take, since what leads a packet elsewhere is worth its words
	for _, way := range p.ways() {
		all = j.universe.Or(all, j.all[way])
	}
	var faults []error
	asked := 0
	for _, d := range parts {
		l := d.line
		met := meets(l.Action, d.verdict)
		if met {
			if asked++; asked > alsoAsked {
				continue
			}
		}
		f := Failure{Verdict: query.ActionOf(d.verdict), Witness: j.witness(d.way, d.region)}
		path, fault := j.agrees(l, &d, f.Witness)
		if fault != nil {
			faults = append(faults, fault)
			continue
		}
		if met {
			continue
		}
		f.Pos, f.Text, f.Why = path.Pos, path.Text, path.Why
		if len(out.Failures) < described {
			f.Traffic = query.Describe(j.Compiled, j.universe, j.names, l.states(), d.way, d.region, j.universe.And(d.among, all), l.destinations())
		}
		if i := slices.IndexFunc(out.Failures, f.sameLine); i >= 0 {
			out.Failures[i].Traffic = append(out.Failures[i].Traffic, f.Traffic...)
			continue
		}
		out.Failures = append(out.Failures, f)
	}
	return out, len(parts) > 0, errors.Join(faults...)
}

// agrees asks the reference about a witness.
func (j *judge) agrees(l *line, d *decided, witness packet.Packet) (reference.Path, error) {
	arrives := l.arrives()
	if l.by == byAnother {
		arrives = d.way
	}
	path := query.Follow(j.Resolved, witness, arrives)
	if path.Verdict == query.ActionOf(d.verdict) {
		return path, nil
	}
	return path, &FaultError{l.Pos, witness, d.verdict, path.Verdict, path.Text + " " + path.Why}
}

// of is what the program does with the packets that take a way and that no limit
// decides.
func (j *judge) of(way packet.Way) []reach.Outcome {
	if j.outcomes[way] == nil {
		j.outcomes[way] = j.universe.OutcomesOf(j.Program, way, j.universe.Unlimited(bdd.Every))
		for _, o := range j.outcomes[way] {
			j.all[way] = j.universe.Or(j.all[way], o.Region)
		}
	}
	return j.outcomes[way]
}

// bypassing is the packets that the program does not have tracked, whatever
// happens to them then.
func (j *judge) bypassing(way packet.Way) reach.Region {
	return j.before(way).untracked
}

// before says what the program makes of packets before a filter sees them.
func (j *judge) before(way packet.Way) prepared {
	if r, known := j.prepared[way]; known {
		return r
	}
	before := *j.Program
	before.Hooks = slices.DeleteFunc(slices.Clone(before.Hooks), func(h program.Hook) bool {
		return h.Phase != program.Raw && h.Phase != program.Early && h.Phase != program.NAT
	})
	var out prepared
	for _, o := range j.universe.OutcomesOf(&before, way, j.universe.Unlimited(bdd.Every)) {
		if slices.Contains(o.Change, "not tracked") {
			out.untracked = j.universe.Or(out.untracked, o.Region)
			continue
		}
		if to, is := ledTo(&o); is {
			out.led = j.universe.Or(out.led, j.universe.And(o.Region, outBy(j.universe, way, j.Facts, to)))
		}
	}
	j.prepared[way] = out
	return out
}

// prepared is packets by what happens to them before a filter: they are kept out
// of tracking, or led on by a DNAT, out by the interface that has the network.
type prepared struct{ untracked, led reach.Region }

func meets(want policy.Action, v program.Verdict) bool {
	got := query.ActionOf(v)
	return want == got || want == policy.Deny && got != policy.Allow
}

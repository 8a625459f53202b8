package nftables

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/program"
)

// piece is what one action becomes: statements of the rule that it is in, unless one
// of the others is set.
type piece struct {
	statements []Statement
	log        []Statement                      // a log, with a rate that gates nothing
	gate       func(then block) (string, error) // makes the chain that leads to what follows
}

// block lowers actions in order.
func (a *actor) block(actions []program.Action) (block, error) {
	var head []Statement
	for i, action := range actions {
		out, err := a.action(action)
		switch {
		case err != nil:
			return nil, err
		case out.log != nil:
			return a.log(head, out.log, actions[:i], actions[i+1:])
		case out.gate != nil:
			return a.withGate(head, actions[i+1:], out.gate)
		}
		head = append(head, out.statements...)
	}
	return block{head}, nil
}

// log puts the log before everything else where nothing before it is a gate,
// since its own rate must gate nothing; else what follows gets a chain.
func (a *actor) log(head, line []Statement, before, rest []program.Action) (block, error) {
	if !slices.ContainsFunc(head, Statement.gates) {
		then, err := a.block(slices.Concat(before, rest))
		if err != nil {
			return nil, err
		}
		if len(then) == 1 && len(then[0]) == 0 {
			return block{line}, nil
		}
		return append(block{line}, then...), nil
	}
	then, err := a.block(rest)
	if err != nil {
		return nil, err
	}
	if len(rest) == 0 {
		return block{append(head, line...)}, nil
	}
	to, err := a.enter(append(block{line}, then...), a.key("log"), origin(a.rule.Origin, a.rule.Comment))
	if err != nil {
		return nil, err
	}
	return block{append(head, to)}, nil
}

// prefix is what is before a logged packet: who logs, and what the policy
// says. The kernel puts nothing behind it.
func (l *lowering) prefix(text string) string {
	if text == "" {
		return l.program.Owner + ": "
	}
	return logPrefix(l.program.Owner + " " + text + ": ")
}

// withGate lowers a gate that is a chain: what follows it goes there.
func (a *actor) withGate(head []Statement, rest []program.Action, chain func(then block) (string, error)) (block, error) {
	then, err := a.block(rest)
	if err != nil {
		return nil, err
	}
	if then.returns() {
		return nil, fmt.Errorf("a return after a gate")
	}
	to, err := chain(then)
	if err != nil {
		return nil, err
	}
	return block{append(head, Statement{Kind: Jump, Name: to})}, nil
}

// action is the only place that tells one kind of action from another to carry it out.
func (a *actor) action(action program.Action) (out piece, err error) {
	switch action := action.(type) {
	case program.Verdict:
		out.statements = []Statement{{Kind: Verdict, Name: string(action)}}
		if action == program.Reject {
			out.statements = a.reject()
		}
	case program.Jump:
		out.statements = []Statement{{Kind: Jump, Name: name(action.Chain)}}
	case program.Goto:
		out.statements = []Statement{{Kind: Goto, Name: name(action.Chain)}}
	case program.VerdictMap:
		out.statements, err = a.verdictMap(action)
	case program.NoTrack:
		out.statements = []Statement{{Kind: NoTrack}}
	case program.Count:
		out.statements = []Statement{{Kind: Count, Name: name(action.Counter)}}
	case program.Log:
		if action.Group != 0 {
			out.statements = []Statement{{Kind: Log, Name: action.Prefix, Number: uint64(action.Group)}}
			break
		}
		if action.Rate.Packets != 0 {
			out.log = []Statement{{Kind: RateLimit, Rate: a.rate(action.Rate)}}
		}
		out.log = append(out.log, Statement{Kind: Log, Name: a.l.prefix(action.Prefix)})
	case program.Limit:
		if action.Per != program.Together {
			out.gate = func(then block) (string, error) { return a.limitPerSource(action, then) }
		} else {
			out.statements = []Statement{a.sharedLimit(action.Name, action.Rate)}
		}
	case program.ConnectionLimit:
		if action.Per != program.Together {
			out.gate = func(then block) (string, error) { return a.connectionsPerSource(action, then) }
		} else {
			a.once = true
			out.statements = []Statement{{Kind: ConnLimit, Number: uint64(action.Max)}}
		}
	case program.SetAdd:
		out.statements, err = a.add(action)
	case program.SetMark:
		out.statements = []Statement{markStatement(action)}
	case program.SetLabel:
		out.statements = []Statement{{Kind: Rewrite, Field: "ct label", Name: strconv.Itoa(int(action.Bit))}}
	case program.DNAT:
		out.statements, err = a.translate(DNAT, action.To, action.Port)
	case program.SNAT:
		out.statements, err = a.ported(action.Ports, Statement{Kind: SNAT, Name: ipOf(familyOf(action.To.Is4())), Values: []string{action.To.String()}})
	case program.DNATPrefix:
		out.statements, err = prefixStatement(DNATPrefix, action.From, action.To)
	case program.SNATPrefix:
		out.statements, err = prefixStatement(SNATPrefix, action.From, action.To)
	case program.Masquerade:
		out.statements, err = a.ported(action.Ports, Statement{Kind: Masquerade})
	case program.Redirect:
		if action.Port != 0 && a.protocols == nil {
			return out, fmt.Errorf("a redirect to a port without a protocol")
		}
		out.statements = []Statement{{Kind: Redirect, Number: uint64(action.Port)}}
	case program.MapSource:
		out.statements, err = mapStatement("saddr", action.From, action.To)
	case program.MapDestination:
		out.statements, err = mapStatement("daddr", action.From, action.To)
	case program.ClampMSS:
		out.statements = []Statement{{Kind: Rewrite, Field: "tcp option maxseg size", Values: []string{"rt mtu"}}}
	case program.Offload:
		out.statements = []Statement{{Kind: Jump, Name: a.l.offload(name(action.Flowtable))}}
	default:
		return out, fmt.Errorf("the action %T is not known to this backend", action)
	}
	return out, err
}

// rejectChain answers what is rejected where the protocol is not known before.
const rejectChain = "reject_packet"

// reject answers TCP with a reset, the rest with port unreachable.
func (a *actor) reject() []Statement {
	reset := Statement{Kind: Reject, Name: "tcp reset"}
	unreachable := Statement{Kind: Reject, Name: "icmpx 1"}
	switch {
	case len(a.protocols) == 1 && a.protocols[0] == (program.NumberRange{From: tcp, To: tcp}):
		return []Statement{reset}
	case len(a.protocols) > 0 && !holds(a.protocols, tcp):
		return []Statement{unreachable}
	}
	a.l.rejectAny()
	return []Statement{{Kind: Goto, Name: rejectChain}}
}

// rejectAny makes the chain that rejects packets of every protocol.
func (l *lowering) rejectAny() {
	if l.tree.chain(rejectChain) != nil {
		return
	}
	l.tree.Chains = append(l.tree.Chains, &Chain{
		Name: rejectChain, Comment: "a reset for TCP, port unreachable for the rest",
		Rules: []Rule{
			{Statements: []Statement{{Kind: Match, Field: "meta l4proto", Op: "==", Values: []string{"6"}}, {Kind: Reject, Name: "tcp reset"}}},
			{Statements: []Statement{{Kind: Reject, Name: "icmpx 1"}}},
		},
	})
}

// offload makes the chain that hands flows to a flowtable, which has its name and no
// other rule: whoever ends the flows makes both again (nft.EndFlows).
func (l *lowering) offload(flowtable string) string {
	if l.tree.chain(flowtable) == nil {
		l.tree.Chains = append(l.tree.Chains, &Chain{
			Name: flowtable, Comment: "flows that take the fast path",
			Rules: []Rule{{Statements: []Statement{{Kind: Offload, Name: flowtable}}}},
		})
	}
	return flowtable
}

func (a *actor) add(add program.SetAdd) ([]Statement, error) {
	s, err := a.keySet(add)
	if err != nil {
		return nil, err
	}
	s.Op = "add"
	s.Number = (add.Timeout + 999) / 1000
	switch {
	case add.Once:
		s.Inner = []Statement{once}
	case add.Remove:
		s.Op = "delete"
	}
	return []Statement{s}, nil
}

// once is what an element has that lets one packet through: the one that makes it.
// The element is gone before the kernel's slowest rate has another token for it.
var once = Statement{Kind: RateLimit, Rate: Rate{Packets: 1, Unit: "week", Burst: 1}}

// keySet is the beginning of a statement that puts what an action names into a
// dynamic set.
func (a *actor) keySet(add program.SetAdd) (Statement, error) {
	if len(add.Fields) == 0 {
		return a.keyedSet(add.Set, add.Key, a.family)
	}
	if side := map[program.Field]string{program.Source: " saddr", program.Destination: " daddr"}[add.Fields[0]]; side != "" && len(add.Fields) == 1 {
		s, err := a.sourceSet(add.Set, a.family)
		s.Field = ipOf(a.family) + side
		return s, err
	}
	p := a.l.parts[add.Set]
	if p == nil || p.set.Life != program.Dynamic || len(p.byFam[0]) != 1 {
		return Statement{}, fmt.Errorf("%q is not a set of such keys that the kernel fills", add.Set)
	}
	var fields []string
	for _, f := range add.Fields {
		of, known := keyWords[f]
		if !known {
			return Statement{}, fmt.Errorf("%s cannot be put into a set that the kernel fills", f)
		}
		fields = append(fields, of)
	}
	return Statement{Kind: SetAdd, Set: p.byFam[0][0].Name, Field: strings.Join(fields, " . ")}, nil
}

// keyWords are fields of which one key serves both families.
var keyWords = map[program.Field]string{program.Protocol: "meta l4proto", program.Port: "th dport", program.SourcePort: "th sport"}

// sourceSet is the beginning of a statement that puts the source into a
// dynamic set.
func (a *actor) sourceSet(id string, family int) (Statement, error) {
	p := a.l.parts[id]
	if p == nil || p.set.Life != program.Dynamic || len(p.byFam[family]) != 1 {
		return Statement{}, fmt.Errorf("%q is not a set that the kernel fills", id)
	}
	return Statement{Kind: SetAdd, Set: p.byFam[family][0].Name, Field: ipOf(family) + " saddr", Mask: keyMask(id, family)}, nil
}

func markStatement(m program.SetMark) Statement {
	s := Statement{Kind: Rewrite, Field: "meta mark", Name: strconv.FormatUint(uint64(m.Value), 10)}
	if keep := ^m.Mask; m.Mask != 0 && keep != 0 {
		s.Mask = strconv.FormatUint(uint64(keep), 10)
		s.Name = strconv.FormatUint(uint64(m.Value&m.Mask), 10)
	}
	return s
}

// ported gives the statement that rewrites a source the range of its port.
func (a *actor) ported(ports program.NumberRange, s Statement) ([]Statement, error) {
	if ports.To != 0 {
		if a.protocols == nil {
			return nil, fmt.Errorf("a translation to ports without a protocol")
		}
		s.Ports = fmt.Sprintf("%d-%d", ports.From, ports.To)
		if ports.From == ports.To {
			s.Ports = strconv.FormatUint(ports.From, 10)
		}
	}
	return []Statement{s}, nil
}

func (a *actor) translate(kind Kind, to netip.Addr, port uint16) ([]Statement, error) {
	if port != 0 && a.protocols == nil {
		return nil, fmt.Errorf("a translation to a port without a protocol")
	}
	return []Statement{{Kind: kind, Name: ipOf(familyOf(to.Is4())), Values: []string{to.String()}, Number: uint64(port)}}, nil
}

func prefixStatement(kind Kind, from, to netip.Prefix) ([]Statement, error) {
	if err := samePrefixes(from, to); err != nil {
		return nil, err
	}
	ip := ipOf(familyOf(from.Addr().Is4()))
	if from.IsSingleIP() {
		field, one := ip+" daddr", DNAT
		if kind == SNATPrefix {
			field, one = ip+" saddr", SNAT
		}
		return []Statement{
			{Kind: Match, Field: field, Op: "==", Values: []string{from.Addr().String()}},
			{Kind: one, Name: ip, Values: []string{to.Addr().String()}},
		}, nil
	}
	return []Statement{{Kind: kind, Name: ip, Values: []string{from.Masked().String(), to.Masked().String()}}}, nil
}

func samePrefixes(from, to netip.Prefix) error {
	if from.Bits() != to.Bits() || from.Addr().BitLen() != to.Addr().BitLen() {
		return fmt.Errorf("a map from %s to %s: not the same length", from, to)
	}
	return nil
}

// mapStatement rewrites the prefix in the header, bit for bit.
func mapStatement(side string, from, to netip.Prefix) ([]Statement, error) {
	if err := samePrefixes(from, to); err != nil {
		return nil, err
	}
	s := Statement{Kind: Rewrite, Field: ipOf(familyOf(to.Addr().Is4())) + " " + side, Name: to.Masked().Addr().String()}
	if to.Bits() < to.Addr().BitLen() {
		s.Mask = hostMask(to).String()
	}
	return []Statement{s}, nil
}

// hostMask has the bits on that a prefix leaves open.
func hostMask(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		b[i] = 0
		for bit := range 8 {
			if i*8+bit >= p.Bits() {
				b[i] |= 0x80 >> bit
			}
		}
	}
	out, _ := netip.AddrFromSlice(b)
	return out
}

// rate says a rate in nft's units and notes where it is not quite the same.
func (a *actor) rate(r program.Rate) Rate {
	out, exact := unitRate(r)
	switch {
	case out.Packets == 0:
		a.l.refuse(a.rule.Origin, "the slowest rate of the kernel is one a week", "a rate of %d in %d ms is too slow", r.Packets, r.Per)
	case !exact:
		a.l.note(a.rule.Origin, "the kernel counts in whole packets a second, minute, hour, day or week: %d in %d ms becomes %d/%s", r.Packets, r.Per, out.Packets, out.Unit)
	}
	return out
}

// units in milliseconds.
var units = []struct {
	name string
	ms   uint64
}{{"second", 1000}, {"minute", 60_000}, {"hour", 3_600_000}, {"day", 86_400_000}, {"week", 604_800_000}}

// unitRate says a rate in the smallest unit that has it exactly, else the
// nearest in the largest; zero where that is none.
func unitRate(r program.Rate) (Rate, bool) {
	burst := r.Burst
	if burst == 0 {
		burst = r.Packets
	}
	per := max(1, r.Per)
	for _, u := range units {
		if n := r.Packets * u.ms; n%per == 0 && n >= per {
			return Rate{Packets: n / per, Unit: u.name, Burst: burst}, true
		}
	}
	last := units[len(units)-1]
	return Rate{Packets: (r.Packets*last.ms + per/2) / per, Unit: last.name, Burst: burst}, false
}

// sharedLimit is one bucket for all rules that name it. The name in the kernel
// has the rate in it, since the kernel does not change the rate of a limit.
func (a *actor) sharedLimit(id string, rate program.Rate) Statement {
	limit := Limit{Rate: a.rate(rate)}
	sum := sha256.Sum256([]byte(limit.Rate.text()))
	limit.Name = stem(id) + "_" + hex.EncodeToString(sum[:4])
	if !slices.Contains(a.l.tree.Limits, limit) {
		a.l.tree.Limits = append(a.l.tree.Limits, limit)
	}
	return Statement{Kind: RateLimit, Name: limit.Name}
}

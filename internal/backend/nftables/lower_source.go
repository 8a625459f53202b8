package nftables

import (
	"fmt"
	"slices"

	"sluice/internal/program"
)

// The chain of a limit by source:
//
//	update @table { source limit rate … } THEN        within its limit
//	source != @table counter full goto NAME_full       not in the table: it is full
//	source @never-ban return                           over the limit, with a ban
//	add @ban { source timeout … }
//	drop
//
// An update of a full table ends the rule just as one over the limit does, so
// the second line tells them apart. A lookup that is turned round asks whether
// the element is there and does not ask its limit (nft_lookup_eval), so it takes
// nothing out of the bucket.
//
// Of packets that answer, source is who began the connection: their destination.
func (a *actor) limitPerSource(limit program.Limit, then block) (string, error) {
	rate := a.rate(limit.Rate)
	inElement := Statement{Kind: RateLimit, Rate: rate}
	b, err := a.gate(limit.Name, limit.Table, limit.Per, "update", inElement, a.sharedLimit(limit.Name+"-full", limit.Rate), limit.FullCounter, then)
	if err != nil {
		return "", err
	}
	if limit.Ban != "" {
		banning, err := a.ban(limit)
		if err != nil {
			return "", err
		}
		b = append(b, banning...)
	}
	return a.l.chainOf(b, limit.Name, origin(a.rule.Origin, a.rule.Comment), a.rule.Origin), nil
}

// connectionsPerSource is the same shape: the element counts the connections
// that connection tracking knows of its source.
func (a *actor) connectionsPerSource(limit program.ConnectionLimit, then block) (string, error) {
	count := Statement{Kind: ConnLimit, Number: uint64(limit.Max)}
	b, err := a.gate(limit.Name, limit.Table, limit.Per, "add", count, count, limit.FullCounter, then)
	if err != nil {
		return "", err
	}
	return a.l.chainOf(b, limit.Name, origin(a.rule.Origin, a.rule.Comment), a.rule.Origin), nil
}

// gate makes the lines that let packets through: by the bucket of the source,
// or by one that all sources share which found the table full.
func (a *actor) gate(id, table string, per program.SourceKey, op string, own, shared Statement, fullCounter string, then block) (block, error) {
	comment := origin(a.rule.Origin, a.rule.Comment)
	through := then[0]
	if !then.plain() {
		// What comes back from there has had its turn at this gate: the goto
		// sends it on behind the rule that jumped here.
		through = []Statement{{Kind: Goto, Name: a.l.chainOf(then, id+"_then", comment, a.rule.Origin)}}
	}
	var lines, full block
	var fullHead []Statement
	if fullCounter != "" {
		fullHead = append(fullHead, Statement{Kind: Count, Name: name(fullCounter)})
	}
	fullChain := a.l.chainOf(block{slices.Concat([]Statement{shared}, through)}, id+"_full", comment, a.rule.Origin)
	for _, f := range a.families {
		s, err := a.keyedSet(table, per, f)
		if err != nil {
			return nil, fmt.Errorf("limit %s: %w", id, err)
		}
		absent := Statement{Kind: Match, Field: s.Field, Mask: s.Mask, Op: "!=", Set: s.Set}
		s.Op, s.Inner = op, []Statement{own}
		lines = append(lines, slices.Concat([]Statement{s}, through))
		full = append(full, slices.Concat([]Statement{absent}, fullHead, []Statement{{Kind: Goto, Name: fullChain}}))
	}
	return slices.Concat(lines, full), nil
}

// ban makes the lines for a source that is over its limit.
func (a *actor) ban(limit program.Limit) (block, error) {
	var spare, add block
	for _, f := range a.families {
		if limit.NeverBan != "" {
			m := &matcher{l: a.l, rule: a.rule, family: f}
			ways, err := m.inSet(&program.Condition{Field: sideOf(limit.Per), Set: limit.NeverBan})
			if err != nil {
				return nil, err
			}
			for _, way := range ways {
				way = slices.Clone(way)
				for i, s := range way {
					if s.Kind == laidOut { // its chains could not return from this one
						way[i] = a.l.plain(s, f)
					}
				}
				spare = append(spare, append(way, Statement{Kind: Verdict, Name: "return"}))
			}
		}
		s, err := a.keyedSet(limit.Ban, limit.Per, f)
		if err != nil {
			return nil, fmt.Errorf("limit %s: %w", limit.Name, err)
		}
		s.Op = "add"
		s.Number = (limit.BanTimeout + 999) / 1000
		add = append(add, []Statement{s})
	}
	over := Statement{Kind: Verdict, Name: "drop"}
	if limit.Over != "" {
		over = Statement{Kind: Goto, Name: name(limit.Over)}
	}
	return slices.Concat(spare, add, block{{over}}), nil
}

// sideOf is the end of a packet that a key is.
func sideOf(key program.SourceKey) program.Field {
	if key == program.PerDestination {
		return program.Destination
	}
	return program.Source
}

// keyedSet is the beginning of a statement that puts one end of a packet into a
// dynamic set.
func (a *actor) keyedSet(id string, key program.SourceKey, family int) (Statement, error) {
	s, err := a.sourceSet(id, family)
	if key == program.PerDestination {
		s.Field = ipOf(family) + " daddr"
	}
	return s, err
}

// askLimits makes conditions of the gates that count nothing: a source that is over
// its limit is in a set.
func (l *lowering) askLimits() {
	p := *l.program
	p.Chains = slices.Clone(p.Chains)
	for i := range p.Chains {
		c := &p.Chains[i]
		c.Rules = slices.Clone(c.Rules)
		for j := range c.Rules {
			r := &c.Rules[j]
			r.Actions = slices.DeleteFunc(slices.Clone(r.Actions), func(a program.Action) bool {
				limit, is := a.(program.Limit)
				if !is || !limit.Asks {
					return false
				}
				r.Match = append(slices.Clone(r.Match), program.Condition{Field: sideOf(limit.Per), Set: limit.Table, Not: true})
				return true
			})
		}
	}
	l.program = &p
}

package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/nfset"
)

// What packets put into a set is what the rules say that fill it: the limit or the
// count that each element has of its own, and the time after which it is forgotten. An
// element with another limit, or one that stays longer, was put there by hand: for its
// key the rule's limit is switched off, since the kernel asks the element's own.

// making is how one rule makes elements of a set.
type making struct {
	does    []nfset.Expression // beside a counter
	timeout time.Duration      // 0 is none
}

// strange is an element that no rule makes so.
type strange struct {
	key      string // as nft writes it
	does     []nfset.Expression
	timeout  time.Duration // 0 is none; the longer of what it was given and what is left
	expected []making
}

// aJiffy is how much a time-out may differ from the rule's, which the kernel keeps in
// ticks of its clock (nf_msecs_to_jiffies64), of which there are 100 a second at the
// least.
const aJiffy = 10 * time.Millisecond

// makes is what the table's rules put into each set, by its name.
func (t *Tree) makes() map[string][]making {
	out := map[string][]making{}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			for _, s := range r.Statements {
				k := t.set(s.Set)
				if s.Kind != SetAdd || s.Op == "delete" || k == nil {
					continue
				}
				m := making{timeout: time.Duration(s.Number) * time.Second} //nolint:gosec // nft's own seconds
				if s.Number == 0 {
					m.timeout = time.Duration(k.Timeout) * time.Millisecond //nolint:gosec // days at most
				}
				for _, inner := range s.Inner {
					if inner.Kind != Count {
						m.does = append(m.does, inner.expression())
					}
				}
				out[s.Set] = append(out[s.Set], m)
			}
		}
	}
	return out
}

// expression is a statement as an element has it.
func (s Statement) expression() nfset.Expression {
	switch s.Kind {
	case RateLimit:
		x := nfset.Expression{Name: "limit", Packets: s.Rate.Packets, Burst: uint32(s.Rate.Burst), Over: s.Over} //nolint:gosec // the kernel has 32 bits
		for _, u := range units {
			if u.name == s.Rate.Unit {
				x.Per = time.Duration(u.ms) * time.Millisecond //nolint:gosec // a week at most
			}
		}
		return x
	case ConnLimit:
		return nfset.Expression{Name: "connlimit", Most: uint32(s.Number), Over: s.Over} //nolint:gosec // the kernel has 32 bits
	}
	return nfset.Expression{Name: string(s.Kind)}
}

// readFilled reads a set that packets fill and keeps what no rule makes so.
func (s *Set) readFilled(ctx context.Context, conn *nfset.Conn, table string, made []making) error {
	begin := func() { s.Strange = nil }
	err := conn.Dump(ctx, s.inKernel(table), begin, func(e nfset.Element) error {
		found := strange{key: everyKey, does: e.Does, timeout: max(e.Timeout, e.Expires), expected: made}
		switch {
		case e.Forever:
			found.timeout = 0
		case e.Timeout == 0:
			found.timeout = max(time.Duration(s.Timeout)*time.Millisecond, e.Expires) //nolint:gosec // days at most
		}
		if !e.CatchAll && slices.ContainsFunc(made, found.isOf) {
			return nil
		}
		if !e.CatchAll {
			var err error
			if found.key, err = s.tuple(e.Key, nil); err != nil {
				return fmt.Errorf("set %s: %w", s.Name, err)
			}
		}
		s.Strange = append(s.Strange, found)
		return nil
	})
	if errors.Is(err, nfset.ErrUnfinished) {
		err = nil // packets change it all the time, and what they put there is not looked for
	}
	sorting.By(s.Strange, func(a, b strange) int { return strings.Compare(a.key, b.key) })
	s.Strange = slices.CompactFunc(s.Strange, func(a, b strange) bool { return a.key == b.key })
	return err
}

// isOf says whether a rule that makes such elements may have made this one.
func (e strange) isOf(m making) bool {
	stays := m.timeout > 0 && (e.timeout == 0 || e.timeout > m.timeout+aJiffy)
	return slices.Equal(e.does, m.does) && !stays
}

func (e strange) text() string { return e.key + ": " + making{e.does, e.timeout}.text() }

func (e strange) want() string {
	if len(e.expected) == 0 || e.key == everyKey {
		return "no element"
	}
	var texts []string
	for _, m := range e.expected {
		if text := m.text(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ", or ")
}

func (m making) text() string {
	parts := make([]string, 0, len(m.does)+1)
	for _, x := range m.does {
		parts = append(parts, expressionText(x))
	}
	if len(m.does) == 0 {
		parts = append(parts, "no limit")
	}
	if m.timeout == 0 {
		return strings.Join(append(parts, "for ever"), ", ")
	}
	return strings.Join(append(parts, "for "+m.timeout.Round(time.Second).String()), ", ")
}

func expressionText(x nfset.Expression) string {
	switch x.Name {
	case "limit":
		of := " packets"
		if x.Bytes {
			of = " bytes"
		}
		unit := x.Per.String()
		for _, u := range units {
			if time.Duration(u.ms)*time.Millisecond == x.Per { //nolint:gosec // a week at most
				unit = u.name
			}
		}
		return "limit rate " + over(x.Over) + strconv.FormatUint(x.Packets, 10) + "/" + unit + " burst " + strconv.FormatUint(uint64(x.Burst), 10) + of
	case "connlimit":
		return "ct count " + over(x.Over) + strconv.FormatUint(uint64(x.Most), 10)
	}
	return x.Name
}

// unmade takes out of the sets that stay what no rule made so. What packets put
// there stays: who is at a limit, or banned by one, is so behind the switch.
func (s *stepper) unmade() {
	var edits []edit
	for _, k := range s.want.Sets {
		h := s.have.Tree.set(k.Name)
		if h == nil || len(h.Strange) == 0 {
			continue
		}
		out := *k
		out.Elements = Elements{}
		for _, e := range h.Strange {
			if e.key == everyKey { // is in no hash, and has no key to be written
				s.add(backend.Fill, "the element of "+k.Name+" for every other key", elementText("delete", s.at(k.Name), []string{everyKey}))
				continue
			}
			out.Elements.Tuples = append(out.Elements.Tuples, e.key)
		}
		edits = append(edits, edit{remove: &out})
	}
	s.send(backend.Fill, "elements that no rule made", nil, edits...)
}

// everyKey is how nft writes the element that every other key finds.
const everyKey = "*"

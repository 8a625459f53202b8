package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sluice/internal/base/english"
	"sluice/internal/base/selector"
	"sluice/internal/engine"
	"sluice/internal/fleet/classes"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/prove/explain"
	"sluice/internal/prove/query"
	"sluice/internal/prove/reach"
)

// Answer is what is answered of a class, for those of its hosts that were asked about.
type Answer[T any] struct {
	Name  string
	Hosts []string
	Is    T
}

// Answers are those of classes, the smallest first host first, and what others have none for.
type Answers[T any] struct {
	Of    []Answer[T]
	Notes []string
}

// ask asks about one host of each class that has hosts of a selector, nil being all. A class
// whose policy lacks what the question names has no answer; where none has one, that is a
// *WrongError. Answers are kept unless kept is "", by which the question is told from others.
func ask[T any](ctx context.Context, j *Judge, a *Asked, only *selector.Selector, kept string, done func(n, of int), do func(ctx context.Context, s *engine.Subject) (T, error)) (*Answers[T], error) {
	r, err := j.classify(ctx, a)
	if err == nil {
		err = r.sound()
	}
	if err != nil {
		return nil, wrong(err)
	}
	out := &Answers[T]{}
	asked := map[*classes.Class][]string{}
	var list []*classes.Class
	for _, c := range r.classes {
		for _, h := range c.Hosts {
			if h.Selected(only) {
				asked[c] = append(asked[c], h.Name)
			}
		}
		if len(asked[c]) > 0 {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return out, nil
	}
	tell := counting(len(list), done)
	answers, failed := make([]T, len(list)), make([]error, len(list))
	at := map[*classes.Class]int{}
	var cold []*classes.Class
	for i, c := range list {
		at[c] = i
		if is, has := j.kept.get(r.keyOf(c, kept)); has {
			answers[i], _ = is.(T)
			tell(c)
			continue
		}
		cold = append(cold, c)
	}
	err = r.Each(ctx, cold, func(ctx context.Context, c *classes.Class) error {
		s := *c.Subject
		is, err := do(ctx, &s)
		switch {
		case errors.Is(err, reach.ErrStopped) || ctx.Err() != nil:
			return errors.Join(err, context.Cause(ctx))
		case err != nil:
			failed[at[c]] = err
		default:
			if answers[at[c]] = is; kept != "" {
				j.kept.put(r.keyOf(c, kept), is)
			}
		}
		tell(c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, c := range list {
		if failed[i] != nil {
			out.Notes = append(out.Notes, c.Name+": "+failed[i].Error())
			continue
		}
		out.Of = append(out.Of, Answer[T]{c.Name, asked[c], answers[i]})
	}
	if len(out.Of) == 0 {
		return nil, &WrongError{failed[slices.IndexFunc(failed, func(err error) bool { return err != nil })]}
	}
	return out, nil
}

// Maps says for each class from which countries connections of a service may begin.
func (j *Judge) Maps(ctx context.Context, a *Asked, only *selector.Selector, service, hook, to string, done func(n, of int)) (*Answers[*query.Map], error) {
	atlas, err := j.atlas()
	if err != nil {
		return nil, err
	}
	hook = cmp.Or(hook, string(policy.Input))
	name := strings.Join([]string{"map", service, hook, to}, "\x00")
	out, err := ask(ctx, j, a, only, name, done, func(ctx context.Context, s *engine.Subject) (*query.Map, error) {
		c, err := s.Meaning(ctx)
		if err != nil {
			return nil, err
		}
		return query.MapOf(ctx, c, query.Words{Service: service, Hook: hook, To: to}, atlas)
	})
	if err == nil {
		j.asked.remember(name, func(ctx context.Context, a *Asked) {
			_, _ = j.Maps(ctx, a, nil, service, hook, to, nil) // who asks is told what is wrong
		})
	}
	return out, err
}

// Reach says for each class who reaches what: all services, or one.
func (j *Judge) Reach(ctx context.Context, a *Asked, only *selector.Selector, service string, done func(n, of int)) (*Answers[*query.Matrix], error) {
	name := "reach\x00" + service
	out, err := ask(ctx, j, a, only, name, done, func(ctx context.Context, s *engine.Subject) (*query.Matrix, error) {
		c, err := s.Meaning(ctx)
		if err != nil {
			return nil, err
		}
		return query.MatrixOf(ctx, c, query.Words{Service: service})
	})
	if err == nil {
		j.asked.remember(name, func(ctx context.Context, a *Asked) { _, _ = j.Reach(ctx, a, nil, service, nil) })
	}
	return out, err
}

// Words are packets that are asked about, as people say them.
type Words = query.Words

// Packet is one that is asked about.
type Packet = explain.Question

// Explained is what happens to one packet on a host.
type Explained = engine.Explained

// Queried is what happens to all packets that were asked about on a host.
type Queried = engine.Queried

// Query says for each class what happens to all packets that fit the words.
func (j *Judge) Query(ctx context.Context, a *Asked, only *selector.Selector, w Words, states, verdicts []string, done func(n, of int)) (*Answers[*engine.Queried], error) {
	var err error
	if w.States, err = query.States(cmp.Or(strings.Join(states, ","), "new")); err != nil {
		return nil, &WrongError{err}
	}
	if hooks := []string{"", string(policy.Input), string(policy.Forward), string(policy.Output)}; !slices.Contains(hooks, w.Hook) {
		return nil, &WrongError{fmt.Errorf("the hook is %s, and not %.40q", english.List(hooks[1:]), w.Hook)}
	}
	var of []program.Verdict
	for _, v := range verdicts {
		if of = append(of, program.Verdict(v)); !slices.Contains([]program.Verdict{program.Accept, program.Drop, program.Reject}, of[len(of)-1]) {
			return nil, &WrongError{fmt.Errorf("a verdict is accept, drop or reject, and not %.40q", v)}
		}
	}
	return ask(ctx, j, a, only, "", done, func(ctx context.Context, s *engine.Subject) (*engine.Queried, error) {
		is, err := s.Query(ctx, w, of)
		if errors.Is(err, reach.ErrTooLarge) {
			err = &engine.TooMuchError{Err: err}
		}
		return is, err
	})
}

// Explain says for each class what happens to one packet, and why.
func (j *Judge) Explain(ctx context.Context, a *Asked, only *selector.Selector, q Packet, done func(n, of int)) (*Answers[*engine.Explained], error) {
	h, err := engine.NewHost(j.sources.State, "", "")
	if err != nil {
		return nil, err
	}
	return ask(ctx, j, a, only, "", done, func(ctx context.Context, s *engine.Subject) (*engine.Explained, error) {
		return h.Explain(ctx, engine.Explaining{Subject: s, Question: q, Elsewhere: true})
	})
}

// atlases is the country data as maps need them.
type atlases struct {
	mutex sync.Mutex
	sum   [32]byte
	is    *query.Atlas
}

func (j *Judge) atlas() (*query.Atlas, error) {
	data, err := j.sources.Countries()
	if err != nil {
		return nil, err
	}
	at := &j.atlases
	at.mutex.Lock()
	defer at.mutex.Unlock()
	if at.is == nil || at.sum != data.Sum() {
		if at.is, err = query.NewAtlas(data); err != nil {
			return nil, err
		}
		at.sum = data.Sum()
	}
	return at.is, nil
}

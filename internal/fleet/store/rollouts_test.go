package store

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sluice/internal/base/testseed"
)

func TestRollouts(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-1", "web-2")
		published(t, s, 1, 2)
		plan, state := json.RawMessage(`{"stages":[1]}`), json.RawMessage(`{"stage":0}`)
		move := func(what string, rollouts []Rollout, desired ...Desired) ([]Rollout, error) {
			return s.Move(ctx, operator, what, Move{rollouts, desired})
		}
		_, err := move("rollout.start", []Rollout{{Bundle: 9}})
		is(t, "no bundle", err, ErrNotFound)
		var first Rollout
		revises(t, s, "a new one", 1, func() error {
			out, err := move("rollout.start", []Rollout{{Bundle: 1, Phase: "waiting", Plan: plan, State: state}})
			first = out[0]
			return err
		})
		same(t, "made", first, Rollout{ID: 1, Bundle: 1, Version: 1, Phase: "waiting", Plan: plan, State: state, Created: first.Created, Changed: first.Created, By: operator})
		same(t, "read", good[Rollout](t)(s.Rollout(ctx, 1)), first)

		stepped := first
		stepped.State = json.RawMessage(`{"stage":0,"seen":3}`)
		revises(t, s, "a step that nobody need be told of", 0, func() error { _, err := move("rollout.step", []Rollout{stepped}); return err })
		_, err = move("rollout.step", []Rollout{stepped}, Desired{Host: "web-1", Bundle: 1})
		is(t, "an old version", err, ErrConflict)
		same(t, "desired of what lost", len(good[[]Desired](t)(s.Desired(ctx))), 0)
		_, err = move("rollout.step", []Rollout{{ID: 7, Version: 1}})
		is(t, "no roll-out", err, ErrNotFound)

		now := good[Rollout](t)(s.Rollout(ctx, 1))
		same(t, "state", string(now.State), string(stepped.State))
		now.Phase = "pushed"
		revises(t, s, "a push", 1, func() error {
			_, err := move("rollout.push", []Rollout{now}, Desired{Host: "web-1", Bundle: 1})
			return err
		})
		desired := good[[]Desired](t)(s.Desired(ctx))
		same(t, "desired", []any{len(desired), desired[0].Rollout}, []any{1, int64(1)})

		now = good[Rollout](t)(s.Rollout(ctx, 1))
		now.Phase, now.Closed = "superseded", true
		out := good[[]Rollout](t)(move("rollout.start", []Rollout{{Bundle: 2, Phase: "pushed", Plan: plan, State: state}, now}, Desired{Host: "web-1", Bundle: 2}))
		same(t, "supersedes", []int64{out[0].ID, out[1].ID, out[1].Version}, []int64{2, 1, 4})
		same(t, "its hosts", good[[]Desired](t)(s.Desired(ctx))[0].Rollout, 2)
		open := good[[]Rollout](t)(s.OpenRollouts(ctx))
		same(t, "open", []any{len(open), open[0].ID}, []any{1, int64(2)})
		same(t, "open, in the snapshot", good[Snapshot](t)(s.Snapshot(ctx)).Rollouts, open)
		same(t, "all", len(good[[]Rollout](t)(s.Rollouts(ctx, 1000))), 2)
		same(t, "the newest", good[[]Rollout](t)(s.Rollouts(ctx, 1))[0].ID, int64(2))
		_, err = s.Rollout(ctx, 3)
		is(t, "no roll-out", err, ErrNotFound)

		var told []string
		for _, e := range good[[]Entry](t)(s.Audit(ctx, 6, 100)) {
			told = append(told, fmt.Sprintf("%s %s", e.What, e.Diff))
		}
		same(t, "told", strings.Join(told, "\n"), `rollout.start {"moved":[{"bundle":1,"from":"","rollout":1,"to":"waiting"}]}
rollout.push {"desired":[{"host":"web-1","bundle":1,"rollout":1}],"moved":[{"bundle":1,"from":"waiting","rollout":1,"to":"pushed"}]}
rollout.start {"desired":[{"host":"web-1","bundle":2,"rollout":2}],"moved":[{"bundle":2,"from":"","rollout":2,"to":"pushed"},{"bundle":1,"from":"pushed","rollout":1,"to":"superseded"}]}`)
	})
}

// TestMoveAtOnce has many move one roll-out at the same time: of those that read one
// version one wins.
func TestMoveAtOnce(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		published(t, s, 1)
		good[[]Rollout](t)(s.Move(ctx, operator, "start", Move{Rollouts: []Rollout{{Bundle: 1, State: json.RawMessage("0")}}}))
		each := testseed.Rounds(10, 100)
		var won atomic.Int64
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(func() {
				for range each {
					r := good[Rollout](t)(s.Rollout(ctx, 1))
					var n int64
					is(t, "state", json.Unmarshal(r.State, &n), nil)
					r.State = json.RawMessage(fmt.Sprint(n + 1))
					switch _, err := s.Move(ctx, "controller", "step", Move{Rollouts: []Rollout{r}}); {
					case err == nil:
						won.Add(1)
					default:
						is(t, "lost", err, ErrConflict)
					}
					_, err := s.Move(ctx, operator, "start", Move{Rollouts: []Rollout{{Bundle: 1}}})
					is(t, "a new one", err, nil)
				}
			})
		}
		wait.Wait()
		r := good[Rollout](t)(s.Rollout(ctx, 1))
		same(t, "state and version", []any{string(r.State), r.Version}, []any{fmt.Sprint(won.Load()), won.Load() + 1})
		same(t, "roll-outs", len(good[[]Rollout](t)(s.Rollouts(ctx, 1000))), 4*each+1)
	})
}

// undone takes back all steps but the first.
func undone() (statements []string) {
	for _, step := range slices.Backward(migrations[1:]) {
		for _, m := range slices.Backward(regexp.MustCompile(`(?m)^(?:create table (\w+)|alter table (\w+) add column (\w+)|drop table (\w+))`).FindAllStringSubmatch(step, -1)) {
			switch {
			case m[1] != "":
				statements = append(statements, "drop table "+m[1])
			case m[4] != "":
				statements = append(statements, "create table "+m[4]+" (kind text)")
			default:
				statements = append(statements, "alter table "+m[2]+" drop column "+m[3])
			}
		}
	}
	return statements
}

// TestUpgrade brings a database of the first version, with a fleet in it, up to this one.
func TestUpgrade(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-1")
		published(t, s, 1)
		for _, statement := range append(undone(), "update sluice_schema set version = 1") {
			if _, err := s.writer.ExecContext(ctx, statement); err != nil {
				t.Fatal(statement, err)
			}
		}
		before := good[[]Host](t)(s.Hosts(ctx))
		// Two controllers that begin at the same time.
		var wait sync.WaitGroup
		for range 2 {
			wait.Go(func() { is(t, "upgrade", s.migrate(ctx, migrations), nil) })
		}
		wait.Wait()
		same(t, "hosts", good[[]Host](t)(s.Hosts(ctx)), before)
		good[[]Rollout](t)(s.Move(ctx, operator, "start", Move{Rollouts: []Rollout{{Bundle: 1}}}))
	})
}

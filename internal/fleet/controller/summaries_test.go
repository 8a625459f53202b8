package controller

import (
	"fmt"
	"reflect"
	"testing"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/rollout"
)

// TestListedRollouts: the list counts hosts, of roll-outs that are over too, and who has a role for
// some hosts counts those; one roll-out names each.
func TestListedRollouts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += "roll-out: {stages: [100%], settle: none}\n"
	for i, env := range []string{"prod", "prod", "test"} {
		a, err := f.join(fmt.Sprint("web-", i), f.token(map[string]string{"env": env}, 1))
		ok(t, err)
		go a.obey(a.stream(nil))
	}
	token, _, err := f.access(f.client, "some", api.Viewer, "env=test")
	ok(t, err)
	some := f.elsewhere(token)
	for n := range 2 {
		_, err := f.publish(fmt.Sprintf("input: {default: drop}\n# %d\n", n))
		ok(t, err)
		f.until("it is done", func() bool {
			all, err := f.client.Rollouts(t.Context(), 100)
			ok(t, err)
			return all[0].ID == int64(n+1) && all[0].State.Phase == rollout.Done && all[0].Told == 3
		})
	}
	f.until("the first one is over", func() bool {
		one, err := f.client.Rollout(t.Context(), 1)
		ok(t, err)
		return one.State.Phase == rollout.Superseded && len(one.State.Hosts) == 3
	})
	all, err := f.client.Rollouts(t.Context(), 100)
	ok(t, err)
	for _, r := range all {
		if r.Told != 3 || r.Failed != 0 || r.State.Hosts != nil || r.State.History != nil || r.State.Reason == "" {
			t.Errorf("%+v", r)
		}
	}
	if all[1].State.Phase != rollout.Superseded {
		t.Errorf("what was over since it was listed: %+v", all[1])
	}
	if again, err := f.client.Rollouts(t.Context(), 100); err != nil || !reflect.DeepEqual(again, all) {
		t.Errorf("asked again: %+v, %v", again, err)
	}
	all, err = some.Rollouts(t.Context(), 100)
	ok(t, err)
	for _, r := range all {
		if r.Told != 1 || r.State.Reason != "" {
			t.Errorf("of some hosts: %+v", r)
		}
	}
}

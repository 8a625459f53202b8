package trust

import (
	"testing"
	"time"
)

func TestLabels(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net", 2)
	h := f.host()
	order := LabelOrder{"example.net", "web-1", 5, start.Add(day), map[string]string{"role": "db"}}
	labels, err := h.Labels(must(SealLabels(order, f.policy...)), "web-1", start)
	ok(t, err)
	if labels["role"] != "db" {
		t.Errorf("labels %v", labels)
	}
	ok(t, errOf(h.Labels(must(SealLabels(order, f.policy...)), "web-1", start)))
	changed := func(change func(o *LabelOrder)) []byte {
		o := order
		change(&o)
		return must(SealLabels(o, f.policy...))
	}
	for _, c := range []struct {
		envelope []byte
		want     error
	}{
		{must(SealLabels(order, f.policy[0])), ErrThreshold},
		{must(SealLabels(order, f.policy[0], f.policy[0])), ErrThreshold},
		{must(SealLabels(order, newKeys(t, 2)...)), ErrUnsigned},
		{must(SealLabels(order, f.online.anyKey())), ErrUnsigned},
		{changed(func(o *LabelOrder) { o.Number = 4 }), ErrRolledBack},
		{changed(func(o *LabelOrder) { o.Host = "web-2" }), ErrWrongHost},
		{changed(func(o *LabelOrder) { o.Fleet = "example.org" }), ErrForeignFleet},
		{changed(func(o *LabelOrder) { o.Number, o.Expires = 6, start.Add(-day) }), ErrExpired},
		{make([]byte, maxOrder+1), ErrTooLarge},
		{changed(func(o *LabelOrder) { o.Labels = map[string]string{"a b": ""} }), ErrMalformed},
		{[]byte("{}"), ErrMalformed},
	} {
		is(t, errOf(h.Labels(c.envelope, "web-1", start)), c.want)
	}
}

// A host that enrols again has heard of no order: a controller may give it any from before that was
// for its name, until that ends.
func TestLabelsOfAHostAnew(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net", 2)
	order := func(number int64, role string) []byte {
		return must(SealLabels(LabelOrder{"example.net", "web-1", number, start.Add(90 * day), map[string]string{"role": role}}, f.policy...))
	}
	old, newest, h := order(5, "db"), order(6, "web"), f.host()
	ok(t, errOf(h.Labels(old, "web-1", start)))
	ok(t, errOf(h.Labels(newest, "web-1", start)))
	is(t, errOf(h.Labels(old, "web-1", start)), ErrRolledBack)
	anew := f.host()
	labels, err := anew.Labels(old, "web-1", start.Add(89*day))
	ok(t, err)
	if labels["role"] != "db" {
		t.Errorf("labels %v", labels)
	}
	is(t, errOf(f.host().Labels(old, "web-2", start)), ErrWrongHost)
	is(t, errOf(f.host().Labels(old, "web-1", start.Add(90*day+time.Second))), ErrExpired)
}

// Operators sign labels one after the other, and what one has not said counts for nothing.
func TestSignLabels(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net", 2)
	h := f.host()
	labels := map[string]string{"role": "db"}
	made, err := f.repository.SignLabels("web-1", labels, start, f.policy[0])
	ok(t, err)
	envelope := func() []byte { return must(f.repository.LabelOrders())["web-1"] }
	if made.Signatures != 1 || made.Needed != 2 {
		t.Errorf("%+v", made)
	}
	is(t, errOf(h.Labels(envelope(), "web-1", start)), ErrThreshold)
	again, err := f.repository.SignLabels("web-1", labels, start.Add(time.Hour), f.policy[0])
	ok(t, err)
	if again.Signatures != 1 || again.Number != made.Number {
		t.Errorf("%+v after %+v", again, made)
	}
	if made, err = f.repository.SignLabels("web-1", labels, start.Add(time.Hour), f.policy[1]); err != nil || made.Signatures != 2 || made.Number != again.Number {
		t.Errorf("%+v, %v", made, err)
	}
	ok(t, errOf(h.Labels(envelope(), "web-1", start)))
	// Another order counts again, and is newer also where the clock has gone back.
	before := envelope()
	if made, err = f.repository.SignLabels("web-1", map[string]string{"role": "web"}, start.Add(-day), f.policy...); err != nil || made.Signatures != 2 || made.Number <= again.Number {
		t.Errorf("%+v, %v", made, err)
	}
	ok(t, errOf(h.Labels(envelope(), "web-1", start)))
	is(t, errOf(h.Labels(before, "web-1", start)), ErrRolledBack)
	is(t, errOf(f.repository.SignLabels("web-1", labels, start, newKeys(t, 1)...)), ErrUnsigned)
	is(t, errOf(f.repository.SignLabels("web-1", map[string]string{"a b": ""}, start, f.policy...)), ErrMalformed)
	if err := errOf(f.repository.SignLabels("../web-1", labels, start, f.policy...)); err == nil {
		t.Error("a name is a path")
	}
}

package nftables

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

var expiringNow = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// expiringElements reads "ADDRESS" and "ADDRESS+SECONDS", the end from expiringNow on.
func expiringElements(t *testing.T, text string) Elements {
	t.Helper()
	var e Elements
	var b addrset.Builder
	for item := range strings.FieldsSeq(text) {
		what, seconds, ends := strings.Cut(item, "+")
		r, err := addrset.ParseRange(what)
		if err != nil {
			t.Fatal(err)
		}
		if !ends {
			b.AddRange(r)
			continue
		}
		left, err := time.ParseDuration(seconds + "s")
		if err != nil {
			t.Fatal(err)
		}
		e.Ends = append(e.Ends, addrset.Ending{Range: r, Until: expiringNow.Add(left)})
	}
	e.Addresses = b.Set()
	return e
}

func expiringTexts(e Elements) string {
	var out []string
	for r := range (&Set{Interval: true, Elements: e}).ranges() {
		text := r.String()
		for _, end := range e.Ends {
			if end.Range == r {
				text += fmt.Sprintf("+%.0f", end.Until.Sub(expiringNow).Seconds())
			}
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// What is about to end may be there or not; whatever else differs is applied, an
// element with another end again.
func TestExpiringDifference(t *testing.T) {
	for _, test := range []struct{ want, have, missing, extra string }{
		{want: "192.0.2.1 192.0.2.2+600", have: "192.0.2.1 192.0.2.2+600"},
		{want: "192.0.2.2+600", have: "192.0.2.2+601"},
		{want: "192.0.2.2+600", missing: "192.0.2.2+600"},
		{want: "192.0.2.2+600", have: "192.0.2.2+900", missing: "192.0.2.2+600", extra: "192.0.2.2"},
		{want: "192.0.2.2+600", have: "192.0.2.2", missing: "192.0.2.2+600", extra: "192.0.2.2"},
		{want: "192.0.2.2", have: "192.0.2.2+600", missing: "192.0.2.2", extra: "192.0.2.2"},
		{want: "192.0.2.2", have: "192.0.2.2+1", missing: "192.0.2.2", extra: "192.0.2.2"},
		{have: "192.0.2.2+600", extra: "192.0.2.2"},
		{have: "192.0.2.2", extra: "192.0.2.2"},
		{want: "192.0.2.2+1"},
		{want: "192.0.2.2+1", have: "192.0.2.2+1"},
		{want: "192.0.2.2+-1"},
		{want: "192.0.2.2+-60"},
		{want: "192.0.2.2+-60", have: "192.0.2.2+1"},
		{want: "192.0.2.2+-60", have: "192.0.2.2+600", extra: "192.0.2.2"}, // the machine slept
		{want: "192.0.2.2+-60", have: "192.0.2.2", extra: "192.0.2.2"},
		{have: "192.0.2.2+1"},
		{want: "192.0.2.0/24 198.51.100.0/24+600", have: "192.0.2.0/24", missing: "198.51.100.0/24+600"},
		{want: "192.0.2.0/24+86400", have: "192.0.2.0/24+86320"}, // a thousandth of what is left
	} {
		want := &Set{Expires: true, Interval: true, Elements: expiringElements(t, test.want)}
		have := &Set{Expires: true, Interval: true, Elements: expiringElements(t, test.have)}
		missing, extra := expiringDifference(want, have, expiringNow)
		if m, e := expiringTexts(missing), expiringTexts(extra); m != test.missing || e != test.extra {
			t.Errorf("want %q, have %q: missing %q and too much %q, not %q and %q", test.want, test.have, m, e, test.missing, test.extra)
		}
	}
}

// A set that commands edit has one of single addresses in each family, whatever is in it,
// and one of ranges where there are some, whose name changes with their ends.
func TestExpiringSets(t *testing.T) {
	lower := func(text string) (out []string) {
		e := expiringElements(t, text)
		s := &program.Set{ID: "shop", Life: program.Living, Expires: true, Addresses: e.all(), Ends: e.Ends}
		for _, f := range families {
			for _, k := range expiring(s, f) {
				out = append(out, k.Name+": "+expiringTexts(k.Elements))
				data, err := k.Elements.MarshalJSON()
				var back Elements
				if err == nil {
					err = back.UnmarshalJSON(data)
				}
				if back.Addresses = k.Elements.Addresses; err != nil || expiringTexts(back) != expiringTexts(k.Elements) {
					t.Errorf("%s is read as %s: %v", data, expiringTexts(back), err)
				}
				if !strings.Contains(k.definition(), "timeout") {
					t.Errorf("%s: %s", k.Name, k.definition())
				}
			}
		}
		return out
	}
	if got := lower(""); !slices.Equal(got, []string{"shop_v4_living: ", "shop_v6_living: "}) {
		t.Errorf("an empty set: %q", got)
	}
	got := lower("192.0.2.1 192.0.2.2+600 198.51.100.0/24+600 203.0.113.0/24 2001:db8::1+60")
	if len(got) != 3 || got[0] != "shop_v4_living: 192.0.2.1 192.0.2.2+600" || !strings.HasSuffix(got[1], ": 198.51.100.0/24+600 203.0.113.0/24") || got[2] != "shop_v6_living: 2001:db8::1+60" {
		t.Errorf("%q", got)
	}
	other := lower("192.0.2.1 192.0.2.2+600 198.51.100.0/24+601 203.0.113.0/24 2001:db8::1+60")
	if name := strings.Fields(got[1])[0]; name == strings.Fields(other[1])[0] || !strings.HasPrefix(name, "shop_net4_") {
		t.Errorf("ranges with other ends are in %s too", name)
	}
}

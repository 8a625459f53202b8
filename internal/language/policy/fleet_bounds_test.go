package policy

import (
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/internal/base/addrset"
)

func bounded(t *testing.T, keys string) (*Policy, error) {
	t.Helper()
	return (Reading{Texts: changed(map[string]string{"fleet.yaml": fleetTexts["fleet.yaml"] + keys}), View: &View{Host: "db-1"}}).Load("fleet.yaml")
}

// What a controller may ban, and whom it may let in, is what its fleet says, and nothing where
// it says nothing.
func TestFleetBounds(t *testing.T) {
	p, err := bounded(t, "bans: {max: 10, for: 1d, widest: [20, 40]}\nshare-bans: {after: 3 hosts, for: 1h}\nexceptions: {who: [office, 192.0.2.0/24], longest: 8h}\n")
	if err != nil {
		t.Fatal(err)
	}
	at := cmpopts.IgnoreTypes(Pos{})
	if diff := gocmp.Diff(&BanBounds{Max: 10, For: 24 * time.Hour, Widest4: 20, Widest6: 40}, p.Fleet.Bans, at); diff != "" {
		t.Error(diff)
	}
	if diff := gocmp.Diff(&ShareBans{After: 3, For: time.Hour}, p.Fleet.ShareBans, at); diff != "" {
		t.Error(diff)
	}
	if p.Exceptions != nil || len(p.Fleet.Exceptions.Who) != 2 {
		t.Errorf("%+v %+v", p.Exceptions, p.Fleet.Exceptions)
	}
	for _, test := range []struct {
		what   string
		length time.Duration
		want   string // "": it may
	}{
		{"192.0.2.1", time.Hour, ""},
		{"192.0.0.0/20", 24 * time.Hour, ""},
		{"192.0.2.77-192.0.18.76", time.Hour, ""},
		{"192.0.2.77-192.0.18.77", time.Hour, "fleet.yaml:7:1: 192.0.2.77-192.0.18.77 is larger than a /20"},
		{"192.0.0.0/19", time.Hour, "is larger than a /20"},
		{"2001:db8::/40", time.Hour, ""},
		{"2001:db8::/39", time.Hour, "is larger than a /40"},
		{"192.0.2.1", 0, "for at most 1d"},
		{"192.0.2.1", 24*time.Hour + 1, "for at most 1d"},
	} {
		r, err := addrset.ParseRange(test.what)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.MayBan(r, test.length); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s for %s: %v, want %q", test.what, test.length, err, test.want)
		}
	}
	one, _ := addrset.ParseRange("198.51.100.1")
	in := func(is bool) func(addrset.Range) (bool, error) {
		return func(addrset.Range) (bool, error) { return is, nil }
	}
	for want, err := range map[string]error{
		"allows no exceptions by its controller for longer than 8h": p.MayAllow(one, 9*time.Hour, in(true)),
		"not an address that the policy lets in by its contro":      p.MayAllow(one, time.Hour, in(false)),
		"needs an end": p.MayAllow(one, 0, in(true)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := p.MayAllow(one, time.Hour, in(true)); err != nil {
		t.Error(err)
	}

	if p, err = bounded(t, "bans:\n"); err != nil || p.Fleet.Bans.String() != "{max: 100000, for: 7d, widest: [24, 48]}" {
		t.Fatal(err, p)
	}
	if p, err = bounded(t, ""); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"let its controller ban": p.MayBan(one, time.Hour), "let its controller make exceptions": p.MayAllow(one, time.Hour, in(true))} {
		if err == nil || !strings.Contains(err.Error(), "the fleet does not "+what) || !strings.Contains(err.Error(), "write ") {
			t.Error(err)
		}
	}
}

func TestFleetBoundsErrors(t *testing.T) {
	for _, test := range [][2]string{
		{"bans: none", "fleet.yaml:7:7: bans must be"},
		{"bans: {max: 0}", "fleet.yaml:7:13: max must be above zero"},
		{"bans: {max: 1000001}", "fleet.yaml:7:13: "},
		{"bans: {for: 7}", "fleet.yaml:7:13: \"7\" is not a duration; add the unit, as in 7s, 7m or 7h"},
		{"bans: {widest: 24}", "fleet.yaml:7:16: widest needs two prefix lengths; write widest: [24, 48]"},
		{"bans: {widest: [24]}", "fleet.yaml:7:16: widest needs two"},
		{"bans: {widest: [33, 48]}", "fleet.yaml:7:17: "},
		{"bans: {widest: [24, 129]}", "fleet.yaml:7:21: "},
		{"bans: {}\nbans: {}", "fleet.yaml:8:1: "},
		{"exceptions: {who: [nobody]}", "fleet.yaml:7:20: "},
		{"share-bans: {after: 3, for: 1h}", "fleet.yaml:7:21: \"3\" is not a number of hosts; write it as in 3 hosts"},
		{"share-bans: {after: 3 hosts, for: 2h}", "fleet.yaml:7:1: share-bans needs bans, which lets the controller ban; write bans: {for: 2h}"},
		{"bans: {for: 1h}\nshare-bans: {after: 3 hosts, for: 2h}", "fleet.yaml:8:1: for is 2h, but bans lets the controller ban for at most 1h"},
		{"bans: {}\nshare-bans: {after: 3 hosts}", "fleet.yaml:8:1: "},
		{"bans: {}\nshare-bans: {after: 1 host, for: 1h}", "fleet.yaml:8:21: after must be at least 2 hosts: otherwise one host that lies could ban on all; write after: 2 hosts, or more"},
	} {
		want, hint, _ := strings.Cut(test[1], "; ")
		if _, err := bounded(t, test[0]+"\n"); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v, want %q and %q", test[0], err, want, hint)
		}
	}
	text, err := Format("fleet.yaml", []byte("version: 1\nfleet: a\nparts: b\nbans: {for:  168h, widest: [24,48]}\nshare-bans: {after:  3  hosts, for: 60m}\nexceptions: {longest: 1440m}\n"))
	if want := "version: 1\nfleet: a\nparts: b\nbans: { for: 7d, widest: [24, 48] }\nshare-bans: { after: 3 hosts, for: 1h }\nexceptions: { longest: 1d }\n"; err != nil || string(text) != want {
		t.Errorf("%v\n%s", err, text)
	}
}

// What happens to rules that somebody changed, one part of a host says.
func TestDriftOfPart(t *testing.T) {
	load := func(base, web string) (*Policy, error) {
		return (Reading{Texts: changed(map[string]string{"parts/10-base.yaml": fleetTexts["parts/10-base.yaml"] + base, "parts/60-web.yaml": fleetTexts["parts/60-web.yaml"] + web}), View: &View{Host: "edge-1"}}).Load("fleet.yaml")
	}
	for _, test := range []struct {
		base, web string
		want      bool
	}{{"", "", false}, {"drift: report\n", "", false}, {"", "drift: restore\n", true}} {
		if p, err := load(test.base, test.web); err != nil || p.Fleet.Restore != test.want {
			t.Errorf("%+v: %v", test, err)
		}
	}
	for _, test := range [][3]string{
		{"drift: report\n", "drift: restore\n", "parts/60-web.yaml:4:1: drift is already set, see parts/10-base.yaml:4:8"},
		{"drift: fix\n", "", "parts/10-base.yaml:4:8: "},
		{"only: guests app=shop\ndrift: restore\n", "", "drift cannot be used in"},
	} {
		if _, err := load(test[0], test[1]); err == nil && !strings.HasPrefix(test[0], "only") || err != nil && !strings.Contains(err.Error(), test[2]) {
			t.Errorf("%q: %v", test, err)
		}
	}
}

// What never-ban of a part names is known of all parts where the files write it out.
func TestNeverOfParts(t *testing.T) {
	p, err := (Reading{Texts: map[string][]byte{
		"fleet.yaml":    []byte("version: 1\nfleet: a\nparts: parts/*.yaml\nsets: {all: [192.0.2.1]}\n"),
		"parts/10.yaml": []byte("version: 1\nnever-ban: [office, all, 198.51.100.7]\nsets: {office: {union: [desk, all]}, desk: [203.0.113.0/24]}\n"),
		"parts/20.yaml": []byte("version: 1\nhosts: role=db\ninput: {default: drop}\n"),
	}}).ReadFleet("fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	never, want := p.Fleet.Parts[0].Never, addrset.Set{}
	for _, text := range []string{"192.0.2.1", "198.51.100.7", "203.0.113.0/24"} {
		r, err := addrset.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		want = want.Union(addrset.Of(r))
	}
	if !never.Equal(want) || !p.Fleet.Parts[1].Never.IsEmpty() {
		t.Errorf("%v, and %v", never, p.Fleet.Parts[1].Never)
	}
}

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"sluice/internal/base/addrset"
)

// fleetTexts are the files of a small fleet.
var fleetTexts = map[string]string{
	"fleet.yaml": `version: 1
fleet: example.net
parts: [parts/*.yaml]
sets:
  web: { hosts: role=web and env=prod, within: [203.0.113.0/24, "2001:db8:7::/48"] }
  pg: { guests: app=postgres, within: 10.30.0.0/16 }
`,
	"parts/10-base.yaml": `version: 1
sets: { office: [198.51.100.0/24] }
input: { default: drop, rules: [allow ssh from office] }
`,
	"parts/50-db.yaml": `version: 1
hosts: role=db
sets: { admins: [198.51.100.7] }
input: { rules: [allow postgresql from web, allow ssh from admins] }
`,
	"parts/60-web.yaml": `version: 1
hosts: role=web or host=edge-1
input: { rules: [allow https] }
`,
	"db-1.yaml": `version: 1
fleet: fleet.yaml
host: db-1
labels: {role: db, env: prod}
members:
  web: [203.0.113.5, "2001:db8:7::5"]
  gone: [192.0.2.1]
`,
}

// changed are these files with others, of which "" is none.
func changed(with map[string]string) map[string][]byte {
	out := map[string][]byte{}
	for _, texts := range []map[string]string{fleetTexts, with} {
		for name, text := range texts {
			if out[name] = []byte(text); text == "" {
				delete(out, name)
			}
		}
	}
	return out
}

func ruleTexts(p *Policy) (out []string) {
	for _, r := range p.Input.Rules {
		out = append(out, fmt.Sprintf("%s:%d %s", r.Pos.File, r.Pos.Line, r.Text))
	}
	return out
}

func ranges(texts ...string) (out []Range) {
	for _, text := range texts {
		out = append(out, Range{Range: addrset.MustParseRange(text)})
	}
	return out
}

// A host's policy is its fleet's file and the parts that are of it, whoever says what the
// host is.
func TestFleet(t *testing.T) {
	p, err := LoadTexts("db-1.yaml", changed(nil))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"parts/10-base.yaml:3 allow ssh from office", "parts/50-db.yaml:4 allow postgresql from web", "parts/50-db.yaml:4 allow ssh from admins"}
	if diff := gocmp.Diff(want, ruleTexts(p)); diff != "" {
		t.Error(diff)
	}
	if diff := gocmp.Diff([]string{"fleet.yaml", "parts/10-base.yaml", "parts/50-db.yaml"}, p.Includes); diff != "" {
		t.Error(diff)
	}
	web := p.Set("web")
	if web.Hosts.Text != "role=web and env=prod" || len(web.Elements) != 2 || web.Elements[0].Pos.String() != "db-1.yaml:6:9" || len(web.Within) != 2 {
		t.Errorf("%+v", web)
	}
	if pg := p.Set("pg"); pg.Guests.Text != "app=postgres" || len(pg.Elements) != 0 {
		t.Errorf("%+v", pg)
	}
	if f := p.Fleet; f.Name != "example.net" || f.Host != "db-1" || f.String() != "host db-1 (env=prod, role=db)" || len(f.Parts) != 3 || f.Parts[2].Matches || f.Parts[2].Pos.String() != "parts/60-web.yaml:2:1" {
		t.Errorf("%+v", f)
	}
	// What a host has is the parts that are of it, and so are the texts that are kept.
	kept := changed(map[string]string{"parts/60-web.yaml": ""})
	kept["fleet.yaml"] = []byte(strings.Replace(fleetTexts["fleet.yaml"], "parts/*.yaml", "parts/10-base.yaml, parts/50-db.yaml, parts/60-web.yaml", 1))
	again, err := LoadTexts("db-1.yaml", kept)
	if err != nil || !slices.Equal(ruleTexts(again), want) {
		t.Errorf("%v %v", err, ruleTexts(again))
	}
	view := &View{Host: "db-1", Labels: map[string]string{"role": "db", "env": "prod"}, Members: map[string][]Range{"web": ranges("203.0.113.5", "2001:db8:7::5")}}
	if p, err = (Reading{Texts: changed(nil), View: view}).Load("fleet.yaml"); err != nil || !slices.Equal(ruleTexts(p), want) || len(p.Set("web").Elements) != 2 {
		t.Errorf("%v %v", err, ruleTexts(p))
	}
	if p, err = (Reading{Texts: changed(nil), View: &View{Host: "edge-1"}}).Load("fleet.yaml"); err != nil || len(p.Input.Rules) != 2 {
		t.Errorf("%v %v", err, ruleTexts(p))
	}
	if p, err = (Reading{Texts: changed(nil)}).ReadFleet("fleet.yaml"); err != nil || len(p.Fleet.Parts) != 3 || len(p.Groups()) != 2 || p.Input != nil || p.Text("parts/60-web.yaml") == nil {
		t.Errorf("%v %+v", err, p)
	}
}

// What is wrong is told at its place, and where two parts have to do with it, at both.
func TestFleetErrors(t *testing.T) {
	web := &View{Labels: map[string]string{"role": "web"}}
	for _, test := range []struct {
		with map[string]string
		view *View // nil: db-1.yaml
		want string
	}{
		{
			map[string]string{"parts/50-db.yaml": "version: 1\nhosts: role=db\ninput: {default: reject}\n"},
			nil,
			"parts/50-db.yaml:3:9: default is already set, see parts/10-base.yaml:3:19; both apply to host db-1 (env=prod, role=db): set it in one of them, or exclude the host by the hosts of one",
		},
		{
			map[string]string{"parts/50-db.yaml": "version: 1\nsets: {office: [192.0.2.1]}\n"},
			web,
			"parts/50-db.yaml:2:8: set \"office\" is already a set, see parts/10-base.yaml:2:9; both apply to a host with role=web: set it in one of them, or exclude the host by the hosts of one",
		},
		{
			map[string]string{"parts/60-web.yaml": "version: 1\nhosts: role=web\ninput: {rules: [allow ssh from admins]}\n"},
			web,
			"parts/60-web.yaml:3:32: unknown set or zone \"admins\"; parts/50-db.yaml:3:9 defines it, but does not apply to a host with role=web",
		},
		{
			map[string]string{"parts/60-web.yaml": "version: 1\nhosts: role=web\nrequires: [office, admins]\ninput: {rules: [allow ssh from admins]}\n"},
			web,
			"parts/60-web.yaml:3:20: no part that applies to a host with role=web defines \"admins\"; parts/50-db.yaml:3:9 defines it, but does not apply to a host with role=web",
		},
		{
			map[string]string{"parts/60-web.yaml": "version: 1\nrequires: shop\nservices: {shop: tcp/81}\n"},
			web,
			"parts/60-web.yaml:2:11: \"shop\" is defined in this part, see parts/60-web.yaml:3:12; remove it",
		},
		// A part of other hosts is read for its own mistakes.
		{
			map[string]string{"parts/60-web.yaml": "version: 1\nhosts: role=web\ninput: {rules: [allow ssh from elsewhere, alow https]}\n"},
			nil,
			"parts/60-web.yaml:3:43: unknown action \"alow\", did you mean \"allow\"?",
		},
		{map[string]string{"parts/60-web.yaml": "version: 1\nhosts: role = = web\n"}, nil, "parts/60-web.yaml:2:15: hosts: \"=\" is no value of a label: "},
		{
			map[string]string{"parts/60-web.yaml": "version: 1\ninclude: [more.yaml]\n"},
			nil,
			"parts/60-web.yaml:2:1: include cannot be used in a part of a fleet; list the file under parts of the fleet; it can select its hosts",
		},
		{
			map[string]string{"parts/60-web.yaml": "version: 1\nsets: {x: {hosts: role=web, within: 192.0.2.0/24}}\n"},
			nil,
			"parts/60-web.yaml:2:12: a set by hosts cannot be defined here; define it in the file of the fleet, since its members are the same on every host",
		},
		{
			map[string]string{"fleet.yaml": "version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nsets: {web: {hosts: role=web}}\n"},
			nil,
			"fleet.yaml:4:14: set \"web\" needs within, which bounds the addresses of its members; write within: [203.0.113.0/24]; no member can be outside it",
		},
		{
			map[string]string{"fleet.yaml": "version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nsets: {web: {union: [a], within: 192.0.2.0/24}, a: [192.0.2.1]}\n"},
			nil,
			"fleet.yaml:4:26: within without hosts, guests or live: true",
		},
		{
			map[string]string{"fleet.yaml": "version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nsets: {web: {hosts: role=web, guests: role=web, within: 192.0.2.0/24}}\n"},
			web,
			"fleet.yaml:4:31: both hosts and guests in one set; define two sets, and a third with union",
		},
		{
			map[string]string{"db-1.yaml": strings.Replace(fleetTexts["db-1.yaml"], "203.0.113.5", "203.0.114.5", 1)},
			nil,
			"db-1.yaml:6:9: 203.0.114.5 is not within set \"web\", see fleet.yaml:5:49",
		},
		{
			nil, &View{Labels: map[string]string{"role": "db"}, Members: map[string][]Range{"web": ranges("192.0.2.1")}},
			"fleet.yaml:5:3: 192.0.2.1 is not within set \"web\", see fleet.yaml:5:49",
		},
		{
			map[string]string{"parts/10-base.yaml": ""},
			&View{Host: "log-1"},
			"fleet.yaml:3:8: no part applies to host log-1 (no labels), which would be unprotected; add a part without hosts, which applies to every host",
		},
		{
			map[string]string{"fleet.yaml": "version: 1\nfleet: example.net\nparts: [parts/10-base.yaml, gone.yaml]\n"},
			web,
			"fleet.yaml:3:29: cannot read a part: gone.yaml: file does not exist",
		},
		{map[string]string{"fleet.yaml": "version: 1\nfleet: example.net\nparts: [fleet.yaml, parts/*.yaml]\n"}, web, "fleet.yaml:3:9: fleet.yaml is not a part"},
		{map[string]string{"fleet.yaml": "version: 1\nfleet: Example_Net/\nparts: [parts/*.yaml]\n"}, web, "fleet.yaml:2:8: \"Example_Net/\" is not the name of a fleet; write"},
		{map[string]string{"fleet.yaml": "fleet: example.net\n"}, web, "fleet.yaml:1:1: version is missing"},
		{map[string]string{"fleet.yaml": "version: 1\nfleet: example.net\ninput: {default: drop}\n"}, web, "fleet.yaml:2:8: the fleet has no parts; write parts: [parts/*.yaml]"},
		{map[string]string{"fleet.yaml": fleetTexts["parts/10-base.yaml"]}, nil, "db-1.yaml:2:8: fleet.yaml is not the file of a fleet"},
		{map[string]string{"fleet.yaml": fleetTexts["parts/10-base.yaml"]}, web, "fleet.yaml:1:1: fleet.yaml is the policy of one host; name the file of the fleet"},
		{map[string]string{"fleet.yaml": fleetTexts["db-1.yaml"]}, web, "fleet.yaml:2:1: fleet.yaml is the file of one host in a fleet; name the file of the fleet"},
		{map[string]string{"fleet.yaml": ""}, nil, "db-1.yaml:2:8: cannot read the fleet: fleet.yaml: file does not exist"},
		{map[string]string{"db-1.yaml": "version: 1\nfleet: fleet.yaml\nhost: a/b\n"}, nil, "db-1.yaml:3:7: \"a/b\" is not the name of a host"},
		{map[string]string{"db-1.yaml": "version: 1\nfleet: fleet.yaml\nhost: a\nlabels: {\"a b\": c}\n"}, nil, "db-1.yaml:4:10: \"a b\" is no name of a label: "},
		{nil, &View{Labels: map[string]string{"a b": "c"}}, "fleet.yaml:1:1: \"a b\" is no name of a label: "},
	} {
		reading, file := Reading{Texts: changed(test.with), View: test.view}, "fleet.yaml"
		if test.view == nil {
			file = "db-1.yaml"
		}
		_, err := reading.Load(file)
		checkFleetError(t, err, test.want)
	}
	_, err := (Reading{Texts: changed(nil)}).Load("fleet.yaml")
	checkFleetError(t, err, "fleet.yaml:2:1: fleet.yaml describes a whole fleet, but a policy is for one host")
	_, err = (Reading{Texts: changed(nil)}).Load("parts/50-db.yaml")
	checkFleetError(t, err, "parts/50-db.yaml:2:1: hosts is only for parts of a fleet, but this is the policy of one host")
	if errs := err.(Errors); len(errs) != 1 || errs[0].Remedy != GiveLabels { //nolint:errorlint // that is what Load gives
		t.Errorf("%v", err)
	}
}

func checkFleetError(t *testing.T, err error, want string) {
	t.Helper()
	errs, _ := err.(Errors) //nolint:errorlint // that is what Load gives
	if len(errs) == 0 {
		t.Errorf("no error in place of %s", want)
		return
	}
	text := errs[0].Pos.String() + ": " + errs[0].Message
	if errs[0].Hint != "" {
		text += "; " + errs[0].Hint
	}
	if !strings.HasPrefix(text, want) {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestRollOut(t *testing.T) {
	read := func(text string) (RollOut, error) {
		p, err := (Reading{Texts: changed(map[string]string{"fleet.yaml": "version: 1\nfleet: example.net\nparts: parts/*.yaml\nroll-out: " + text})}).ReadFleet("fleet.yaml")
		if err != nil {
			return RollOut{}, err
		}
		r := p.Fleet.RollOut
		r.Pos = Pos{}
		for i := range r.Probes {
			r.Probes[i].Pos = Pos{}
		}
		return r, nil
	}
	plain := defaultRollOut()
	got, err := read("{}")
	if diff := gocmp.Diff(plain, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	got, err = read(`
  stages: [1 per class, 3 hosts, 2.5%, 100%]
  settle: none
  confirm: 2m
  probes: [https://localhost/healthz, "tcp [2001:db8::1]:5432", controller]
  halt: { failed: 1% }
  on-halt: hold
  freeze: Fri 16:00 - Mon 08:00 UTC
`)
	want := RollOut{
		Stages: []Stage{{PerClass: 1}, {Hosts: 3}, {Percent: 2.5}, {Percent: 100}}, Confirm: 2 * time.Minute,
		Probes:      []Probe{{Kind: ProbeHTTP, Target: "https://localhost/healthz"}, {Kind: ProbeTCP, Target: "[2001:db8::1]:5432"}, {Kind: ProbeController}},
		HaltPercent: 1, Hold: true, Freeze: []Freeze{{Moment{time.Friday, 960}, Moment{time.Monday, 480}, "UTC"}},
	}
	if diff := gocmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	for _, test := range []struct{ text, want string }{
		{"{stages: [5%, 1%, 100%]}", "fleet.yaml:4:25: a stage of 1% follows a stage of 5%; each stage includes those before it"},
		{"{stages: [5%]}", "fleet.yaml:4:21: the last stage is 5%, so some hosts would never get a new policy; end with 100%"},
		{"{stages: []}", "fleet.yaml:4:12: stages is empty"},
		{"{stages: [half]}", `fleet.yaml:4:21: "half" is not a stage; write 1 per class, 3 hosts or 5%`},
		{"{stages: [0 hosts, 100%]}", "fleet.yaml:4:21: a stage must be above zero"},
		{"{stages: [101%]}", `fleet.yaml:4:21: "101%" is not a percentage of hosts`},
		{"{settle: soon}", `fleet.yaml:4:20: "soon" is not a duration`},
		{"{probes: ping}", `fleet.yaml:4:20: "ping" is not a probe; write https://HOST/PATH, tcp HOST:PORT or controller`},
		{"{probes: tcp db}", `fleet.yaml:4:20: "db" is not a host and a port`},
		{"{probes: \"https://a:b@localhost/\"}", "fleet.yaml:4:21: the URL contains a password"},
		{"{halt: {failed: some}}", `fleet.yaml:4:27: failed must be a whole number, not "some"; write a number of hosts, or a percentage as in 1%`},
		{"{on-halt: stop}", `fleet.yaml:4:21: on-halt must be revert or hold, not "stop"`},
		{"{freeze: Fri 16:00}", `fleet.yaml:4:20: "Fri 16:00" is not a period of the week`},
		{"{freeze: Fri 16:00 - Mon 24:00 UTC}", "fleet.yaml:4:20: 24:00 is not a time of day"},
		{"{freeze: Fra 16:00 - Mon 08:00 UTC}", `fleet.yaml:4:20: "Fra" is not a day`},
		{"{freeze: Fri 16:00 - Fri 16:00 UTC}", "fleet.yaml:4:20: \"Fri 16:00 - Fri 16:00 UTC\" begins and ends at the same time"},
		{"{freeze: Fri 16:00 - Mon 08:00 Mars/Olympus}", `fleet.yaml:4:20: unknown time zone "Mars/Olympus"; write it as in Europe/Berlin, or UTC`},
	} {
		_, err := read(test.text)
		checkFleetError(t, err, test.want)
	}
	formatted, err := Format("fleet.yaml", []byte("version: 1\nfleet: a\nroll-out: {stages: [1  per class, 5.0 %, 100%], settle: 60s, halt: {failed: 2}}\n"))
	if want := "version: 1\nfleet: a\nroll-out: { stages: [1 per class, 5%, 100%], settle: 1m, halt: { failed: 2 } }\n"; err != nil || string(formatted) != want {
		t.Errorf("%v\n%s", err, formatted)
	}
}

func TestFleetAccess(t *testing.T) {
	read := func(text string) ([]Access, error) {
		p, err := (Reading{Texts: changed(map[string]string{"fleet.yaml": "version: 1\nfleet: example.net\nparts: parts/*.yaml\naccess: " + text})}).ReadFleet("fleet.yaml")
		if err != nil {
			return nil, err
		}
		return p.Fleet.Access, nil
	}
	got, err := read("\n- { who: \"oidc:Net Ops\", role: operator, hosts: role = web and env=prod }\n- { who: user:erika@example.net, role: admin }\n")
	if err != nil || len(got) != 2 || got[0].Who != "oidc:Net Ops" || got[0].Role != "operator" || got[0].Hosts.String() != "role=web and env=prod" || got[1].Hosts != nil || got[1].Pos.Line != 6 {
		t.Errorf("%v %+v", err, got)
	}
	if got, err = read("\n"); err != nil || len(got) != 0 {
		t.Errorf("%v %+v", err, got)
	}
	for _, test := range []struct{ text, want string }{
		{"everybody", "fleet.yaml:4:9: an access must be a mapping"},
		{"[{role: admin}]", "fleet.yaml:4:10: access without who; write who: oidc:GROUP, or user:NAME"},
		{"[{who: \"user:a\"}]", "fleet.yaml:4:10: access without role; write role: viewer, operator or admin"},
		{"[{who: netops, role: admin}]", `fleet.yaml:4:16: who must be oidc:GROUP or user:NAME, not "netops"; write oidc:GROUP, or user:NAME`},
		{"[{who: \"user:\", role: admin}]", `fleet.yaml:4:16: who must be oidc:GROUP or user:NAME, not "user:"`},
		{"[{who: \"user:\\e[31m\", role: admin}]", `fleet.yaml:4:16: who must be oidc:GROUP or user:NAME, not "user:\x1b[31m"`},
		{"[{who: \"user:a\", role: root}]", `fleet.yaml:4:32: role must be viewer, operator or admin, not "root"`},
		{"[{who: \"user:a\", role: admin, hosts: role=}]", "fleet.yaml:4:51: hosts: expected a value, found the end"},
		{"[{who: \"user:a\", role: admin, selector: a}]", "fleet.yaml:4:39: unknown key \"selector\" in an access"},
	} {
		_, err := read(test.text)
		checkFleetError(t, err, test.want)
	}
}

// TestWhoKey: who is one person is so for roles and for approvals alike.
func TestWhoKey(t *testing.T) {
	for a, b := range map[string]string{"user:Erika@Example.net": "user:erika@example.net", "oidc:Ops": "oidc:ops", "user:Éva": "user:Éva"} {
		if WhoKey(a) != WhoKey(b) {
			t.Errorf("%s and %s are two", a, b)
		}
	}
	for a, b := range map[string]string{"user:han\u017f": "user:hans", "user:\u212aarl": "user:karl", "user:sub/AbC": "user:sub/abc", "user:Éva": "user:éva"} {
		if WhoKey(a) == WhoKey(b) {
			t.Errorf("%s and %s are one", a, b)
		}
	}
}

func TestFleetApprove(t *testing.T) {
	read := func(text string) ([]string, error) {
		p, err := (Reading{Texts: changed(map[string]string{"fleet.yaml": "version: 1\nfleet: example.net\nparts: parts/*.yaml\napprove: " + text})}).ReadFleet("fleet.yaml")
		if err != nil {
			return nil, err
		}
		return p.Fleet.Approve, nil
	}
	for text, want := range map[string]string{"": "", "publish": "publish", "[roll-out, allow]": "roll-out allow"} {
		if got, err := read(text); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %v %v", text, err, got)
		}
	}
	for _, test := range []struct{ text, want string }{
		{"[publsh]", `fleet.yaml:4:11: approve must be a list of publish, roll-out, ban, unban, allow, disallow, guest, list, revoke, labels, token, access, not "publsh", did you mean "publish"?`},
		{"all", `fleet.yaml:4:10: approve must be a list of publish, roll-out, ban, unban, allow, disallow, guest, list, revoke, labels, token, access, not "all"`},
		{"[ban, allow, ban]", "fleet.yaml:4:23: ban is listed twice in approve; remove one"},
		{"[[ban]]", "fleet.yaml:4:11: approve must be"},
		{"{ban: true}", "fleet.yaml:4:10: approve must be"},
	} {
		_, err := read(test.text)
		checkFleetError(t, err, test.want)
	}
	formatted, err := Format("fleet.yaml", []byte("version: 1\nfleet: a\napprove:   [ publish,allow ]\n"))
	if want := "version: 1\nfleet: a\napprove: [publish, allow]\n"; err != nil || string(formatted) != want {
		t.Errorf("%v\n%s", err, formatted)
	}
}

// What a URL served when the policy was signed is read, unless hosts ask for it.
func TestSignedLists(t *testing.T) {
	texts := changed(map[string]string{
		"parts/10-base.yaml": "version: 1\nsets: {own: {url: 'https://example.net/a', refresh: 1h}, some: {url: 'https://example.net/a'}}\ninput: {default: drop, rules: ['allow ssh from [own, some]']}\n",
		"parts/50-db.yaml":   "version: 1\nhosts: role=db\n", "at/host.yaml": "version: 1\nfleet: ../fleet.yaml\nhost: db-1\nlists: signed\n",
	})
	p, err := LoadTexts("at/host.yaml", texts)
	if err != nil {
		t.Fatal(err)
	}
	if own, some := p.Set("own"), p.Set("some"); own.File != nil || some.URL == nil || some.FilePath() != "at/signed/"+SignedList("some", "https://example.net/a") {
		t.Errorf("%+v %+v", own, some)
	}
	if _, files := p.Files(); len(files) != 1 {
		t.Errorf("%q", files)
	}
	delete(texts, "at/host.yaml")
	texts["host.yaml"] = []byte("version: 1\nfleet: fleet.yaml\nhost: db-1\n")
	if p, err := LoadTexts("host.yaml", texts); err != nil || p.Set("some").File != nil {
		t.Error(err)
	}
}

package policy

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/language/source"
)

// checkErrors wants every error at a place that the text has.
func checkErrors(t *testing.T, data []byte, err error) {
	t.Helper()
	var errs Errors
	if !errors.As(err, &errs) || len(errs) == 0 {
		t.Fatalf("%T: %v", err, err)
	}
	lines := source.New("p.yaml", data, dialect, nil).Lines
	for _, e := range errs {
		if e.Message == "" || e.Pos.File != "p.yaml" {
			t.Errorf("%#v", e)
		}
		if e.Pos.Line < 1 || e.Pos.Line > len(lines) {
			t.Fatalf("%v\nline %d of %d", e, e.Pos.Line, len(lines))
		}
		if n := utf8.RuneCountInString(lines[e.Pos.Line-1]); e.Pos.Column < 1 || e.Pos.Column > n+1 {
			t.Fatalf("%v\ncolumn %d of %d", e, e.Pos.Column, n)
		}
	}
}

// Whatever is in the text: no panic, every error at a place of the text, and
// what parses keeps its meaning and its comments when it is formatted.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "testdata/format/*.yaml", "../../../examples/*/*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	for _, s := range []string{
		"", "version: 1", "version: 1\nsets: {a: [192.0.2.1]}\n", "version: 1\ninput:\n  default: drop\n  rules:\n  - allow ssh # c\n",
		"version: 1\nnat:\n- map 192.0.2.1 to 192.0.2.2\n", "\ufeffversion: 1\r\n", "version: 1\nban: [\"192.0.2.1\", 'x']\nsets: {x: [::1]}\n",
		"version: 1\nsets:\n  a: &a [*a]\n", "version: 1\nsets: {? a : [192.0.2.1]}\n", "version: 1\nsets:\n  a: |\n    192.0.2.1\n  b: >-\n    192.0.2.1\n",
		"version: 1\ninclude: [{path: a.yaml, only: to 192.0.2.1}, b.yaml]\n", "version: 1\ncounters: false\n", "version: 1\nlog: netlink\n", "version: 1\nlayout: {memory: 64MiB, load: 1500ms}\n", "version: 1\nlayout: {memory: 1GiB}\n",
		fleetTexts["fleet.yaml"], fleetTexts["parts/50-db.yaml"], fleetTexts["db-1.yaml"], guestTexts["db-1.yaml"], guestTexts["parts/60-vms.yaml"], "version: 1\nonly: guests app=shop\nrequires: [a]\n", "version: 1\nfleet: a\nroll-out: {stages: [1 per class, 2.50 %], probes: [tcp a:1, controller], halt: {failed: 1%}, freeze: Fri 16:00 - Mon 08:00 UTC, settle: none}\n", "version: 1\nfleet: a\nbans: {max: 500000, for: 7d, widest: [24, 48]}\nexceptions: {who: [a, 192.0.2.1], longest: 8h}\nshare-bans: {after: 3  hosts, for: 1h}\n", "version: 1\nfleet: a\naccess: [{who: \"oidc:a b\", role: admin, hosts: a or  b}]\n", "version: 1\nfleet: a\napprove: [publish, roll-out]\n", "version: 1\nfleet: a\nparts:\nsets: {a: {guests: not a, within: ::/0, except: b}}\n",
		"version: 1\nservices: {a: \"tcp/\\x38\\x30\"}\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := Parse("p.yaml", data); err != nil {
			checkErrors(t, data, err)
			return
		}
		checkFormat(t, data)
	})
}

// The same for one rule, with the names that it may use.
func FuzzRule(f *testing.F) {
	r := []string{
		"allow web from served", "allow ssh from office limit 10/minute per source", "allow ssh limit 6/30s per source then ban 10m widen burst 3",
		"allow [smtp, imaps] max 20 connections per source", "allow icmp echo-request limit 20/second", "allow published tcp/8080 from office",
		"reject tcp/25 log \"smtp\"", "drop udp ipv6", "allow smtp by user [postfix, 1]", "clamp mss from vms to wan", "allow any from not [203.0.113.0/24, office]",
		"{allow: web, from: served}", "{drop: [ssh, 'icmp echo-request'], family: ipv6, log: x}", "'allow ssh'", "\"allow \\x73sh\"",
	}
	for i, s := range r {
		f.Add(s, byte(i))
	}
	hooks := []Hook{Input, Output, Forward}
	f.Fuzz(func(t *testing.T, rule string, hook byte) {
		data := []byte(names + string(hooks[int(hook)%3]) + ":\n  default: drop\n  rules:\n    - " + rule + "\n")
		if _, err := Parse("p.yaml", data); err != nil {
			checkErrors(t, data, err)
			return
		}
		checkFormat(t, data)
	})
}

// The same for one expectation, in the policy and in a file of its own.
func FuzzExpectation(f *testing.F) {
	for _, s := range []string{
		"allow tcp/443 from 2.32.0.1", "drop ssh from not office", "deny any from [office, 192.0.2.1] ipv4", "reject smtp on output", "allow smtp by user [postfix, 1]",
		"deny any in wan out vms on forward", "allow icmp state [established, related]", "allow icmp on input", "{deny: ssh, from: not office, on: input}", "'deny ssh'",
		"{allow: [web, icmp echo-request], state: [new, invalid], family: ipv6}", "deny any to vms",
	} {
		f.Add(s)
	}
	base, err := Parse("policy.yaml", []byte(names))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line string) {
		const own = "version: 1\nexpect:\n  - "
		inside := []byte(names + "expect:\n  - " + line + "\n")
		p, err := Parse("p.yaml", inside)
		if err != nil {
			checkErrors(t, inside, err)
		} else {
			checkFormat(t, inside)
		}
		base.Expect = nil
		alone := []byte(own + line + "\n")
		switch apart := base.AddExpectations("p.yaml", alone); {
		case apart != nil:
			checkErrors(t, alone, apart)
			if len(base.Expect) > 0 {
				t.Errorf("a file with errors left %d expectations", len(base.Expect))
			}
		case err != nil:
		case !cmp.Equal(p.Expect, base.Expect, sameTree):
			t.Errorf("in a file of its own it is another: %s", cmp.Diff(p.Expect, base.Expect, sameTree))
		}
		delete(base.lines, "p.yaml")
	})
}

// Whatever a view, the file of a fleet and a part are: no panic, and errors at places of
// them.
func FuzzFleet(f *testing.F) {
	for _, texts := range []map[string]string{fleetTexts, guestTexts} {
		f.Add([]byte(texts["db-1.yaml"]), []byte(texts["fleet.yaml"]), []byte(texts["parts/50-db.yaml"]+texts["parts/60-vms.yaml"]))
	}
	f.Add([]byte(guestTexts["db-1.yaml"]), []byte(guestTexts["fleet.yaml"]), []byte("version: 1\nonly: guests app=api\nsets: {a: [10.30.0.5]}\nforward: {rules: [allow ssh to a]}\n"))
	base := []byte(fleetTexts["parts/10-base.yaml"] + "forward: {default: drop}\n")
	f.Fuzz(func(t *testing.T, view, fleet, part []byte) {
		texts := map[string][]byte{"v.yaml": view, "fleet.yaml": fleet, "parts/10.yaml": base, "parts/20.yaml": part}
		for _, load := range []func() (*Policy, error){
			func() (*Policy, error) { return LoadTexts("v.yaml", texts) },
			func() (*Policy, error) { return (Reading{Texts: texts}).ReadFleet("fleet.yaml") },
			func() (*Policy, error) { return (Reading{Texts: texts, View: &View{Host: "a"}}).Load("fleet.yaml") },
		} {
			_, err := load()
			var errs Errors
			if err == nil || !errors.As(err, &errs) {
				continue
			}
			for _, e := range errs {
				if lines := source.New(e.Pos.File, texts[e.Pos.File], dialect, nil).Lines; e.Message == "" || e.Pos.Line < 1 || e.Pos.Line > len(lines) {
					t.Fatalf("%#v", e)
				}
			}
		}
	})
}

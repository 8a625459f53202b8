package policy

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
)

// scopeHead is a policy that includes t.yaml for what goes to the shop, and comes from one
// of its machines.
const scopeHead = `version: 1
include:
  - {path: t.yaml, only: [to shop, from 10.20.0.5]}
zones:
  wan: {interfaces: [eth0]}
sets:
  office: [203.0.113.0/24]
  shop: [10.20.0.5, 10.20.0.8-10.20.0.11, "2001:db8:20::/64"]
  long: {file: long.txt}
  some: {addresses: [10.20.0.5], except: [office]}
input: {default: drop}
forward: {default: drop, rules: [allow ssh]}
`

func TestScope(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "",
		"version: 1\n":                           "",
		"forward: {rules: [allow http to shop]}": "",
		"forward: {rules: [allow http to 10.20.0.8/30, allow dns ipv6 to 2001:db8:20::5]}":        "",
		"forward: {rules: [{drop: any, to: [10.20.0.5, '2001:db8:20::/112'], from: not office}]}": "",
		"forward: {rules: [allow any from 10.20.0.5 out wan, reject smtp from 10.20.0.5 log]}":    "",
		"input: {rules: [allow ssh from 10.20.0.5]}":                                              "",
		"forward: {rules: [allow http to 10.20.0.5 limit 3/minute per source]}":                   "",

		"forward: {rules: [‸allow http]}":                                                                               "the rule is outside the scope of this file: to shop, or from 10.20.0.5",
		"forward: {rules: [allow http from ‸office]}":                                                                   "",
		"forward: {rules: [allow http to ‸10.20.0.8/29]}":                                                               "10.20.0.8/29 is outside the scope of this file: to shop",
		"forward: {rules: [{allow: http, to: [10.20.0.5, ‸10.20.0.6]}]}":                                                "10.20.0.6 is outside",
		"forward: {rules: [allow http to ‸not office]}":                                                                 "not office may be outside the scope of this file",
		"forward: {rules: [allow http to ‸office]}":                                                                     "office is outside the scope of this file",
		"forward: {rules: [allow http to ‸wan]}":                                                                        `"wan" is a zone, and its addresses are not known here`,
		"forward: {rules: [allow http to ‸long]}":                                                                       `set "long" is not a list of addresses`,
		"forward: {rules: [allow http to ‸some]}":                                                                       `set "some" is not a list of addresses`,
		"forward: {rules: [allow http to ‸shp]}":                                                                        `unknown set or zone "shp", did you mean "shop"?`,
		"forward: {rules: [allow http to shop ‸limit 3/minute per source then ban 10m]}":                                "a ban applies to everybody",
		"forward: {‸default: allow, rules: [allow http to shop]}":                                                       "default cannot be set in a file that is included with only",
		"forward: {‸accelerate: true}":                                                                                  "accelerate cannot be set",
		"‸output: {rules: [reject smtp from 10.20.0.5]}":                                                                "the policy has no output",
		"sets: {mine: [10.20.0.5, 10.20.0.9]}\nforward: {rules: [allow http to mine]}":                                  "",
		"services: {mine: [tcp/8080]}\nforward: {rules: [allow mine to shop from not home]}\nsets: {home: [192.0.2.1]}": "",
		"sets: {mine: [10.20.0.5, 10.20.0.12]}\nforward: {rules: [allow http to ‸mine]}":                                "mine is outside the scope of this file: to shop",
		"sets: {‸mine: {file: long.txt}}":                                                                               `set "mine" must be a list of addresses`,
		"sets: {‸mine: {addresses: [10.20.0.5], counters: true}}":                                                       `set "mine" must be a list of addresses`,
		"sets: {‸shop: [10.20.0.5]}":                                                                                    `set "shop" is already a set, see p.yaml:8:3`,
		"‸zones: {x: {networks: [192.0.2.0/24]}}":                                                                       "zones cannot be used in a file that is included with only",
		"‸include: [u.yaml]":                                                                                            "include cannot be used",
		"‸never-ban: [shop]":                                                                                            "never-ban cannot be used",
		"‸nat: [redirect tcp/80 on 203.0.113.1 to 10.20.0.5]":                                                           "nat cannot be used",
		"expect: [‸allow ssh]":                                                                                          "the expectation is outside the scope of this file: to shop, or from 10.20.0.5",
		"expect: [allow ssh to ‸10.20.0.6]":                                                                             "10.20.0.6 is outside the scope of this file: to shop",
		"expect: [deny smtp to ‸not shop]":                                                                              "not shop may be outside the scope of this file",
		"expect: [deny smtp from not office to mine, allow any from 10.20.0.5 on output]\nsets: {mine: [10.20.0.5]}":    "",
		"forward: {rules: [allow ‸htpps to shop]}":                                                                      `unknown service "htpps"`,
		"‸forwad: {}": `unknown key "forwad"`,
		"version: ‸2": "version",
	} {
		t.Run(text, func(t *testing.T) {
			before, after, bad := strings.Cut(text, "‸")
			texts := map[string][]byte{"p.yaml": []byte(scopeHead), "t.yaml": []byte(before + after)}
			// What is wrong is told, as all else is, and what is kept does without it.
			_, err := loadTexts(texts, false)
			p, kept := loadTexts(texts, true)
			if kept != nil {
				t.Fatal(kept)
			}
			if !bad {
				for _, r := range p.Forward.Rules {
					for _, w := range []*Who{r.From, r.To} {
						for i := 0; w != nil && i < len(w.Items); i++ {
							if name := w.Items[i].Name; name != "" && p.Set(name) == nil {
								t.Errorf("%s names %s, which nobody knows", r.Text, name)
							}
						}
					}
				}
				if err != nil || len(p.Broken) > 0 || !slices.Equal(p.Includes, []string{"t.yaml"}) || !p.Scoped("t.yaml") || p.Scoped("p.yaml") {
					t.Fatalf("%v, broken %v", err, p.Broken)
				}
				return
			}
			if len(p.Broken) != 1 || p.Broken[0].Kept || len(p.Forward.Rules) != 1 || len(p.Input.Rules) != 0 || len(p.Includes) > 0 {
				t.Errorf("broken %v, includes %q", p.Broken, p.Includes)
			}
			if err == nil || err.Error() != p.Broken[0].Errors.Error() {
				t.Fatalf("%v, and kept apart %v", err, p.Broken)
			}
			e := p.Broken[0].Errors[0]
			line, column := 1+strings.Count(before, "\n"), 1+len([]rune(before[strings.LastIndex(before, "\n")+1:]))
			if len(p.Broken[0].Errors) > 1 || e.Pos != (Pos{File: "t.yaml", Line: line, Column: column}) || !strings.Contains(e.Message, want) {
				t.Errorf("%v", p.Broken[0].Errors)
			}
		})
	}
}

func loadTexts(texts map[string][]byte, tolerant bool) (*Policy, error) {
	l := newLoader("p.yaml")
	l.follow, l.texts, l.tolerant = true, texts, tolerant
	return l.run("p.yaml", texts["p.yaml"])
}

// A scope that is none, or would hold for a file that may say everything.
func TestScopeErrors(t *testing.T) {
	for include, want := range map[string]string{
		"[{path: a.yaml, ‸olny: to 10.0.0.1}]":                                                    `unknown key "olny" in an included file, did you mean "only"?`,
		"[‸{only: to 10.0.0.1}]":                                                                  "an included file has no path",
		"[‸{path: a.yaml}]":                                                                       "an included file has no only",
		"[‸{path: a.yaml, only: []}]":                                                             "an included file has no only",
		"[{path: a.yaml, only: ‸10.0.0.1}]":                                                       `a scope begins with to or from, found "10.0.0.1"`,
		"[{path: a.yaml, only: to ‸any}]":                                                         "any is not a scope",
		"[{path: a.yaml, only: to ‸not 10.0.0.1}]":                                                "name addresses; a scope cannot be a negation",
		"[{path: a.yaml, only: to 10.0.0.1 ‸from x}]":                                             `unexpected "from" in a scope`,
		"[{path: a.yaml, only: to ‸10.0.0.1/8}]":                                                  "10.0.0.1/8",
		"[{path: a.yaml, only: to ‸nobody}]":                                                      `unknown set "nobody"`,
		"[{path: a.yaml, only: to ‸wan}]":                                                         `"wan" is a zone`,
		"[{path: ‸[a.yaml], only: to 10.0.0.1}]":                                                  "include must be a text",
		"[a.yaml, {path: ‸a.yaml, only: to 10.0.0.1}]":                                            "a.yaml is already included without only",
		"[{path: a.yaml, only: ‸}]":                                                               "",
		"[{path: ‸none.yaml, only: to 10.0.0.1}]":                                                 "cannot include: none.yaml: file does not exist",
		"[{path: a.yaml, only: to 10.0.0.1}, a.yaml]":                                             "",
		"[{path: '*.yaml', only: to 10.0.0.1}]":                                                   "",
		"[{path: a.yaml, only: [to 10.0.0.1, from 10.0.0.1]}, {path: a.yaml, only: to 10.0.0.2}]": "",
	} {
		if want == "" && strings.Contains(include, "‸") {
			include, want = strings.Replace(strings.Replace(include, "‸", "", 1), "{path", "‸{path", 1), "an included file has no only"
		}
		before, after, bad := strings.Cut("version: 1\nzones: {wan: {interfaces: [eth0]}}\ninclude: "+include+"\n", "‸")
		_, err := loadTexts(map[string][]byte{"p.yaml": []byte(before + after), "a.yaml": nil}, false)
		if !bad {
			if err != nil {
				t.Errorf("%s: %v", include, err)
			}
			continue
		}
		column := 1 + len([]rune(before[strings.LastIndex(before, "\n")+1:]))
		errs, is := err.(Errors) //nolint:errorlint // what Load returns
		if !is || len(errs) != 1 || errs[0].Pos != (Pos{File: "p.yaml", Line: 3, Column: column}) || !strings.Contains(errs[0].Message, want) {
			t.Errorf("%s: %v", include, err)
		}
	}
}

// A broken file keeps the text that it had, hinders no other, and is read last.
func TestBroken(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "p.yaml", "version: 1\ninclude: [{path: vms/*.yaml, only: to 10.20.0.0/16}, more.yaml]\nforward: {default: drop}\n")
	write(t, dir, "more.yaml", "forward: {rules: [allow dns]}\n")
	write(t, dir, "vms/a.yaml", "forward: {rules: [allow http to 10.20.0.1]}\n")
	write(t, dir, "vms/b.yaml", "forward: {rules: [allow http to 10.30.0.1]}\n")
	write(t, dir, "vms/c.yaml", "forward: {rules: [")
	file := func(name string) string { return filepath.Join(dir, name) }
	good := map[string]string{file("vms/b.yaml"): "forward: {rules: [allow ssh to 10.20.0.2]}\n"}
	refused := map[string]Errors{}
	load := func() (*Policy, error) {
		return Reading{Parts: true, Refused: refused, Good: func(name string) []byte {
			if text, has := good[name]; has {
				return []byte(text)
			}
			return nil
		}}.Load(file("p.yaml"))
	}
	rules := func(p *Policy) string {
		var out []string
		for _, r := range p.Forward.Rules {
			out = append(out, r.Text)
		}
		return strings.Join(out, "; ")
	}
	p, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if got := rules(p); got != "allow dns; allow http to 10.20.0.1; allow ssh to 10.20.0.2" {
		t.Error(got)
	}
	if len(p.Broken) != 2 || p.Broken[0].File != file("vms/b.yaml") || !p.Broken[0].Kept || p.Broken[1].Kept {
		t.Fatalf("broken %v", p.Broken)
	}
	names, _ := p.Files()
	if want := []string{file("p.yaml"), file("more.yaml"), file("vms/a.yaml"), file("vms/b.yaml")}; !slices.Equal(names, want) || string(p.Text(names[3])) != good[names[3]] {
		t.Errorf("made of %q", names)
	}

	// What it was made of makes the same policy again, without what was left out.
	texts := map[string][]byte{}
	for _, name := range names {
		texts[name] = p.Text(name)
	}
	if again, err := LoadTexts(file("p.yaml"), texts); err != nil || rules(again) != rules(p) || len(again.Broken) > 0 {
		t.Errorf("%v", err)
	}
	delete(texts, file("vms/a.yaml"))
	if again, err := LoadTexts(file("p.yaml"), texts); err != nil || rules(again) != "allow dns; allow ssh to 10.20.0.2" {
		t.Errorf("%v", err)
	}

	// What shows later to be wrong with one is wrong with it; where the text before does not
	// fit either, somebody else has changed what it says.
	refused[file("vms/a.yaml")] = Errors{p.Errorf(p.Forward.Rules[1].Pos, "", "breaks something")}
	if p, err = load(); err != nil || rules(p) != "allow dns; allow ssh to 10.20.0.2" || p.Broken[0].Errors[0].Message != "breaks something" {
		t.Fatal(err)
	}
	good[file("vms/a.yaml")] = "forward: {rules: [allow http to 10.40.0.1]}\n"
	if _, err = load(); err == nil || !strings.Contains(err.Error(), "breaks something") {
		t.Error(err)
	}
}

// Whatever is in an included file, it speaks of its scope alone, and what is wrong is at
// a place of it.
func FuzzScope(f *testing.F) {
	for _, s := range []string{
		"allow http to shop", "{drop: any, to: [10.20.0.5, '2001:db8:20::/112'], from: not office}", "allow any from 10.20.0.5 out wan", "allow http to [10.20.0.5, 10.20.0.6]",
		"clamp mss to shop", "allow published tcp/80 to shop", "allow http to not shop", "allow ssh to shop limit 3/minute per source then ban 1h", "allow http to long",
	} {
		f.Add(s)
	}
	shop := addrset.Of(addrset.MustParseRange("10.20.0.5"), addrset.MustParseRange("10.20.0.8-10.20.0.11"), addrset.MustParseRange("2001:db8:20::/64"))
	sender := addrset.Of(addrset.MustParseRange("10.20.0.5"))
	f.Fuzz(func(t *testing.T, rule string) {
		text := []byte("forward:\n  rules:\n    - " + rule + "\n")
		p, err := loadTexts(map[string][]byte{"p.yaml": []byte(strings.ReplaceAll(scopeHead, "t.yaml", "./p.yaml.t")), "p.yaml.t": text}, true)
		if err != nil {
			t.Fatal(err)
		}
		in := func(w *Who, scope addrset.Set) bool {
			if w == nil || w.Not {
				return false
			}
			for _, item := range w.Items {
				var of addrset.Set
				switch {
				case item.Name == "shop":
					of = shop
				case item.Name != "":
					return false
				default:
					of = addrset.Of(item.Literal)
				}
				if !of.Difference(scope).IsEmpty() {
					return false
				}
			}
			return true
		}
		for _, r := range p.Forward.Rules[1:] {
			if !in(r.To, shop) && !in(r.From, sender) || r.Limit != nil && r.Limit.ThenBan > 0 {
				t.Errorf("%s was let in", r.Text)
			}
		}
		for _, b := range p.Broken {
			for _, e := range b.Errors {
				if e.Pos.File != "p.yaml.t" || e.Pos.Line < 1 || e.Pos.Line > 1+strings.Count(string(text), "\n") {
					t.Errorf("%v", e)
				}
			}
		}
		if got := slices.Collect(maps.Keys(p.texts)); len(got) != 2-len(p.Broken) {
			t.Errorf("made of %q", got)
		}
	})
}

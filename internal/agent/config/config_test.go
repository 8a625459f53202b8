package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"sluice/internal/language/source"
)

func TestParse(t *testing.T) {
	sluice := []Who{{Name: "sluice", Group: true}}
	for _, c := range []struct {
		text         string
		read, change []Who
	}{
		{"version: 1\n", sluice, nil},
		{"version: 1\nmay-change: group netops\n", sluice, []Who{{Name: "netops", Group: true}}},
		{"version: 1\nmay-read: []\nmay-change: [alice, 1000, 'group  27']\n", nil, []Who{{Name: "alice"}, {Name: "1000"}, {Name: "27", Group: true}}},
		{"version: 1\nmay-read: group\n", []Who{{Name: "group"}}, nil},
	} {
		got, err := Parse("a.yaml", []byte(c.text))
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		nowhere := cmpopts.IgnoreFields(Who{}, "Pos")
		if d := cmp.Diff(c.read, got.MayRead, nowhere) + cmp.Diff(c.change, got.MayChange, nowhere); d != "" {
			t.Errorf("%q: %s", c.text, d)
		}
	}
}

func TestDue(t *testing.T) {
	for _, c := range []struct {
		text  string
		lists bool
		from  []string
		every time.Duration
	}{
		{"", true, nil, 0},
		{"lists: manual\n", false, nil, 0},
		{"lists: refresh\ncountries: {from: dbip}\n", true, []string{"dbip"}, 30 * day},
		{"countries: {from: [registries, own=/srv/c.csv, 'https://a.example/c'], every: weekly}\n", true, []string{"registries", "own=/srv/c.csv", "https://a.example/c"}, 7 * day},
	} {
		got, err := Parse("a.yaml", []byte("version: 1\n"+c.text))
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if got.Lists != c.lists || !slices.Equal(got.Publishers, c.from) || got.Every != c.every {
			t.Errorf("%q: %+v", c.text, got)
		}
	}
}

func TestMetrics(t *testing.T) {
	for text, want := range map[string]string{"": "invalid AddrPort", "metrics: {listen: 127.0.0.1:9469}\n": "127.0.0.1:9469", "metrics: {listen: '[::1]:9469'}\n": "[::1]:9469"} {
		got, err := Parse("a.yaml", []byte("version: 1\n"+text))
		if err != nil || got.Metrics.String() != want {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
}

func TestLogSize(t *testing.T) {
	for text, want := range map[string]int64{"": 64 << 20, "log: {size: 1MiB}\n": 1 << 20, "log: {size: 1024GiB}\n": 1 << 40, "log: {size: none}\n": 0} {
		got, err := Parse("a.yaml", []byte("version: 1\n"+text))
		if err != nil || got.LogSize != want {
			t.Errorf("%q: %+v %v", text, got, err)
		}
	}
}

// ‸ is before the character that the error points at.
func TestErrors(t *testing.T) {
	const head = "version: 1\n"
	for _, c := range []struct{ text, message, hint string }{
		{"‸", "file is empty", "version: 1"},
		{"‸[]\n", "the agent's file must be a mapping, not a list", ""},
		{"‸may-read: alice\n", "version is missing", "version: 1"},
		{"version: ‸2\n", `version "2" of the language`, "version: 1"},
		{"version: ‸one\n", `version must be 1, not "one"`, "version: 1"},
		{head + "‸may-chang: alice\n", `unknown key "may-chang" in the agent's file, did you mean "may-change"?`, "known are version, may-read, may-change"},
		{head + "may-read: a\n‸may-read: b\n", `key "may-read" is already on line 2`, ""},
		{head + "may-change: ‸{alice: true}\n", "may-change must be a list, not a mapping", ""},
		{head + "may-change: [‸[alice]]\n", "a user or group must be a text, not a list", ""},
		{head + "may-change:‸\n", "may-change is empty", "[] for nobody"},
		{head + "may-change: [alice, ‸alice]\n", "duplicate user alice in may-change", ""},
		{head + "may-change: [‸'']\n", "a user or group is empty", ""},
		{head + "may-change: ‸gruop netops\n", `unexpected "gruop" before "netops", did you mean "group"?`, "group NAME"},
		{head + "may-change: ‸group net ops\n", `"group net ops" is not the name`, "group NAME"},
		{head + "may-change: ‸'%netops'\n", `"%netops" is not the name`, "group NAME"},
		{head + "may-change: ‸4294967295\n", `"4294967295" is not the name or number`, ""},
		{head + "metrics: ‸127.0.0.1:9469\n", "metrics must be a mapping", ""},
		{head + "metrics: ‸{}\n", "listen is missing", "127.0.0.1:9469"},
		{head + "metrics: {listen: ‸9469}\n", `"9469" is not where metrics can be asked for`, "127.0.0.1:9469"},
		{head + "metrics: {listen: ‸localhost:9469}\n", `"localhost:9469" is not where`, ""},
		{head + "metrics: {listen: ‸'[::1]:80'}\n", `"[::1]:80" is not where`, "from 1024 on"},
		{head + "metrics: {listen: ‸[a]}\n", "listen must be a text", ""},
		{head + "log: ‸64MiB\n", "log must be a mapping", ""},
		{head + "log: ‸{}\n", "size is missing", "size: 64MiB"},
		{head + "log: {size: ‸64}\n", `size must be from 1MiB to 1024GiB, such as 64MiB, not "64"`, "write none to keep nothing"},
		{head + "log: {size: ‸0}\n", `not "0"`, "none"},
		{head + "log: {size: ‸2000GiB}\n", `not "2000GiB"`, ""},
		{head + "log: {size: ‸64MB}\n", `not "64MB"`, ""},
		{head + "drift: ‸repair\n", `drift must be report or restore, not "repair"`, ""},
		{head + "drift: ‸[report]\n", "drift must be a text", ""},
		{head + "alerts: ‸mail\n", "alerts must be a mapping", ""},
		{head + "alerts: {‸mail: a}\n", `unknown key "mail" in alerts`, "known are command, webhook"},
		{head + "alerts: {command: ‸page --urgent}\n", `"page --urgent" is not the path of a program`, "whole path"},
		{head + "alerts: {command: [/bin/page, ‸[a]]}\n", "an argument must be a text", ""},
		{head + "alerts: {webhook: ‸ftp://a/b}\n", `"ftp://a/b" is not a URL`, "https://HOST/PATH"},
		{head + "alerts: {webhook: ‸'https:'}\n", `is not a URL`, ""},
		{head + "may-change: ‸&a [alice]\n", "YAML", "write it where it holds"},
		{head + "lists: ‸manuel\n", `lists must be refresh or manual, not "manuel", did you mean "manual"?`, ""},
		{head + "countries: ‸[dbip]\n", "countries must be a mapping, not a list", ""},
		{head + "countries: ‸{every: daily}\n", "from is missing", "from: [dbip, registries]"},
		{head + "countries: {from: ‸[]}\n", "from is empty", "leave countries out"},
		{head + "countries: {from: [dbip, ‸dbpi]}\n", `"dbpi" is not a publisher of country data, did you mean "dbip"?`, "[NAME=] and a URL"},
		{head + "countries: {from: ‸countries.csv}\n", `"countries.csv" is not a publisher`, "the whole path"},
		{head + "countries: {from: [dbip, ‸dbip]}\n", `"dbip" is listed twice in from`, ""},
		{head + "countries: {from: dbip, every: ‸hourly}\n", `every must be daily or weekly or monthly, not "hourly"`, ""},
		{head + "fleet: ‸{}\n", "questions is missing", "questions: status"},
		{head + "fleet: {questions: ‸some}\n", `questions must be none or status or all, not "some"`, ""},
		{head + "‸---\nversion: 1\n", "second YAML document", "leave the second one out"},
	} {
		text, _, _ := strings.Cut(c.text, "‸")
		line, column := 1+strings.Count(text, "\n"), 1+utf8.RuneCountInString(text[strings.LastIndex(text, "\n")+1:])
		_, err := Parse("a.yaml", []byte(strings.Replace(c.text, "‸", "", 1)))
		var errs source.Errors
		if !errors.As(err, &errs) || len(errs) != 1 {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		e := errs[0]
		if !strings.Contains(e.Message, c.message) || !strings.Contains(e.Hint, c.hint) || e.Pos != (source.Pos{File: "a.yaml", Line: line, Column: column}) {
			t.Errorf("%q: %v", c.text, e)
		}
	}
}

// What the host does not know is nobody's, and is told of where somebody wrote it.
func TestNumbers(t *testing.T) {
	c, err := Parse("a.yaml", []byte("version: 1\nmay-change: [root, 7, group 9, nobody-by-this-name, group none-either]\n"))
	if err != nil {
		t.Fatal(err)
	}
	ids, errs := c.Numbers(t.Context(), c.MayChange)
	if d := cmp.Diff(IDs{Users: []uint32{0, 7}, Groups: []uint32{9}}, ids); d != "" {
		t.Error(d)
	}
	if text := errs.Error(); len(errs) != 2 || !strings.Contains(text, "a.yaml:2:32: this host has no user \"nobody-by-this-name\"") || !strings.Contains(text, "this host has no group \"none-either\"") {
		t.Error(text)
	}
	if !ids.Has(7) || !ids.Has(5, 3, 9) || ids.Has(9, 7) {
		t.Error(ids)
	}
	c.MayRead = []Who{{Name: "none-by-this-name", Group: true}}
	if ids, errs := c.Numbers(t.Context(), c.MayRead); len(ids.Groups) > 0 || len(errs) > 0 {
		t.Error(ids, errs)
	}
}

func TestFleet(t *testing.T) {
	for text, want := range map[string]Questions{"": All, "fleet: {questions: status}\n": Status, "fleet: {questions: none}\n": None} {
		c, err := Parse("a.yaml", []byte("version: 1\n"+text))
		if err != nil || c.Questions != want {
			t.Errorf("%q: %+v %v", text, c, err)
		}
	}
	if !All.Allow(true) || !Status.Allow(false) || Status.Allow(true) || None.Allow(false) || Questions("").Allow(false) {
		t.Error("what a host says is not what it does")
	}
}

func TestAlerts(t *testing.T) {
	c, err := Parse("a.yaml", []byte("version: 1\ndrift: restore\nalerts:\n  command: [/bin/page, --to, ops team]\n  webhook: https://a.example/b?c=d\n"))
	if err != nil || !c.Restores || !slices.Equal(c.Command, []string{"/bin/page", "--to", "ops team"}) || c.Webhook != "https://a.example/b?c=d" {
		t.Errorf("%+v %v", c, err)
	}
	if c, err := Parse("a.yaml", []byte("version: 1\ndrift: report\n")); err != nil || c.Restores || c.Command != nil {
		t.Errorf("%+v %v", c, err)
	}
}

// Each example of the table fits its shape in the schema, and is read as a file where it is one.
func TestSchema(t *testing.T) {
	var whole jsonschema.Schema
	if err := json.Unmarshal(Schema(), &whole); err != nil {
		t.Fatal(err)
	}
	for _, s := range grammar.Shapes {
		schema, err := (&jsonschema.Schema{Ref: "#/$defs/" + s.Name, Defs: whole.Defs}).Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range s.Examples {
			var v any
			if err := yaml.Load([]byte(e), &v); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(v); err != nil {
				t.Errorf("%s: %s\n%v", s.Name, e, err)
			}
			text := map[string]string{
				"agent": e, "people": "version: 1\nmay-read: " + e, "person": "version: 1\nmay-change: [" + e + "]",
				"drift": "version: 1\ndrift: " + e, "alerts": "version: 1\nalerts: " + e, "arguments": "version: 1\nalerts: {command: " + e + "}",
				"fleet": "version: 1\nfleet: " + e, "questions": "version: 1\nfleet: {questions: " + e + "}",
				"argument": "version: 1\nalerts: {command: [/bin/page, '" + e + "']}", "url": "version: 1\nalerts: {webhook: '" + e + "'}",
				"lists": "version: 1\nlists: " + e, "countries": "version: 1\ncountries: " + e, "publishers": "version: 1\ncountries: {from: " + e + "}",
				"publisher": "version: 1\ncountries: {from: ['" + e + "']}", "every": "version: 1\ncountries: {from: dbip, every: " + e + "}",
			}[s.Name]
			if _, err := Parse("a.yaml", []byte(text)); text != "" && err != nil {
				t.Error(err)
			}
		}
		if s.Name == "agent" && schema.Validate(map[string]any{"may-read": "alice"}) == nil {
			t.Error("the schema lets a file without a version pass")
		}
	}
}

// docs/reference/agent.md is what the table says, and its example is right.
func TestReferenceIsWritten(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, Reference()) {
		t.Error("docs/reference/agent.md is not what the table says; run make generate")
	}
	_, text, _ := bytes.Cut(page, []byte("```yaml\n"))
	text, _, _ = bytes.Cut(text, []byte("```"))
	if _, err := Parse("agent.md", text); err != nil {
		t.Error(err)
	}
}

// Whatever is in the text: no panic, and every error at a place of it.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "version: 1\n", "version: 1\nmay-read: group sluice\nmay-change: [alice, 1000, 'group x']\n", "\ufeffversion: 1\r\n",
		"version: 1\nlists: manual\ncountries: {from: [dbip, 'a=https://a.example/', /srv/c], every: daily}\n", "version: 1\ncountries: [{from: x}]\n", "version: 1\ncountries: {from: {}, every: []}\n",
		"version: 1\ndrift: restore\nalerts: {command: [/a, b], webhook: 'https://a/b'}\n", "version: 1\nmay-change: {a: [b]}\n", "a: &a [*a]\n", "version: 1\nlog: {size: 64MiB}\n", "version: 1\nmetrics: {listen: '[::1]:9469'}\n", "version: 1\nlog: {size: 9999GiB}\n", "version: 1\n---\n", "version: 1\nmay-read: |\n  group a\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("a.yaml", data)
		if err == nil {
			for _, w := range append(c.MayChange, c.MayRead...) {
				if w.Name == "" {
					t.Errorf("%v", c)
				}
			}
			return
		}
		var errs source.Errors
		if !errors.As(err, &errs) || len(errs) == 0 {
			t.Fatalf("%T: %v", err, err)
		}
		lines := source.New("a.yaml", data, dialect, nil).Lines
		for _, e := range errs {
			if e.Message == "" || e.Pos.Line < 1 || e.Pos.Line > len(lines) || e.Pos.Column < 1 || e.Pos.Column > 1+utf8.RuneCountInString(lines[e.Pos.Line-1]) {
				t.Fatalf("%v", e)
			}
		}
	})
}

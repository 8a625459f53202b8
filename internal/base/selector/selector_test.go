package selector

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	web := map[string]string{"role": "web", "env": "prod", "host": "web-1.example.net"}
	for _, test := range []struct {
		text, canonical string
		want            bool
	}{
		{"role=web and env=prod", "", true},
		{"role=web  and\n env = test", "role=web and env=test", false},
		{"role=db or role=web and env=prod", "", true},
		{"(role=db or role=web) and env=test", "", false},
		{"role=db or (role=web and env=test)", "role=db or role=web and env=test", false},
		{"not (role=db or role=web)", "", false},
		{"not role=db and not env=test", "", true},
		{strings.Repeat("not ", 2) + "role=web", "", true},
		{"((role=web))", "role=web", true},
		{"(role=web and env=prod) and host=web-1.example.net", "role=web and env=prod and host=web-1.example.net", true},
		{"role!=web", "", false},
		{"zone!=a", "", true},
		{"zone or role", "", true},
		{"zone", "", false},
		{"role=and", "", false},
	} {
		s, err := Parse(test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if test.canonical == "" {
			test.canonical = test.text
		}
		if s.Match(web) != test.want || s.String() != test.canonical {
			t.Errorf("%s is %s, and matches: %v", test.text, s, s.Match(web))
		}
	}
	s, err := Parse("b=1 or not (a and b!=c)")
	if err != nil || !slices.Equal(s.Labels(), []string{"a", "b"}) {
		t.Errorf("%v %v", err, s.Labels())
	}
}

func TestImplies(t *testing.T) {
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("l%d=a", i))
	}
	long := "(a or not a)"
	for len(long) < 3500 {
		for _, l := range "abcdefg" {
			long += fmt.Sprintf(" and (%c or not %[1]c)", l)
		}
	}
	for _, test := range []struct {
		s, other string
		want     bool
	}{
		{"env=prod", "env=prod", true},
		{"env=prod and role=web", "env=prod", true},
		{"env=prod", "env=prod and role=web", false},
		{"env=prod", "env=prod or env=test", true},
		{"env=prod or env=test", "env=prod", false},
		{"env=prod", "env", true},
		{"env", "env=prod", false},
		{"env", "env!=prod", false},
		{"env!=prod", "env", false},
		{"not env", "env!=prod", true},
		{"env=prod", "env!=test", true},
		{"env=prod and env=test", "role=web", true},
		{"role=web", "env=prod or env!=prod", true},
		{"not (env=prod or role=web)", "not env=prod and not role=web", true},
		{"host=web-1", "env=prod", false},
		{"", "env=prod", false},
		{"env=prod", "", true},
		{"", "", true},
		{strings.Join(many, " and "), "l0=a", false}, // true, and too long to find out
		{"env=dev and " + long, "env=dev", false},    // as well
	} {
		read := func(text string) *Selector {
			if text == "" {
				return nil
			}
			s, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if got := read(test.s).Implies(read(test.other)); got != test.want {
			t.Errorf("%q implies %q: %v", test.s, test.other, got)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, test := range []struct {
		text    string
		offset  int
		message string
	}{
		{"", 0, "expected a label, such as role=web, found the end"},
		{"role=web env=prod", 9, `expected and, or the end, found "env"`},
		{"role=web and", 12, "expected a label, such as role=web, found the end"},
		{"(role=web", 9, "expected ), found the end"},
		{"role=web)", 8, `expected and, or the end, found ")"`},
		{"role==web", 5, `"=" is no value of a label: letters, digits and ._/:- between, at most 253`},
		{"role=", 5, "expected a value, found the end"},
		{"role!web", 4, `expected and, or the end, found "!"`},
		{"1role=web", 0, `"1role" is no name of a label: a letter, then letters, digits and ._/- , at most 63`},
		{"role=wéb", 5, `"wéb" is no value of a label: letters, digits and ._/:- between, at most 253`},
		{"not or a", 4, `expected a label, such as role=web, found "or"`},
		{strings.Repeat("(", 40), 33, "nested deeper than 32"},
		{strings.Repeat("not ", 40), 132, "nested deeper than 32"},
		{strings.Repeat("a", 4097), 0, "a selector has at most 4096 bytes"},
	} {
		_, err := Parse(test.text)
		var of *Error
		if !errors.As(err, &of) || of.Offset != test.offset || of.Message != test.message {
			t.Errorf("%.40s: %+v", test.text, err)
		}
	}
	for _, label := range [][2]string{{"host", "a"}, {"and", "a"}, {"a b", "c"}, {"a", ""}, {"a", "-"}, {"", "a"}, {"a=b", "c"}} {
		if CheckLabel(label[0], label[1]) == nil {
			t.Errorf("%s is taken", label)
		}
	}
	if err := CheckLabel("topology.example.net/zone", "eu-1:a"); err != nil {
		t.Error(err)
	}
}

// Whatever the text is: no panic, an error at a place of it, and what is read is written
// as what means the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"role=web and env=prod", "not (role=db or host=web-1)", "a!=b or c", "((a", "not (not a)", "a and (b and c) or d"} {
		f.Add(s)
	}
	all := []map[string]string{{}, {"role": "web"}, {"role": "db", "env": "prod", "host": "web-1"}, {"a": "b", "b": "c"}, {"c": "1", "d": "x"}}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			var of *Error
			if !errors.As(err, &of) || of.Offset < 0 || of.Offset > len(text) || of.Message == "" {
				t.Fatalf("%#v", err)
			}
			return
		}
		again, err := Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q is written %q: %v", text, s, err)
		}
		for _, labels := range all {
			if s.Match(labels) != again.Match(labels) {
				t.Errorf("%q and %q differ for %v", text, s, labels)
			}
		}
	})
}

func TestAnd(t *testing.T) {
	t.Parallel()
	read := func(text string) *Selector {
		if text == "" {
			return nil
		}
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct{ one, other, want string }{
		{"", "", ""},
		{"role=web", "", "role=web"},
		{"", "role=web", "role=web"},
		{"role=web or role=db", "env=prod", "(role=web or role=db) and env=prod"},
		{"role=web and env=prod", "not host=web-1", "role=web and env=prod and not host=web-1"},
	} {
		got := ""
		if both := And(read(c.one), read(c.other)); both != nil {
			got = both.String()
		}
		if got != c.want {
			t.Errorf("And(%q, %q) is %q, and not %q", c.one, c.other, got, c.want)
		}
	}
	if got := Or(read("a"), read("b and c"), read("d or e")).String(); got != "a or b and c or d or e" {
		t.Error(got)
	}
	if Or(read("a"), nil) != nil || And(read("a"), Or(read("b"), read("c"))).String() != "a and (b or c)" {
		t.Error("of all, or of one")
	}
}

package policy

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/base/testgolden"
	"sluice/internal/base/testseed"
	"sluice/internal/language/source"
)

// Every testdata/format/NAME.yaml becomes NAME.golden, which stays as it is.
func TestFormat(t *testing.T) {
	files, err := filepath.Glob("testdata/format/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, name := range append(files, "testdata/design.yaml") {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got := checkFormat(t, data)
		if name != "testdata/design.yaml" {
			testgolden.File(t, "testdata/format/"+strings.TrimSuffix(filepath.Base(name), ".yaml")+".golden", got)
		}
	}
}

// checkFormat formats a text that parses and checks what always holds: the
// meaning and the comments stay, and the form is its own canonical form.
func checkFormat(t *testing.T, data []byte) []byte {
	t.Helper()
	before, err := Parse("p.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Format("p.yaml", data)
	if err != nil {
		t.Fatalf("format of a policy that parses: %v", err)
	}
	after, err := Parse("p.yaml", out)
	if err != nil {
		t.Fatalf("formatted text does not parse: %v\n%s", err, out)
	}
	if diff := cmp.Diff(before, after, sameTree); diff != "" {
		t.Fatalf("format changed the meaning:\n%s\n%q\n%s", diff, data, out)
	}
	again, err := Format("p.yaml", out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out, again) {
		t.Fatalf("format is not idempotent:\n%s", cmp.Diff(string(out), string(again)))
	}
	if a, b := commentTexts(t, data), commentTexts(t, out); !cmp.Equal(a, b) {
		t.Fatalf("comments changed:\n%s\n%q\n%s", cmp.Diff(a, b), data, out)
	}
	return out
}

func commentTexts(t *testing.T, data []byte) []string {
	t.Helper()
	l := newLoader("p.yaml")
	f := &file{loader: l, File: source.New("p.yaml", data, dialect, &l.errs)}
	doc := f.Document()
	if doc == nil {
		t.Fatal(f.errs)
	}
	var out []string
	for _, c := range f.Comments(doc) {
		out = append(out, c.Text)
	}
	return out
}

func TestFormatRandomRules(t *testing.T) {
	r := testseed.Rand(t)
	for range testseed.Rounds(150, 300) {
		var b strings.Builder
		b.WriteString(names)
		for _, hook := range []Hook{Input, Output, Forward} {
			b.WriteString(string(hook) + ":\n    default:   drop # " + string(hook) + "\n\n\n    # the rules\n    rules:\n")
			for range r.IntN(5) {
				line, mapping := randomRule(r, hook)
				switch r.IntN(4) {
				case 0:
					b.WriteString("    - " + mapping + "   # mapping\n")
				case 1:
					b.WriteString("    - " + strings.ReplaceAll(strings.Trim(mapping, "{}"), ", ", " ,") + "\n")
					// A block mapping is only as good as its splitting; leave it.
					text := b.String()
					b.Reset()
					b.WriteString(text[:strings.LastIndex(text, "    - ")])
					b.WriteString("    # - gone\n")
				case 2:
					b.WriteString("    - " + quoteScalar(line, true) + "\n\n")
				default:
					b.WriteString("    - >-\n        " + strings.Replace(line, " ", "\n        ", 1) + "\n    # behind\n")
				}
			}
		}
		checkFormat(t, []byte(b.String()))
	}
}

// Files that do not parse are not touched.
func TestFormatErrors(t *testing.T) {
	for _, text := range []string{"a: [", "version: 2\n", "input: {default: [}", "sets: {a: [192.0.2.1/8]}\n"} {
		out, err := Format("p.yaml", []byte(text))
		if err == nil || out != nil {
			t.Errorf("%q: %q, %v", text, out, err)
		}
	}
	// Names may be of another file.
	if out, err := Format("p.yaml", []byte("forward:\n    rules: [allow  ssh from  vms]\n")); err != nil || string(out) != "forward:\n  rules:\n    - allow ssh from vms\n" {
		t.Errorf("%q, %v", out, err)
	}
}

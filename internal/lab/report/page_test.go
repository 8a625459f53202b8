package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"sluice/internal/base/testgolden"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
)

var look = flag.String("look", "", "write the pages of the tests into `DIR`, to look at them in a browser")

func seen(t *testing.T, name string, r *figures.Report) {
	if *look != "" {
		if err := Save(filepath.Join(*look, strings.ReplaceAll(name, " ", "-")+".html"), r); err != nil {
			t.Fatal(err)
		}
	}
}

// The library is the one that SOURCE names, as its makers published it.
func TestLibraryIsTheOneOfSource(t *testing.T) {
	source, err := os.ReadFile("echarts/SOURCE")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for line := range strings.Lines(string(source)) {
		if !strings.HasPrefix(line, "#") {
			words = append(words, strings.Fields(line)...)
		}
	}
	if len(words) != 5 {
		t.Fatalf("SOURCE has %d words beside its comments, not name, version, two hashes and a file", len(words))
	}
	text, err := library()
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256([]byte(text)); hex.EncodeToString(sum[:]) != words[3] {
		t.Errorf("the library's hash is %x, SOURCE has %s", sum, words[3])
	}
	if !strings.Contains(text[:2000], "Licensed to the Apache Software Foundation") {
		t.Error("the library does not begin with its license")
	}
	if regexp.MustCompile(`(?i)</script|<!--`).MatchString(text + drawJS) {
		t.Error("a script would end before its end")
	}
}

// written is a page as a browser reads it.
type written struct {
	root    *html.Node
	text    string // what a person reads, charts apart
	scripts []*html.Node
	policy  string
	size    int
}

// write is without the library, which is the same in all pages.
func write(t testing.TB, r *figures.Report) written {
	t.Helper()
	var out bytes.Buffer
	if err := render(&out, r, "library()"); err != nil {
		t.Fatal(err)
	}
	return read(t, &out)
}

func read(t testing.TB, out *bytes.Buffer) written {
	t.Helper()
	p := written{size: out.Len()}
	var err error
	if p.root, err = html.Parse(out); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for n := range p.root.Descendants() {
		switch {
		case n.Type == html.TextNode && n.Parent.Data != "script" && n.Parent.Data != "style":
			text.WriteString(n.Data + " ")
		case n.Data == "script":
			p.scripts = append(p.scripts, n)
		case n.Data == "meta" && attribute(n, "http-equiv") == "Content-Security-Policy":
			p.policy = attribute(n, "content")
		}
	}
	p.text = strings.Join(strings.Fields(text.String()), " ")
	return p
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// drawnOf is what the page gives to draw.js.
func (p written) drawnOf(t testing.TB) drawn {
	t.Helper()
	var d drawn
	if err := json.Unmarshal([]byte(p.scripts[0].FirstChild.Data), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// safe holds a page to what package doc promises, whatever the report says: its own
// two scripts run and no other, and nothing is loaded.
func (p written) safe() error {
	kinds := []string{}
	for _, s := range p.scripts {
		kinds = append(kinds, attribute(s, "type"))
	}
	if !slices.Equal(kinds, []string{"application/json", "", ""}) {
		return fmt.Errorf("the page has scripts of types %q", kinds)
	}
	want := "default-src 'none'; script-src"
	for _, s := range p.scripts[1:] {
		want += " " + hash(s.FirstChild.Data)
	}
	if !strings.HasPrefix(p.policy, want+"; ") {
		return fmt.Errorf("the policy is %s, and its scripts are %s", p.policy, want)
	}
	allowed := map[string]bool{
		"html": true, "head": true, "meta": true, "link": true, "title": true, "style": true, "script": true, "body": true, "header": true, "footer": true,
		"section": true, "div": true, "p": true, "span": true, "strong": true, "code": true, "pre": true, "details": true, "summary": true, "ul": true, "li": true, "button": true,
		"h1": true, "h2": true, "figure": true, "figcaption": true, "table": true, "caption": true, "thead": true, "tbody": true, "tr": true, "th": true, "td": true,
	}
	var errs []error
	for n := range p.root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if !allowed[n.Data] {
			errs = append(errs, fmt.Errorf("the page has an element %q", n.Data))
		}
		for _, a := range n.Attr {
			switch {
			case strings.HasPrefix(a.Key, "on"), a.Key == "style", a.Key == "src", a.Key == "srcset":
				errs = append(errs, fmt.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val))
			case a.Key == "href" && a.Val != "data:,":
				errs = append(errs, fmt.Errorf("<%s href=%q>", n.Data, a.Val))
			}
		}
	}
	return errors.Join(errs...)
}

// figuresOf are the numbers of a report as a person has to find them in its page.
func figuresOf(r *figures.Report) []string {
	var out []string
	for i := range r.Sections {
		for _, f := range r.Sections[i].Figures {
			out = append(out, f.Case, f.Subject, f.Quantity)
			if f.Note != "" {
				out = append(out, f.Note)
			}
			if len(f.Samples) > 0 {
				out = append(out, quantity(f.Estimate.Median, f.Unit))
			}
		}
	}
	for _, g := range r.Goals {
		out = append(out, g.Name, quantity(g.Measured.Median, g.Unit), quantity(g.Limit, g.Unit))
	}
	return append(out, r.Warnings...)
}

func TestEveryFigureIsText(t *testing.T) {
	r := sample()
	var out bytes.Buffer
	if err := Write(&out, r); err != nil {
		t.Fatal(err)
	}
	p := read(t, &out)
	for _, want := range append(figuresOf(r), r.Title, r.Command, r.Machine.String(), "seed 7", "5 min") {
		if !strings.Contains(p.text, strings.Join(strings.Fields(want), " ")) {
			t.Errorf("nobody can read %q", want)
		}
	}
	if err := p.safe(); err != nil {
		t.Error(err)
	}
	if p.size > 1_500_000 {
		t.Errorf("the page takes %d bytes", p.size)
	}
	seen(t, "sample", r)
}

// The page loads nothing: what looks like an address is a name (of SVG), text of the
// report, or a comment of the library.
func TestNothingIsLoaded(t *testing.T) {
	address := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9-]+\.[a-z]`)
	for name, text := range map[string]string{"page.html": pageHTML, "page.css": pageCSS, "draw.js": drawJS} {
		if found := address.FindString(text); found != "" {
			t.Errorf("%s names %s", name, found)
		}
	}
	if found := regexp.MustCompile(`(?i)@import|url\(`).FindString(pageCSS); found != "" {
		t.Errorf("page.css has %s", found)
	}
	for _, way := range []string{"fetch(", "XMLHttpRequest", "WebSocket", "import(", "sendBeacon", "innerHTML", "eval("} {
		if strings.Contains(drawJS, way) {
			t.Errorf("draw.js uses %s", way)
		}
	}
}

// hostile is text that would run, break out, or load, if it were taken for anything
// but text.
var hostile = []string{
	`</script><script>alert(1)</script>`, `<!--<script>`, `<img src=x onerror=alert(1)>`, `"><svg onload=alert(1)>`, `' onmouseover='alert(1)`,
	`</title><link rel=stylesheet href=https://example.net/x.css>`, `</style><script>alert(1)</script>`, "\u2028alert(1)\u2029", `{{.Library}}`, `{a|b}`, `${alert(1)}`,
	`\u003cscript\u003e`, "a\x00b", "日本語のとても長い名前", "\u202egnitset", `javascript:alert(1)`, `%3Cscript%3E`, "{value}{a}{b0}", "\xff", "",
}

func hostileReport(text string) *figures.Report {
	r := sample()
	r.Title, r.Command, r.Version, r.Machine.Kernel, r.Machine.Processor = text, text, text, text, text
	r.Warnings = []string{text}
	for i := range r.Sections {
		s := &r.Sections[i]
		s.Name, s.Title, s.Text = text, text, append([]string{text, "– " + text}, slices.Repeat([]string{"    " + text}, mostLines+1)...)
		for j := range s.Figures {
			f := &s.Figures[j]
			f.Case += text
			f.Subject += text
			f.Quantity += text
			f.Note += text
			f.Unit += text
		}
		for j := range s.Charts {
			c := &s.Charts[j]
			c.Title, c.Note, c.X.Name, c.X.Unit, c.Y.Name, c.Y.Unit = text, text, text, text, text, text
			c.Marks = append(c.Marks, figures.Mark{X: 1, Text: text})
			for k := range c.Lines {
				c.Lines[k].Name += text
			}
		}
	}
	for i := range r.Goals {
		r.Goals[i].Name, r.Goals[i].Unit, r.Goals[i].Reached = text, text, figures.Reached(text)
	}
	return r
}

func TestHostileTextIsText(t *testing.T) {
	seen(t, "hostile", hostileReport(strings.Join(hostile, "")))
	for _, text := range append(hostile, strings.Join(hostile, "")) {
		p := write(t, hostileReport(text))
		if err := p.safe(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		d := p.drawnOf(t)
		if want := strings.ToValidUTF8(text, "\ufffd"); !strings.HasSuffix(d.Subjects[0], want) || d.Stacks[0].Charts[0].Title != want {
			t.Errorf("%q: the charts say %q and %q", text, d.Subjects[0], d.Stacks[0].Charts[0].Title)
		}
		reads := strings.NewReplacer("\x00", "\ufffd", "\xff", "\ufffd").Replace
		if want := strings.Join(strings.Fields(reads(text)), " "); !strings.Contains(reads(p.text), want) {
			t.Errorf("nobody can read %q", text)
		}
	}
}

func TestWhatIsDrawn(t *testing.T) {
	v := newView(sample())
	var got bytes.Buffer
	say := func(what string, v any) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%s %s\n", what, text)
	}
	for _, s := range v.Sections {
		for _, table := range s.Tables {
			say("table", []string{table.Quantity, table.Of, table.Better, table.Says})
		}
	}
	for _, g := range v.Goals {
		say("goal", g)
	}
	say("subjects", v.Drawn.Subjects)
	for _, bars := range v.Drawn.Bars {
		cells := bars.Cells
		bars.Cells = nil
		say("bars", bars)
		for i, c := range bars.Cases {
			say("  "+c, cells[i])
		}
	}
	for _, stack := range v.Drawn.Stacks {
		charts := stack.Charts
		stack.Charts = nil
		say("stack", stack)
		for _, chart := range charts {
			lines := chart.Lines
			chart.Lines = nil
			say("  chart", chart)
			for _, l := range lines {
				l.Points = l.Points[:2] // they are those of the report
				say("    line", l)
			}
		}
	}
	testgolden.File(t, "testdata/view.golden", got.Bytes())
}

// many is a section with so many cases and subjects.
func many(cases, subjects int, name string, value func(i, j int) stats.Series) figures.Section {
	s := figures.Section{Name: "many", Title: "Many"}
	for i := range cases {
		for j := range subjects {
			s.Add(figures.Figure{Case: fmt.Sprintf("%s %d", name, i), Subject: fmt.Sprintf("subject %d", j), Quantity: "time", Unit: "ns", Samples: value(i, j)})
		}
	}
	return s
}

func TestOddReports(t *testing.T) {
	of := func(s ...figures.Section) *figures.Report {
		return &figures.Report{Title: "odd", Sections: s}
	}
	one := func(x ...float64) figures.Section {
		return many(2, 2, "case", func(int, int) stats.Series { return x })
	}
	line := func(p ...figures.Point) figures.Section {
		return figures.Section{Title: "course", Charts: []figures.Chart{{Title: "a course", Lines: []figures.Line{{Points: p}}}}}
	}
	grown := one(7)
	grown.Charts = []figures.Chart{{Title: "time", Lines: []figures.Line{{Points: []figures.Point{{X: 1, Y: 7}}}}}}
	for name, tc := range map[string]struct {
		r             *figures.Report
		bars, stacks  int
		reads, doesnt string
		logarithmic   bool
	}{
		"a long file":           {r: of(figures.Section{Text: slices.Repeat([]string{"    a line"}, 100)}), reads: "90 lines more"},
		"growth":                {r: of(grown), stacks: 1, reads: "7 ns"},
		"nothing":               {r: &figures.Report{}},
		"a section of text":     {r: of(figures.Section{Title: "text", Text: []string{"only this"}}), reads: "only this"},
		"no samples":            {r: of(figures.Section{Figures: []figures.Figure{{Case: "a", Subject: "b", Quantity: "c", Note: "cannot"}}}), reads: "cannot"},
		"samples of no round":   {r: of(one()), doesnt: "NaN"},
		"one figure":            {r: of(many(1, 1, "case", func(int, int) stats.Series { return stats.Series{5, 6, 7} })), reads: "6 ns case 0, time"},
		"one sample":            {r: of(one(42)), bars: 1, reads: "42 ns"},
		"no number":             {r: of(one(math.NaN(), math.NaN())), reads: "–", doesnt: "NaN"},
		"one round of infinity": {r: of(one(1, 2, math.Inf(1))), bars: 1, reads: "∞", doesnt: "Inf"},
		"infinity":              {r: of(one(math.Inf(1), math.Inf(1))), reads: "∞", doesnt: "Inf"},
		"zero":                  {r: of(one(0, 0, 0)), bars: 1, reads: "0 ns"},
		"below zero":            {r: of(one(-5, -6, -4)), bars: 1, reads: "-5 ns"},
		"below and far above":   {r: of(many(2, 1, "case", func(i, _ int) stats.Series { return stats.Series{[]float64{-50, 5000}[i]} })), bars: 1, reads: "-50 ns"},
		"far apart":             {r: of(many(3, 1, "case", func(i, _ int) stats.Series { return stats.Series{math.Pow(40, float64(i))} })), bars: 1, logarithmic: true},
		"near each other":       {r: of(many(3, 1, "case", func(i, _ int) stats.Series { return stats.Series{float64(10 * (i + 1))} })), bars: 1},
		"great numbers":         {r: of(one(1e300, 1e308)), bars: 1},
		"200 cases":             {r: of(many(200, 2, "case", func(i, j int) stats.Series { return stats.Series{float64(i + j)} })), bars: 1, reads: "case 199", logarithmic: true},
		"too many to draw":      {r: of(many(200, 3, "case", func(i, j int) stats.Series { return stats.Series{float64(i + j)} })), reads: "600 figures are too many to draw"},
		"long names":            {r: of(many(2, 12, strings.Repeat("long ", 100), func(int, int) stats.Series { return stats.Series{1} })), bars: 1, reads: strings.Repeat("long ", 99)},
		"a chart without lines": {r: of(figures.Section{Charts: []figures.Chart{{Title: "empty"}}}), stacks: 1},
		"a line without points": {r: of(line()), stacks: 1},
		"one point":             {r: of(line(figures.Point{X: 3, Y: 3})), stacks: 1},
		"points of no number":   {r: of(line(figures.Point{X: math.NaN(), Y: 1}, figures.Point{X: 1, Y: math.NaN()}, figures.Point{X: math.Inf(1), Y: math.Inf(-1)})), stacks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			seen(t, name, tc.r)
			p := write(t, tc.r)
			if err := p.safe(); err != nil {
				t.Error(err)
			}
			if found := regexp.MustCompile(`"(subjects|bars|stacks|cases|cells|charts|lines|marks|points)":null`).FindString(p.scripts[0].FirstChild.Data); found != "" {
				t.Errorf("draw.js wants a list: %s", found)
			}
			d := p.drawnOf(t)
			if len(d.Bars) != tc.bars || len(d.Stacks) != tc.stacks {
				t.Errorf("%d tables and %d stacks are drawn, not %d and %d", len(d.Bars), len(d.Stacks), tc.bars, tc.stacks)
			}
			if !strings.Contains(p.text, strings.TrimSpace(tc.reads)) || tc.doesnt != "" && strings.Contains(p.text, tc.doesnt) {
				t.Errorf("a person reads %s", p.text)
			}
			for _, b := range d.Bars {
				if b.Log != tc.logarithmic {
					t.Errorf("logarithmic: %v", b.Log)
				}
				if len(b.Cells) != len(b.Cases) || len(b.Cells[0]) != len(b.Subjects) {
					t.Errorf("%d rows of %d cells for %d cases of %d subjects", len(b.Cells), len(b.Cells[0]), len(b.Cases), len(b.Subjects))
				}
			}
		})
	}
}

// A page takes its file's place whole, or leaves it.
func TestSave(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Save(file, sample()); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.HasSuffix(bytes.TrimSpace(text), []byte("</html>")) {
		t.Errorf("the page does not end: %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d files are left", len(entries))
	}
	if err := Save(filepath.Join(dir, "none", "page.html"), sample()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such folder: got %v", err)
	}
}

func FuzzPage(f *testing.F) {
	for _, seed := range []string{
		`{"title":"t","sections":[{"title":"s","text":["a","    b","– c"],"figures":[{"case":"a","subject":"sluice","quantity":"q","unit":"ns","samples":[1,2]},{"case":"a","subject":"b","quantity":"q","unit":"ns","samples":[100,null]}]}]}`,
		`{"goals":[{"name":"g","unit":"×","limit":1,"measured":{"median":0.1,"low":0.1,"high":0.2},"same-against-itself":{"median":1},"reached":"yes"}]}`,
		`{"sections":[{"charts":[{"title":"c","group":"g","x":{"log":true},"y":{"unit":"s"},"lines":[{"name":"l","points":[{"x":null,"y":1e308,"low":-1e308}]}],"marks":[{"x":-1,"text":"m"}]}]}]}`,
	} {
		f.Add([]byte(seed[:1] + `"schema":"` + figures.Schema + `",` + seed[1:]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := figures.Parse("f.json", data)
		if err != nil {
			return
		}
		p := write(t, r)
		if err := p.safe(); err != nil {
			t.Error(err)
		}
		p.drawnOf(t)
	})
}

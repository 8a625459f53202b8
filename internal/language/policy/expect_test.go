package policy

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/base/testseed"
)

// parseExpectation parses one expectation in a policy that has the names.
func parseExpectation(line string) (*Expectation, error) {
	p, err := Parse("p.yaml", []byte(names+"expect:\n  - "+line+"\n"))
	if err != nil {
		return nil, err
	}
	return p.Expect[0], nil
}

func TestExpectations(t *testing.T) {
	for _, c := range []struct{ line, text string }{
		{"allow tcp/443 from 2.32.0.1", "allow tcp/443 from 2.32.0.1"},
		{"drop ssh from not office", "drop ssh from not office"},
		{"drop", "drop any"},
		{"deny from not [office, 192.0.2.1] web", ""},
		{"deny web from not [office, 192.0.2.1]", "deny web from not [office, 192.0.2.1]"},
		{"reject on output smtp", ""},
		{"reject smtp on output", "reject smtp on output"},
		{"{reject: smtp, on: output}", "reject smtp on output"},
		{"allow state established icmp", ""},
		{"allow icmp state established", "allow icmp state established"},
		{"allow icmp on input", "allow icmp on input"},
		{"allow icmp echo-request on input ipv6", "allow icmp echo-request ipv6 on input"},
		{"{allow: [http, https], state: [related, established], in: wan}", "allow [http, https] in wan state [related, established]"},
		{"allow any to vms in wan", "allow any to vms in wan"},
		{"deny any out vms by user 1000", "deny any out vms by user 1000"},
		{"{allow: tcp/8080, published: true, from: office}", "allow published tcp/8080 from office"},
		{"allow tcp/5432 from office to 10.20.0.5", "allow tcp/5432 from office to 10.20.0.5"},
	} {
		x, err := parseExpectation(c.line)
		switch {
		case c.text == "" && err == nil:
			t.Errorf("%s is taken, as %s", c.line, x.Text)
		case c.text == "":
		case err != nil:
			t.Errorf("%v", err)
		case x.Text != c.text:
			t.Errorf("%s is %s, want %s", c.line, x.Text, c.text)
		case x.Pos.Line != 13 || x.Pos.Column != 5:
			t.Errorf("%s at %s", c.line, x.Pos)
		}
	}
}

func TestExpectationErrors(t *testing.T) {
	for _, c := range []struct{ line, message, hint string }{
		{`‸accept ssh`, `unknown verdict "accept"`, "write allow"},
		{`‸block ssh`, `unknown verdict "block"`, "write deny"},
		{`‸dney ssh`, `unknown verdict "dney", did you mean "deny"?`, "begins with allow"},
		{`‸clamp mss`, `unknown verdict "clamp"`, "about verdicts"},
		{`deny ‸htpp from office`, `unknown service "htpp", did you mean "http"?`, ""},
		{`deny ssh from ‸offcie`, `unknown set or zone "offcie", did you mean "office"?`, ""},
		{`deny ssh ‸form office`, `unknown word "form", did you mean "from"?`, ""},
		{`deny ssh in ‸wann`, `unknown zone "wann", did you mean "wan"?`, "define it under zones"},
		{`deny ssh from ‸listeners`, `set of endpoints`, "set of addresses"},
		{`allow ssh ‸until 2027-01-31T18:00:00Z`, `"until" cannot be used in an expectation`, "remove it"},
		{`allow ssh ‸limit 1/second`, `"limit" cannot be used in an expectation`, "remove it"},
		{`allow ssh ‸max 1 connections`, `"max" cannot be used in an expectation`, "remove it"},
		{`allow ssh ‸log`, `"log" cannot be used in an expectation`, "remove it"},
		{`allow ‸published tcp/8080 on output`, `"published" cannot be used on output`, "write on input or forward"},
		{`allow ssh on ‸prerouting`, `expected input, output or forward`, "on input"},
		{`allow ssh on ‸outptu`, `did you mean "output"?`, "on input"},
		{`allow ssh on‸`, `expected input, output or forward, found the end`, "on input"},
		{`allow ssh ‸output`, `unexpected "output"`, "write on output"},
		{`allow ssh state ‸established,`, `unexpected ","`, ""},
		{`allow ssh state ‸establshed`, `unknown state "establshed", did you mean "established"?`, "known are new"},
		{`allow ssh state ‸untracked`, `write bypass`, "remove state"},
		{`allow ssh state [new, ‸new]`, `duplicate state "new"`, ""},
		{`allow ssh on input ‸on input`, `duplicate "on"`, ""},
		{`allow ssh ‸out wan on input`, `"out" cannot be used on input`, "write on forward"},
		{`allow ssh ‸in wan on output`, `"in" cannot be used on output`, "write on forward"},
		{`allow ssh ‸in wan by user root`, `"in" cannot be used on output`, "write on forward"},
		{`allow ssh ‸by user root on forward`, `"by" cannot be used on forward`, "write on output"},
		{`allow ssh to ‸vms on input`, `zone "vms" cannot be used after to`, "in ZONE"},
		{`allow ssh from ‸vms by user root`, `zone "vms" cannot be used after from`, "out ZONE"},
		{`allow ssh ipv4 from ‸2001:db8::/32`, `no packet can match the expectation: 2001:db8::/32 is only IPv6, the rest of the line only IPv4`, ""},
		{`allow ssh ‸drop http`, `second verdict "drop"`, "two expectations"},
		{`allow ssh ‸stateless`, `"stateless" is not a word`, ""},
		{`‸{from: office}`, `an expectation needs one of the keys allow, drop, reject, deny`, ""},
		{`{deny: ssh, ‸log: x}`, `unknown key "log" in an expectation`, "known are"},
		{`{deny: ssh ‸on output}`, `unexpected "on" in deny`, "key of its own"},
		{`{deny: ssh, on: ‸sideways}`, `expected input, output or forward`, "on input"},
		{`‸[deny, ssh]`, `an expectation must be a line of words or a mapping`, ""},
	} {
		if strings.Contains(c.line, "state ‸established,") {
			c.line = `allow ssh state established‸,`
		}
		t.Run(c.line, func(t *testing.T) {
			const shift = 12 // lines before the one of the expectation
			wantError(t, c.line, c.message, c.hint, func(text string) error {
				_, err := parseExpectation(text)
				var errs Errors
				if errors.As(err, &errs) {
					for _, e := range errs {
						e.Pos.Line -= shift
						e.Pos.Column -= len("  - ")
					}
				}
				return err
			})
		})
	}
}

// randomExpectation makes an expectation in both forms.
func randomExpectation(r *rand.Rand) (line, mapping string) {
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	verdict := pick("allow", "drop", "reject", "deny")
	service := pick("any", "web", "tcp/80", "udp/1000-2000", "icmp echo-request", "icmp", "proto/112", "[smtp, imaps]")
	head := verdict + " " + service
	keys, parts := []string{verdict + ": " + service}, []string{}
	hook := Hook(pick("", "input", "output", "forward"))
	if hook != Output && r.IntN(5) == 0 {
		keys = append(keys, "published: true")
		head = verdict + " published " + service
	}
	add := func(key, as, words string) {
		keys = append(keys, key+": "+as)
		parts = append(parts, words)
	}
	if r.IntN(3) == 0 {
		add("family", "ipv4", "ipv4")
	}
	who := func() string { return pick("office", "not office", "[office, served]", "203.0.113.7", "any") }
	if r.IntN(2) == 0 {
		w := who()
		add("from", strings.ReplaceAll(`"`+w+`"`, `"[office, served]"`, "[office, served]"), "from "+w)
	}
	if r.IntN(3) == 0 {
		w := who()
		add("to", strings.ReplaceAll(`"`+w+`"`, `"[office, served]"`, "[office, served]"), "to "+w)
	}
	if hook != Output && r.IntN(4) == 0 {
		add("in", "wan", "in wan")
	}
	if hook != Input && r.IntN(4) == 0 {
		add("out", "vms", "out vms")
	}
	if hook == Output && r.IntN(2) == 0 {
		u := pick("postfix", "[postfix, 1000]")
		add("user", u, "by user "+u)
	}
	if hook != "" {
		add("on", string(hook), "on "+string(hook))
	}
	if r.IntN(3) == 0 {
		s := pick("new", "[established, related]", "invalid")
		add("state", s, "state "+s)
	}
	r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return strings.TrimSpace(head + " " + strings.Join(parts, " ")), "{" + strings.Join(keys, ", ") + "}"
}

// A line, its mapping and its canonical text are one expectation, and fmt
// writes the canonical text.
func TestExpectationFormsAgree(t *testing.T) {
	r := testseed.Rand(t)
	for range testseed.Rounds(700, 2000) {
		line, mapping := randomExpectation(r)
		fromLine, err := parseExpectation(quoteScalar(line, true))
		if err != nil {
			t.Fatalf("%s\n%v", line, err)
		}
		for _, other := range []string{mapping, quoteScalar(fromLine.Text, true)} {
			x, err := parseExpectation(other)
			if err != nil {
				t.Fatalf("%s\n%v", other, err)
			}
			if diff := cmp.Diff(fromLine, x, sameTree); diff != "" {
				t.Fatalf("%s\n%s\n%s", line, other, diff)
			}
		}
		text := checkFormat(t, []byte(names+"expect:   [ "+mapping+"   ]\n"))
		if want := "\nexpect:\n  - " + plainOrQuoted(fromLine.Text) + "\n"; !strings.HasSuffix(string(text), want) {
			t.Fatalf("fmt writes\n%s\nwant\n%s", text, want)
		}
	}
}

func plainOrQuoted(text string) string {
	if plainSafe(text, false) {
		return text
	}
	return quoteScalar(text, true)
}

// A file of expectations has the policy's names, its own places, and nothing
// but expectations.
func TestExpectationFile(t *testing.T) {
	p, err := Parse("p.yaml", []byte(names+"expect:\n  - allow web from office\n"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "own.yaml", "version: 1\nexpect:\n  # the office\n  - deny web from not served\n  - {allow: web, in: wan}\n")
	own := filepath.Join(dir, "own.yaml")
	if err := p.ReadExpectations(own); err != nil {
		t.Fatal(err)
	}
	if len(p.Expect) != 3 || p.Expect[1].Pos != (Pos{File: own, Line: 4, Column: 5}) || len(p.Expect[1].Services[0].Matches) != 2 {
		t.Fatalf("got %+v", p.Expect)
	}
	if e := p.Errorf(p.Expect[1].Pos, "", "x"); e.Line != "  - deny web from not served" {
		t.Errorf("the line is %q", e.Line)
	}
	for _, c := range []struct{ text, message, hint string }{
		{"‸", "file is empty", "version: 1"},
		{"‸- deny web\n", "the file must be a mapping, not a list", "version: 1"},
		{"‸expect: [deny web]\n", "version is missing", "version: 1"},
		{"‸version: 1\n", "expect is missing", "version: 1"},
		{"version: ‸2\nexpect: [deny web]\n", "this sluice does not know version", "version: 1"},
		{"version: 1\nexpect: [deny web]\n‸input: {default: drop}\n", `"input" cannot be used in a file of expectations`, "belongs in the policy"},
		{"version: 1\n‸expct: [deny web]\n", `unknown key "expct" in a file of expectations, did you mean "expect"?`, "version: 1"},
		{"version: 1\nexpect: [deny web from ‸offise]\n", `did you mean "office"?`, ""},
		{"version: 1\nexpect: [deny ‸we]\n", `unknown service "we"`, ""},
		{"version: 1\nexpect: ‸*x\n", "aliases", "quotes"},
		{"version: 1\nexpect: [deny web]\n# ‸\u202e\n", "invisible", "remove"},
	} {
		wantError(t, c.text, c.message, c.hint, func(text string) error { return p.AddExpectations("own2.yaml", []byte(text)) })
		if len(p.Expect) != 3 {
			t.Fatalf("%q left %d expectations", c.text, len(p.Expect))
		}
	}
	if err := p.ReadExpectations(own); err == nil || !strings.Contains(err.Error(), "part of the policy already") {
		t.Errorf("twice: %v", err)
	}
	if err := p.ReadExpectations(filepath.Join(dir, "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/base/testgolden"
)

const head = "version: 1\n"

func TestDocumentErrors(t *testing.T) {
	for _, c := range []struct{ name, text, message, hint string }{
		{"empty file", "‸", "file is empty", "version: 1"},
		{"only a comment", "‸# nothing\n", "file is empty", "version: 1"},
		{"not a mapping", "‸- version: 1\n", "the policy must be a mapping, not a list", "version: 1"},
		{"a text", "‸hello\n", `not "hello"`, "version: 1"},
		{"no version", "‸input:\n  default: drop\n", "version is missing", "version: 1"},
		{"version 2", "version: ‸2\n", `does not know version "2" of the language`, "version: 1"},
		{"version of another type", "version: ‸[1]\n", "version must be 1, not a list", "version: 1"},
		{"version one", "version: ‸one\n", `version must be 1, not "one"`, "version: 1"},
		{"unknown key", head + "‸inptu:\n  default: drop\n", `unknown key "inptu" in the policy, did you mean "input"?`, "known are version"},
		{"duplicate key", head + "sets: {}\n‸sets: {}\n", `key "sets" is already on line 2`, ""},
		{"key that is a list", head + "‸[a]: b\n", "a key must be a name, not a list", ""},
		{"two documents", head + "‸---\nversion: 1\n", "second YAML document", "file of its own"},
		{"tab", head + "sets:\n‸\ta: [192.0.2.1]\n", "tab in the indentation", "use spaces"},
		{"tab behind blanks", head + "sets:\n  ‸\ta: [192.0.2.1]\n", "tab in the indentation", "use spaces"},
		{"nul", head + "sets:‸\x00\n", "NUL byte", ""},
		{"invalid UTF-8", head + "# é ‸\xff\n", "invalid UTF-8", "UTF-8"},
		{"escape", head + "# ‸\x1b[2J\n", "control character U+001B", ""},
		{"lone carriage return", head + "# a‸\rsets: {}\n", "carriage return", "line feed"},
		{"line separator", head + "# ‸\u2028\n", "invisible character U+2028", "remove it"},
		{"right to left", head + "# ‸\u202e\n", "invisible character U+202E", "remove it"},
		{"byte order mark inside", head + "# ‸\ufeff\n", "invisible character U+FEFF", "remove it"},
		{"UTF-16", "‸\xff\xfev\x00", "file is UTF-16", "UTF-8"},
		{"anchor", head + "sets:\n  a: ‸&x [192.0.2.1]\n", "anchors are not part", "name a set"},
		{"alias of nothing", head + "sets:\n  a: ‸*x\n", "aliases are not part", "quotes"},
		{"merge key", head + "zones:\n  a: {‸<<: {interfaces: [a]}}\n", "merge keys are not part", "name a set"},
		{"tag", head + "sets:\n  a: ‸!!str 192.0.2.1\n", "tags are not part", "remove the tag"},
		{"own tag", head + "sets:\n  a: ‸!x 192.0.2.1\n", "tags are not part", "remove the tag"},
		{"directive", "‸%YAML 1.2\n---\nversion: 1\n", "directives are not part", "remove the line"},
		{"deep nesting", head + "sets: {a: {union: [[[[[[[[[[[[[[[[[[[[[[‸[[[[a]]]]]]]]]]]]]]]]]]]]]]]]]]}}\n", "nested too deeply", ""},
		{"open list", head + "sets:\n  a: ‸[192.0.2.1\n", "not YAML: did not find expected ',' or ']'", ""},
		{"open quote", head + "sets:\n  a: ‸\"192.0.2.1\n", "not YAML: found unexpected end of stream", ""},
		{"indentation", head + "sets:\n  a: [192.0.2.1]\n   ‸b: [192.0.2.1]\n", "not YAML", ""},

		{"zones as a list", head + "zones: ‸[a]\n", "zones must be a mapping, not a list", ""},
		{"zone as a text", head + "zones: {a: ‸eth0}\n", `a zone must be a mapping, not "eth0"`, "write it as in {interfaces: ["},
		{"zone with nothing", head + "zones: {‸a: {}}\n", "neither interfaces nor networks", "interfaces, networks"},
		{"zone with another key", head + "zones: {a: {‸interface: [eth0]}}\n", `unknown key "interface" in a zone, did you mean "interfaces"?`, "known are interfaces, networks"},
		{"set with a singular key", head + "sets: {eu: {‸country: DE}}\n", `did you mean "countries"?`, "known are addresses"},
		{"interface of 16", head + "zones: {a: {interfaces: [‸abcdefghijklmnop]}}\n", "has 16 characters", "allows 15"},
		{"interface with slash", head + "zones: {a: {interfaces: [‸a/b]}}\n", `contains "/"`, ""},
		{"interface with blank", head + "zones: {a: {interfaces: [\"‸a b\"]}}\n", `contains " "`, ""},
		{"interface with colon", head + "zones: {a: {interfaces: [\"‸eth0:1\"]}}\n", `contains ":"`, ""},
		{"interface with quote", head + "zones: {a: {interfaces: ['‸a\"b']}}\n", `contains "\""`, ""},
		{"interface with line feed", head + "zones: {a: {interfaces: [\"‸a\\nb\"]}}\n", `contains "\n"`, ""},
		{"star inside", head + "zones: {a: {interfaces: [\"‸a*b\"]}}\n", "has a * inside", "only at the end"},
		{"star alone", head + "zones: {a: {interfaces: [\"‸*\"]}}\n", "interface * matches every interface", "remove"},
		{"interface as a mapping", head + "zones: {a: {interfaces: [‸{b: c}]}}\n", "must be a text, not a mapping", ""},
		{"network with host bits", head + "zones: {a: {networks: [‸10.0.0.1/8]}}\n", "bits set beyond its length", "10.0.0.0/8"},

		{"name with a quote", head + "sets: {‸'a\"b': [192.0.2.1]}\n", "is not a name", "a letter"},
		{"name with a line feed", head + "sets: {‸\"a\\nb\": [192.0.2.1]}\n", "is not a name", "a letter"},
		{"name with a digit", head + "sets: {‸1a: [192.0.2.1]}\n", "is not a name", "a letter"},
		{"name too long", head + "sets:\n  ‸" + strings.Repeat("a", 49) + ": [192.0.2.1]\n", "is not a name", "at most 48"},
		{"name that is a word", head + "sets: {‸any: [192.0.2.1]}\n", "a word of the rule language", ""},
		{"set and zone of one name", head + "zones: {a: {interfaces: [a]}}\nsets: {‸a: [192.0.2.1]}\n", `set "a" is already a zone, see p.yaml:2:9`, ""},
		{"empty set", head + "sets: {‸a: }\n", `set "a" is empty`, "[] for none"},
		{"set of names", head + "sets: {a: [192.0.2.1], b: [‸a]}\n", `"a" is not an IP address`, "{union: [a]}"},
		{"set without content", head + "sets: {‸a: {counters: true}}\n", "has no content", "addresses, file"},
		{"set with two contents", head + "sets: {a: {file: x, ‸url: \"http://lists.example.net/\"}}\n", "file and url in one set", "union"},
		{"refresh alone", head + "sets: {a: {file: x, ‸refresh: 1h}}\n", "refresh without url", ""},
		{"refresh as a number", head + "sets: {a: {url: \"http://lists.example.net/\", refresh: ‸60}}\n", `"60" is not a duration`, "60s"},
		{"counters yes", head + "sets: {a: {file: x, counters: ‸yes}}\n", "must be true or false", "write true"},
		{"url of another kind", head + "sets: {a: {url: ‸ftp://lists.example.net/x}}\n", "neither http nor https", "https://"},
		{"url with password", head + "sets: {a: {url: \"‸https://a:b@lists.example.net/\"}}\n", "password", "another tool"},
		{"country", head + "sets: {a: {countries: [IT, ‸Norway]}}\n", `unknown country "Norway"`, "write NO"},
		{"country UK", head + "sets: {a: {countries: [‸UK]}}\n", `unknown country "UK"`, "write GB"},
		{"country ITA", head + "sets: {a: {countries: [‸ITA]}}\n", `unknown country "ITA"`, "write IT"},
		{"country that is false", head + "sets: {a: {countries: [‸false]}}\n", `unknown country "false"`, "two letters"},
		{"continent", head + "sets: {a: {continents: [‸Europe]}}\n", `unknown continent "Europe"`, "write EU"},
		{"union of itself", head + "sets: {a: {union: [‸a]}}\n", "loop: a → a", "remove one of them from another, in its union"},
		{"union in a circle", head + "sets: {a: {union: [‸b]}, b: {union: [c]}, c: {union: [d], except: [a]}, d: [192.0.2.1]}\n", "loop: a → b → c → a", "remove one of them from another, in its union"},
		{"union of nothing", head + "sets: {a: {‸union: []}}\n", "union is empty", ""},
		{"union of a zone", head + "zones: {z: {interfaces: [z]}}\nsets: {a: {union: [‸z]}}\n", `zone "z" cannot`, "name a set"},
		{"union of unknown", head + "sets: {abc: [192.0.2.1], b: {union: [‸abd]}}\n", `unknown set "abd", did you mean "abc"?`, ""},
		{"union of an address", head + "sets: {b: {union: [‸192.0.2.1]}}\n", "must be names of sets", "separate set"},
		{"endpoint without service", head + "sets: {b: {endpoints: [192.0.2.1‸]}}\n", "endpoint has no service", "a space and a service"},
		{"endpoint with colon", head + "sets: {b: {endpoints: [\"‸192.0.2.1:80\"]}}\n", "not an IP address", "a space and a service"},
		{"endpoint without port", head + "sets: {b: {endpoints: [192.0.2.1 ‸ping]}}\n", "needs a service with ports", "tcp/PORT"},

		{"service without content", head + "services: {‸a: []}\n", `service "a" is empty`, "tcp/PORT"},
		{"service in a circle", head + "services: {a: b, b: [tcp/1, ‸a]}\n", "loop: a → b → a", ""},
		{"service twice in files", head + "services: {a: [tcp/1], b: ‸any}\n", "any cannot be part", "name services"},
		{"service of two words", head + "services: {a: ‸tcp/80 tcp/443}\n", "more than one service", "[tcp/80, tcp/443]"},
		{"service as a mapping", head + "services: {a: ‸{port: 80}}\n", "must be a list, not a mapping", ""},

		{"ban of a zone", head + "zones: {z: {interfaces: [z]}}\nban: [‸z]\n", `zone "z" cannot`, "name a set"},
		{"ban of unknown", head + "ban: [‸z]\n", `unknown set "z"`, ""},
		{"ban with not", head + "ban: [‸not 192.0.2.1]\n", "not cannot be used", "except"},
		{"bypass of any", head + "tracking: {bypass: [‸any]}\n", "needs services with ports", "name services"},
		{"bypass without ports", head + "tracking: {bypass: [‸ping]}\n", "needs a service with ports", "tcp, udp or sctp"},
		{"bypass to a zone", head + "zones: {z: {interfaces: [z]}}\ntracking: {bypass: http to ‸z}\n", `zone "z" cannot`, "name a set"},
		{"bypass with other words", head + "tracking: {bypass: http ‸form 192.0.2.1}\n", `unexpected "form" in bypass`, "SERVICE to WHO"},
		{"grace", head + "tracking: {grace: ‸3}\n", "is not a duration", "add the unit"},
		{"grace of zero", head + "tracking: {grace: ‸0s}\n", "grace is zero", "write none"},
		{"grace too long", head + "tracking: {grace: ‸2d}\n", "grace 2d is too long", "at most 24h, or none"},
		{"grace of another kind", head + "tracking: {grace: ‸[3s]}\n", "grace must be", ""},
		{"invalid", head + "tracking: {invalid: ‸reject}\n", "must be drop or allow", "drop or allow"},
		{"table", head + "tracking: {table: ‸large}\n", "table must be auto or a mapping", "auto"},
		{"table of zero", head + "tracking: {table: {max: ‸0}}\n", "max must be above zero", ""},
		{"table too large", head + "tracking: {table: {max: ‸4294967296}}\n", "too large", "at most"},
		{"table with points", head + "tracking: {table: {max: ‸262_144}}\n", "must be a whole number", "write 262144"},
		{"time-out by the kernel's name", head + "tracking: {table: {timeouts: {‸nf_conntrack_tcp_timeout_time_wait: 30s}}}\n", "unknown timeout", "write tcp-time-wait"},
		{"time-out misspelt", head + "tracking: {table: {timeouts: {‸tcp-timewait: 30s}}}\n", `did you mean "tcp-time-wait"?`, "kernel's name"},
		{"exceptions of another word", head + "exceptions: ‸all\n", "exceptions must be none or a mapping", "write none"},
		{"exceptions twice", head + "exceptions: none\n‸exceptions: none\n", "exceptions", ""},
		{"exceptions for nobody", head + "exceptions: {who: ‸[]}\n", "who is empty", "write exceptions: none"},
		{"exceptions for a zone", head + "zones: {z: {interfaces: [z]}}\nexceptions: {who: [‸z]}\n", `"z"`, "name a set or addresses"},
		{"exceptions for how long", head + "exceptions: {longest: ‸8}\n", "is not a duration", "add the unit"},
		{"log to nowhere", head + "log: ‸netlnk\n", `did you mean "netlink"?`, "write kernel or netlink"},
		{"log twice", head + "log: kernel\n‸log: netlink\n", "log", ""},
		{"counters of another kind", head + "counters: ‸no\n", "counters must be true or false", "write false"},
		{"counters in quotes", head + "counters: ‸\"false\"\n", "counters must be true or false", "write false"},
		{"counters without a value", head + "counters:‸\n", "counters must be true or false", "write true or false"},
		{"size without unit", head + "layout: {memory: ‸64}\n", "not a size of memory", "64MiB"},
		{"size in thousands", head + "layout: {memory: ‸64MB}\n", "not a size of memory", "64MiB"},
		{"size of nothing", head + "layout: {memory: ‸0MiB}\n", "above zero", "remove it"},
		{"size too large", head + "layout: {memory: ‸99999999999GiB}\n", "too large", ""},
		{"load time without unit", head + "layout: {load: ‸1}\n", "is not a duration", "500ms"},
		{"load time of nothing", head + "layout: {load: ‸0ms}\n", "above zero", "remove it"},
		{"load time of a day", head + "layout: {load: ‸1d}\n", "too long", "1h"},
		{"layout that is not a mapping", head + "layout: ‸64MiB\n", "layout", "write it as in {memory:"},
		{"unknown part of layout", head + "layout: {‸mem: 64MiB}\n", "unknown key \"mem\" in layout", "known are memory, load"},
		{"time-out too long", head + "tracking: {table: {timeouts: {udp: ‸30d}}}\n", "too long for the kernel", "24d"},

		{"empty section", head + "‸input:\n", "input is empty", "not filtered"},
		{"section without default", head + "‸input:\n  rules: []\n", "input has no default", "default: drop"},
		{"section as a list", head + "input:\n  ‸- allow ssh\n", "input must be a mapping, not a list", "rules:"},
		{"default", head + "input: {default: ‸dorp}\n", `unknown default "dorp", did you mean "drop"?`, "drop, reject or allow"},
		{"default with more", head + "input: {default: drop ‸ssh}\n", `unexpected "ssh" in default`, "drop, reject or allow"},
		{"accelerate in input", head + "input: {default: drop, ‸accelerate: true}\n", "accelerate cannot be used in input", "under forward"},
		{"unknown key in a section", head + "input: {default: drop, ‸rule: []}\n", `unknown key "rule" in input, did you mean "rules"?`, "known are default, rules"},
		{"rules as a text", head + "input: {default: drop, rules: ‸allow ssh}\n", "rules must be a list", "its own line"},
		{"rule as a list", head + "input: {default: drop, rules: [‸[allow, ssh]]}\n", "must be a line of words or a mapping", ""},
		{"rule that is empty", head + "input:\n  default: drop\n  rules:\n    -‸\n", "rule is empty", ""},
		{"colon and blank", head + "input:\n  default: drop\n  rules:\n    - allow any from fd00:‸: to web\n", "a rule must be one line of words", "'allow any from fd00:: to web'"},
		{"colon in the prefix of a log", head + "input:\n  default: drop\n  rules:\n    - drop ssh log \"in: ‸\"\n", "not YAML", "single quotes"},

		{"nat unknown", head + "nat:\n  - ‸snat out wan\n", `unknown word "snat" in nat`, "masquerade"},
		{"masquerade without out", head + "nat:\n  - ‸masquerade from 10.0.0.0/8\n", "masquerade needs out ZONE", "out ZONE"},
		{"masquerade as a prefix", head + "zones: {w: {interfaces: [w]}}\nnat:\n  - masquerade out w as ‸192.0.2.0/24\n", "more than one address", "one address"},
		{"masquerade of two families", head + "zones: {w: {interfaces: [w]}}\nnat:\n  - masquerade out w ipv6 as ‸192.0.2.1\n", "is IPv4, but the rest of the line is IPv6", ""},
		{"masquerade from another family", head + "zones: {w: {interfaces: [w]}}\nnat:\n  - masquerade from ‸fd00::/64 out w as 192.0.2.1\n", "is IPv6, but the rest of the line is IPv4", ""},
		{"redirect without ports", head + "nat:\n  - redirect ‸ping on 192.0.2.1 to 10.0.0.1\n", "needs a service with ports", "tcp, udp"},
		{"redirect of any", head + "nat:\n  - redirect ‸any on 192.0.2.1 to 10.0.0.1\n", "needs a service with ports", "tcp/8080"},
		{"redirect from nowhere", head + "nat:\n  - ‸redirect tcp/80 to 10.0.0.1\n", "needs in ZONE or on ADDRESS", "redirect SERVICE"},
		{"redirect to nothing", head + "nat:\n  - ‸redirect tcp/80 on 192.0.2.1\n", "needs to TARGET", "redirect SERVICE"},
		{"redirect to a name", head + "nat:\n  - redirect tcp/80 on 192.0.2.1 to ‸web\n", "not an address or a port", ":PORT"},
		{"redirect to a large port", head + "nat:\n  - redirect tcp/80 on 192.0.2.1 to ‸10.0.0.1:70000\n", "above 65535", "65535"},
		{"redirect to IPv6 without brackets", head + "nat:\n  - 'redirect tcp/80 on 2001:db8::1 to ‸2001:db8::2:80:x'\n", "not an IP address", ""},
		{"redirect between families", head + "nat:\n  - redirect tcp/80 on ‸192.0.2.1 to [2001:db8::1]:80\n", "is IPv4, but the rest of the line is IPv6", ""},
		{"map of different lengths", head + "nat:\n  - map 192.0.2.0/28 to ‸10.0.0.0/27\n", "different lengths", "one length"},
		{"map between families", head + "nat:\n  - map 192.0.2.1 to ‸2001:db8::1\n", "between IPv4 and IPv6", ""},
		{"map to itself", head + "nat:\n  - map 192.0.2.1 to ‸192.0.2.1\n", "to itself", ""},
		{"map with from", head + "nat:\n  - map 192.0.2.1 to 10.0.0.1 ‸from 192.0.2.9\n", `unexpected "from" in map`, "map PREFIX"},
		{"nat as a mapping without kind", head + "nat:\n  - ‸{from: 192.0.2.1}\n", "needs one of the keys masquerade, redirect, map", ""},

		{"rule as a mapping without action", head + "input: {default: drop, rules: [‸{from: 192.0.2.1}]}\n", "needs one of the keys allow", ""},
		{"rule with two actions", head + "input: {default: drop, rules: [{allow: ssh, ‸drop: http}]}\n", "allow and drop in one mapping", "two"},
		{"mapping with an unknown key", head + "input: {default: drop, rules: [{allow: ssh, ‸form: 192.0.2.1}]}\n", `unknown key "form" in a rule, did you mean "from"?`, "known are"},
		{"mapping with clauses in a value", head + "input: {default: drop, rules: [{allow: ssh ‸from 192.0.2.1}]}\n", `unexpected "from" in allow`, "key of its own"},
		{"mapping with an unknown service", head + "input: {default: drop, rules: [{allow: [ssh, ‸htpp]}]}\n", `did you mean "http"?`, ""},
		{"mapping with a bad limit", head + "input: {default: drop, rules: [{allow: ssh, limit: {‸rat: 1}}]}\n", `unknown key "rat"`, "known are rate"},
		{"mapping with a bad burst", head + "input: {default: drop, rules: [{allow: ssh, limit: {rate: 1/minute, burst: ‸-1}}]}\n", `must be above zero`, ""},
		{"mapping with a bad family", head + "input: {default: drop, rules: [{allow: ssh, family: ‸6}]}\n", "family must be ipv4 or ipv6", "ipv6"},

		{"include of a missing file", head + "include:\n  - ‸missing.yaml\n", "cannot include: ", ""},
		{"include with a bad pattern", head + "include:\n  - ‸\"[\"\n", "bad pattern", ""},
		{"include as a mapping", head + "include: ‸{a: b}\n", "include must be a list", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantError(t, c.text, c.message, c.hint, func(text string) error {
				_, err := LoadData("p.yaml", []byte(text))
				return err
			})
		})
	}
}

// A bomb of aliases is refused for its first anchor; nothing is expanded.
func TestAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("version: 1\nsets:\n  a: &a [192.0.2.1]\n")
	for c := 'b'; c < 'z'; c++ {
		b.WriteString("  " + string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+", ", 20) + "]\n")
	}
	_, err := Parse("p.yaml", []byte(b.String()))
	if err == nil || !strings.Contains(err.Error(), "p.yaml:3:6: YAML anchors are not part of the language") {
		t.Fatalf("got %v", err)
	}
}

// A line of 10 MB is read, and an error in it is shown in a line of its own.
func TestLongLine(t *testing.T) {
	const element = "203.0.113.100-203.0.113.200, "
	const n = 10 << 20 / len(element)
	text := "version: 1\nsets: {a: [" + strings.Repeat(element, n) + "192.0.2.256]}\n"
	_, err := Parse("p.yaml", []byte(text))
	var errs Errors
	if !errors.As(err, &errs) || len(errs) != 1 {
		t.Fatalf("got %d bytes", len(err.Error()))
	}
	if want := len("sets: {a: [") + n*len(element) + 1; errs[0].Pos.Column != want {
		t.Errorf("column %d, want %d", errs[0].Pos.Column, want)
	}
	if len(err.Error()) > 1000 {
		t.Errorf("message of %d bytes", len(err.Error()))
	}
	line, marker := errs[0].Excerpt()
	if at := len([]rune(marker)) - 1; !strings.HasPrefix(string([]rune(line)[at:]), "192.0.2.256") {
		t.Errorf("marker is not under the address:\n%s\n%s", line, marker)
	}
	if _, err := Parse("p.yaml", []byte(text+strings.Repeat("#", dialect.MaxSize))); err == nil || !strings.Contains(err.Error(), "larger than 32 MiB") {
		t.Errorf("got %v", err)
	}
}

// A byte order mark at the start and line ends of other systems are read.
func TestForeignEditors(t *testing.T) {
	p, err := Parse("p.yaml", []byte("\ufeffversion: 1\r\nsets:\r\n  a: [192.0.2.1]\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Sets[0].Elements[0].Pos; got.Line != 3 || got.Column != 7 {
		t.Errorf("at %s", got)
	}
	_, err = Parse("p.yaml", []byte("\ufeffvesion: 1\r\n"))
	if err == nil || !strings.Contains(err.Error(), "p.yaml:1:1: unknown key \"vesion\" in the policy, did you mean \"version\"?\n    vesion: 1\n    ^\n") {
		t.Errorf("got %v", err)
	}
}

// All errors of all files come in one run, in the order of files and lines.
func TestAllErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.yaml", "version: 1\ninclude: [parts/*.yaml, missing.yaml, parts/a.yaml]\nsets: {a: [192.0.2.256], b: [192.0.2.1/24]}\ninput:\n  default: drop\n  rules: [alow ssh, allow htpp, allow from nobody]\n")
	write(t, dir, "parts/b.yaml", "input:\n  rules: [allow [ssh]\n")
	write(t, dir, "parts/a.yaml", "input:\n  rules: [allow ssh ssh]\n")
	write(t, dir, "parts/.#a.yaml", "not a policy")
	_, err := Load(filepath.Join(dir, "policy.yaml"))
	if err == nil {
		t.Fatal("no error")
	}
	testgolden.File(t, "testdata/all-errors.txt", []byte(strings.ReplaceAll(err.Error(), dir, "DIR")+"\n"))
}

// Names may be used before they are defined, and in other files.
func TestIncludes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.yaml", "version: 1\ninclude: [\"*.yaml\", \"none/*.yaml\", sub/c.yaml]\ninput: {default: drop, rules: [allow x from a]}\nban: [b]\n")
	write(t, dir, "b.yaml", "sets: {b: [192.0.2.2]}\ninput: {rules: [allow http from c]}\n")
	write(t, dir, "a.yaml", "version: 1\nsets: {a: [192.0.2.1]}\ninput: {rules: [allow ssh from b]}\n")
	write(t, dir, "sub/c.yaml", "include: c/*.yaml\nservices: {x: ssh}\n")
	write(t, dir, "sub/c/d.yaml", "sets: {c: {file: list.txt}}\nzones:\n")
	p, err := Load(filepath.Join(dir, "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for _, r := range p.Input.Rules {
		rules = append(rules, filepath.Base(r.Pos.File)+" "+r.Text)
	}
	if got, want := strings.Join(rules, "; "), "policy.yaml allow x from a; a.yaml allow ssh from b; b.yaml allow http from c"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := p.Set("c").File.Pos.File; got != filepath.Join(dir, "sub/c/d.yaml") {
		t.Errorf("c is of %s", got)
	}
	if got := p.Input.Rules[0].Services[0].Matches; len(got) != 1 || got[0].Ports[0].From != 22 {
		t.Errorf("x is %v", got)
	}
	if len(p.Includes) != 4 {
		t.Errorf("includes %q", p.Includes)
	}
}

func TestIncludeErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", "version: 1\ninclude: b.yaml\n")
	write(t, dir, "b.yaml", "include: [c.yaml]\n")
	write(t, dir, "c.yaml", "include:\n  - a.yaml\n")
	write(t, dir, "folder.yaml", "version: 1\ninclude: [sub]\nsets: {x: [192.0.2.1]}\n")
	write(t, dir, "sub/x.yaml", "sets: {x: [192.0.2.1]}\n")
	write(t, dir, "twice.yaml", "version: 1\ninclude: [sub/x.yaml]\nsets: {x: [192.0.2.1]}\ninput: {default: drop}\n")
	for name, want := range map[string]string{
		"a.yaml":      "DIR/c.yaml:2:5: files include each other in a loop: DIR/a.yaml → DIR/b.yaml → DIR/c.yaml → DIR/a.yaml",
		"folder.yaml": "DIR/folder.yaml:2:11: cannot include: DIR/sub is not a regular file",
		"twice.yaml":  `DIR/sub/x.yaml:1:8: set "x" is already a set, see DIR/twice.yaml:3:8`,
		"none.yaml":   "DIR/none.yaml: no such file or directory",
		"sub":         "DIR/sub: is a directory",
	} {
		_, err := Load(filepath.Join(dir, name))
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		first, _, _ := strings.Cut(strings.ReplaceAll(err.Error(), dir, "DIR"), "\n")
		if first != want {
			t.Errorf("%s: got %s\nwant %s", name, first, want)
		}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

package policy

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// names is what the rules of the tests may refer to.
const names = `version: 1
zones:
  wan: {interfaces: [eth0]}
  vms: {interfaces: ["wg*"], networks: [10.20.0.0/16, "fd00:20::/64"]}
  lan: {networks: [10.30.0.0/16]}
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
  served: {union: [office]}
  listeners: {endpoints: ["198.51.100.1 tcp/80"]}
services:
  web: [tcp/80, tcp/443, udp/443]
`

// parseRule parses one rule in a policy that has the names.
func parseRule(t *testing.T, hook Hook, rule string) (*Rule, error) {
	t.Helper()
	p, err := Parse("p.yaml", []byte(names+string(hook)+":\n  default: drop\n  rules:\n    - "+rule+"\n"))
	if err != nil {
		return nil, err
	}
	switch hook {
	case Input:
		return p.Input.Rules[0], nil
	case Output:
		return p.Output.Rules[0], nil
	case Forward:
		return p.Forward.Rules[0], nil
	}
	t.Fatalf("no section %s", hook)
	return nil, nil
}

// wantError takes the ‸ out of text, parses, and wants one error there.
func wantError(t *testing.T, text, message, hint string, parse func(text string) error) {
	t.Helper()
	before, after, marked := strings.Cut(text, "‸")
	if !marked {
		t.Fatalf("no ‸ in %q", text)
	}
	err := parse(before + after)
	var errs Errors
	if !errors.As(err, &errs) {
		t.Fatalf("%s\ngot %v, want an error with %q", text, err, message)
	}
	if len(errs) != 1 {
		t.Fatalf("%s\nwant one error, got:\n%v", text, errs)
	}
	e := errs[0]
	line := 1 + strings.Count(before, "\n")
	column := 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	if e.Pos.Line != line || e.Pos.Column != column {
		t.Errorf("%s\nat %d:%d, want %d:%d", text, e.Pos.Line, e.Pos.Column, line, column)
	}
	if !strings.Contains(e.Message, message) {
		t.Errorf("%s\nmessage %q, want %q", text, e.Message, message)
	}
	if !strings.Contains(e.Hint, hint) || (hint == "") != (e.Hint == "") {
		t.Errorf("%s\nhint %q, want %q", text, e.Hint, hint)
	}
	if _, marker := e.Excerpt(); e.Line != "" && !strings.HasSuffix(marker, "^") {
		t.Errorf("%s\nno marker: %q", text, marker)
	}
}

func TestRuleErrors(t *testing.T) {
	for _, c := range []struct {
		hook                Hook
		rule, message, hint string
	}{
		{Input, `allow ‸htpp from served`, `unknown service "htpp", did you mean "http"?`, ""},
		{Input, `allow ‸frobnicate`, `unknown service "frobnicate"`, "define it under services"},
		{Input, `allow ‸office`, `unknown service "office"`, "office is a set"},
		{Input, `allow ‸wan`, `unknown service "wan"`, "wan is a zone"},
		{Input, `‸alow ssh`, `unknown action "alow", did you mean "allow"?`, "begins with allow"},
		{Input, `‸accept ssh`, `unknown action "accept"`, "write allow"},
		{Input, `‸deny ssh`, `unknown action "deny"`, "write drop"},
		{Input, `‸masquerade out wan`, `unknown action`, "under nat"},
		{Input, `allow ssh ‸form office`, `unknown word "form", did you mean "from"?`, ""},
		{Input, `allow ‸form office`, `unknown word "form", did you mean "from"?`, ""},
		{Input, `allow from office ‸ssh`, `unexpected "ssh"`, "write allow ssh from office"},
		{Input, `allow ssh from ‸offcie`, `unknown set or zone "offcie", did you mean "office"?`, ""},
		{Input, `allow ssh from ‸IT`, `unknown set or zone "IT"`, "countries: [IT]"},
		{Input, `allow ssh from ‸www.example.net`, `not a set, a zone or an address`, "not resolved"},
		{Input, `allow ssh from‸`, `expected a set, a zone or an address, found the end of the line`, ""},
		{Input, `allow ssh from ‸to 192.0.2.1`, `expected a set, a zone or an address, found "to"`, ""},
		{Input, `allow ssh from not ‸not office`, `found "not"`, "two negations"},
		{Input, `allow ssh from not ‸any`, `not any matches nobody`, ""},
		{Input, `allow ssh from [office, ‸not served]`, `not inside a list`, "before the whole list"},
		{Input, `allow ssh from [office ‸served]`, `expected , or ]`, "comma"},
		{Input, `allow ssh from ‸[office, served`, `] is missing`, ""},
		{Input, `allow ssh from ‸[]`, `list of addresses is empty`, ""},
		{Input, `allow ‸[] from office`, `list of services is empty`, ""},
		{Input, `allow [ssh, ‸ssh]`, `duplicate service "ssh"`, ""},
		{Input, `allow [ssh, ‸any]`, `every service`, "remove the list"},
		{Input, `allow ssh from office ‸from served`, `duplicate "from"`, ""},
		{Input, `allow ssh from ‸203.0.113.7/24`, `bits set beyond`, "203.0.113.0/24"},
		{Input, `allow ssh from ‸203.0.113.9-203.0.113.1`, `reversed`, "203.0.113.1-203.0.113.9"},
		{Input, `allow ssh from ‸::ffff:203.0.113.9`, `IPv4 in IPv6 notation`, "203.0.113.9"},
		{Input, `allow ssh from ‸203.0.113.256`, `not an IP address`, ""},
		{Input, `allow ssh from ‸fe80::1%eth0`, `zone`, "fe80::1"},
		{Input, `allow ssh from ‸listeners`, `set of endpoints`, "set of addresses"},
		{Input, `allow ssh to ‸vms`, `zone "vms" cannot be used after to in input`, "in ZONE"},
		{Input, `allow ssh ‸out wan`, `"out" cannot be used in input`, "in ZONE"},
		{Input, `allow ssh ‸by user root`, `"by" cannot be used in input`, "under output"},
		{Input, `‸clamp mss from vms to wan`, `"clamp mss" cannot be used in input`, "under forward"},
		{Input, `allow ssh in ‸office`, `"office" is a set`, "from or to"},
		{Input, `allow ssh in ‸wann`, `unknown zone "wann", did you mean "wan"?`, "define it under zones"},
		{Input, `allow ssh in ‸lan`, `zone "lan" has no interfaces`, "from or to"},
		{Input, `allow ssh in ‸"wan"`, `expected a zone, found the text "wan"`, "in ZONE"},
		{Output, `allow ssh ‸in wan`, `"in" cannot be used in output`, "out ZONE"},
		{Output, `allow ssh from ‸vms`, `zone "vms" cannot be used after from in output`, "out ZONE"},
		{Output, `allow ‸published ssh`, `"published" cannot be used in output`, "input or forward"},
		{Output, `allow smtp by ‸group mail`, `expected user`, "followed by user"},
		{Output, `allow smtp by user ‸-x`, `not the name of a user`, ""},
		{Output, `allow smtp by user ‸4294967295`, `too large`, ""},
		{Output, `allow smtp by user [a, ‸a]`, `duplicate user "a"`, ""},
		{Forward, `allow ssh ‸by user root`, `"by" cannot be used in forward`, "under output"},
		{Forward, `clamp ‸msss`, `expected mss after clamp`, "clamp mss"},
		{Forward, `clamp mss ‸limit 1/second`, `"limit" cannot be used with clamp mss`, "remove it"},
		{Forward, `clamp mss ‸web`, `unexpected "web"`, "expected one of"},
		{Input, `allow ‸tcp/65536`, `port "65536" is above 65535`, "1 to 65535"},
		{Input, `allow ‸tcp/99999999999999999999`, `above 65535`, "1 to 65535"},
		{Input, `allow ‸tcp/0`, `port 0`, "1 to 65535"},
		{Input, `allow ‸tcp/-1`, `"" is not a port`, "1 to 65535"},
		{Input, `allow ‸tcp/http`, `"http" is not a port`, "alone: http"},
		{Input, `allow ‸udp/2000-1000`, `reversed`, "1000-2000"},
		{Input, `allow ‸udp/10:20`, `not a port`, "range with -"},
		{Input, `allow ‸upd/53`, `unknown protocol "upd", did you mean "udp"?`, "tcp/PORT"},
		{Input, `allow ‸53/udp`, `in the wrong order`, "udp/53"},
		{Input, `allow ‸8080`, `without a protocol`, "tcp/8080"},
		{Input, `allow ‸proto/112/5`, `a port for a protocol that has none`, "protocols with ports"},
		{Input, `allow ‸gre/5`, `gre has no ports`, "proto/47"},
		{Input, `allow ‸icmp/8`, `icmp has no ports`, "icmp NAME"},
		{Input, `allow ‸proto/256`, `above 255`, "0 to 255"},
		{Input, `allow ‸proto/58`, `is ICMP`, "write icmp"},
		{Input, `allow ‸icmpv6`, `unknown protocol`, "write icmp"},
		{Input, `allow ‸ssh/2222`, `a port cannot follow`, "tcp/2222"},
		{Input, `allow icmp ‸echo-requst`, `did you mean "echo-request"?`, "known are"},
		{Input, `allow ‸icmp packet-too-big ipv4`, `can never match`, ""},
		{Input, `allow ssh ipv4 from ‸2001:db8::/32`, `can never match: 2001:db8::/32 is only IPv6, the rest of the rule only IPv4`, ""},
		{Input, `allow ssh from 192.0.2.1 to ‸2001:db8::1`, `can never match`, ""},
		{Input, `allow ssh ipv4 ‸ipv6`, `ipv4 and ipv6 in one rule`, "remove both"},
		{Input, `allow ssh ‸v6`, `unknown word "v6"`, "ipv4 or ipv6"},
		{Input, `allow ssh until‸`, `expected a time, found the end of the line`, "a date and a time of day"},
		{Input, `allow ssh until ‸tomorrow`, `"tomorrow" is not a time`, "a date and a time of day"},
		{Input, `allow ssh until ‸2027-01-31T18:00:00`, `is not a time`, "2027-01-31T18:00:00Z is UTC"},
		{Input, `allow ssh until ‸2027-02-30T18:00:00Z`, `is not a time`, "a date and a time of day"},
		{Input, `allow ssh until ‸2027-01-31T18:00:00.5Z`, `not a whole second`, "fraction"},
		{Input, `allow ssh until ‸9027-01-31T18:00:00Z`, `not from 1970 to 2105`, ""},
		{Input, `allow ssh until 2027-01-31T18:00:00Z ‸until 2027-01-31T18:00:00Z`, `duplicate "until"`, ""},
		{Forward, `clamp mss ‸until 2027-01-31T18:00:00Z`, `"until" cannot be used with clamp mss`, "remove it"},
		{Input, `allow ssh limit ‸10`, `"10" is not a rate`, "COUNT/UNIT"},
		{Input, `allow ssh limit ‸0/minute`, `must be above zero`, ""},
		{Input, `allow ssh limit ‸-3/minute`, `must be above zero`, ""},
		{Input, `allow ssh limit ‸10000000000/minute`, `too large`, "at most"},
		{Input, `allow ssh limit ‸10/minut`, `"minut" is not a unit of time, did you mean "minute"?`, "second, minute"},
		{Input, `allow ssh limit ‸10/8d`, `too long`, "at most 7d"},
		{Input, `allow ssh limit ‸1/0s`, `zero`, ""},
		{Input, `allow ssh limit 10/minute per ‸minute`, `expected source`, "limit 10/minute"},
		{Input, `allow ssh limit 10/minute burst ‸0`, `burst must be above zero`, ""},
		{Input, `allow ssh limit 10/minute burst 5 ‸burst 6`, `duplicate "burst"`, ""},
		{Input, `allow ssh ‸limit 10/minute then ban 10m`, `then ban needs a limit per source`, "per source"},
		{Input, `allow ssh limit 10/minute per source then ban ‸10`, `not a duration`, "10s"},
		{Input, `allow ssh limit 10/minute per source ‸widen`, `only a ban`, "then ban TIME widen"},
		{Input, `allow ssh limit 10/minute per source then ban ‸widen`, `not a duration`, "write 30s"},
		{Input, `allow ssh limit 10/minute per source then ban ‸0s`, `zero`, ""},
		{Input, `allow ssh limit 10/minute per source then ban ‸10min`, `not a duration`, "write 10m"},
		{Input, `allow ssh limit 10/minute per source then ‸drop`, `expected ban`, "then ban TIME"},
		{Input, `allow ssh max ‸0 connections`, `must be above zero`, ""},
		{Input, `allow ssh max ‸4294967296 connections`, `too large`, "at most 4294967295"},
		{Input, `allow ssh max 20 ‸per source`, `expected connections`, "write max 20 connections per source"},
		{Input, `allow ssh max 2‸`, `expected connections`, "write max 2 connections"},
		{Input, `allow ssh max 2 ‸log "x"`, `expected connections`, "write max 2 connections"},
		{Input, `drop ssh ‸max 5 connections`, `max cannot be used with drop`, "allow"},
		{Input, `drop ssh log ‸smtp`, `in quotes`, `log "smtp"`},
		{Input, `drop ssh ‸"smtp"`, `unexpected the text "smtp"`, "log"},
		{Input, `drop ssh log ‸"smtp`, `unterminated quote`, ""},
		{Input, `drop ssh log ‸"a #b"`, `unterminated quote`, "comment in YAML"},
		{Input, `drop ssh log ‸"a\b"`, `log prefix contains`, "remove it"},
		{Input, `drop ssh log ‸"$x"`, `log prefix contains`, "remove it"},
		{Input, `drop ssh log ‸"ü"`, `log prefix contains`, "ASCII"},
		{Input, `drop ssh log ‸'a"b'`, `log prefix contains`, "remove it"},
		{Input, `'drop ssh log ‸"` + strings.Repeat("x", 119) + `"'`, `119 characters`, "at most 118"},
		{Input, `allow ssh ‸drop http`, `second action "drop"`, "two rules"},
		{Input, `allow ssh ‸and http`, `unknown word "and"`, "write a list"},
		{Input, `allow ssh ‸and`, `unknown word "and"`, "write a list"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			wantError(t, c.rule, c.message, c.hint, func(text string) error {
				_, err := parseRule(t, c.hook, text)
				return shift(err, c.hook)
			})
		})
	}
}

// shift moves the errors of parseRule to where the rule alone has them.
func shift(err error, hook Hook) error {
	var errs Errors
	if errors.As(err, &errs) {
		for _, e := range errs {
			e.Pos.Line -= strings.Count(names, "\n") + 3
			e.Pos.Column -= len("    - ")
		}
	}
	return err
}

// Columns point into quoted and folded scalars at the source character.
func TestColumnsInScalars(t *testing.T) {
	for _, rule := range []string{
		`'allow ‸htpp from served'`,
		`"allow ‸htpp from served"`,
		`"\x61llow \u0020 ‸htpp"`,
		`'allow tcp/25 log ''x'' from ‸served2'`,
		"allow\n        ‸htpp from\n        served",
		"'allow\n\n        ‸htpp from served'",
		"\"allow \\\n        ‸htpp from served\"",
		">-\n      allow\n      ‸htpp",
		"|\n      allow ssh\n      from ‸htpp",
	} {
		wantError(t, rule, "unknown", "", func(text string) error {
			_, err := parseRule(t, Input, text)
			err = shift(err, Input)
			var errs Errors
			if errors.As(err, &errs) {
				for _, e := range errs {
					if e.Pos.Line > 1 {
						e.Pos.Column += len("    - ")
					}
				}
			}
			return err
		})
	}
}

package policy

import (
	"strings"
	"testing"
)

// TestOtherTools writes rules as iptables, nft, ufw and firewalld do: each error has the line
// to write, and that line is a rule.
func TestOtherTools(t *testing.T) {
	for rule, hint := range map[string]string{
		`allow ‸port 8080`:                                 "write allow tcp/8080, or udp/8080",
		`allow ‸dport 22`:                                  "write allow tcp/22, or udp/22",
		`allow ‸ports 80, 443`:                             "write allow [tcp/80, tcp/443]",
		`allow tcp ‸dport 22`:                              "write allow tcp/22",
		`allow tcp ‸22`:                                    "write allow tcp/22",
		`allow ‸22/tcp`:                                    "write tcp/22",
		`allow tcp/80‸,443`:                                "write a list: [tcp/80, tcp/443]",
		`allow http‸, https`:                               "write a list: [http, https]",
		`allow ssh from office‸, 198.51.100.7`:             "write a list: [office, 198.51.100.7]",
		`allow ssh ‸drop`:                                  "write two rules",
		`‸accept ssh`:                                      "write allow ssh",
		`‸ACCEPT ssh`:                                      "write allow ssh",
		`‸ssh accept`:                                      "write allow ssh",
		`‸deny 23/tcp`:                                     "write drop tcp/23",
		`‸limit ssh`:                                       "write allow SERVICE limit 6/30s per source",
		`‸tcp dport 22 accept`:                             "write allow tcp/22",
		`‸tcp dport 22 counter accept`:                     "write allow tcp/22",
		`‸tcp dport { 80, 443 } accept`:                    "write allow [tcp/80, tcp/443]",
		`‸udp dport 6000-6100 reject`:                      "write reject udp/6000-6100",
		`‸ip saddr 203.0.113.0/24 ssh accept`:              "write allow ssh from 203.0.113.0/24",
		`‸-A INPUT -p tcp --dport 22 -j ACCEPT`:            "write allow tcp/22",
		`‸-A INPUT -p udp --dport 6:9 -j DROP`:             "write drop udp/6-9",
		`‸-A FORWARD -p tcp --dport 22 -j DROP`:            "a rule begins with",
		`‸-A INPUT -i lo -j ACCEPT`:                        "loopback is always allowed",
		`‸iifname "lo" accept`:                             "loopback is always allowed",
		`‸ct state established,related accept`:             "remove it: the packets of an allowed connection",
		`allow ‸ct state established`:                      "remove it: the packets of an allowed connection",
		`allow ‸established`:                               "remove it: the packets of an allowed connection",
		`allow ‸loopback`:                                  "loopback is always allowed",
		`allow ‸all`:                                       "write any",
		`allow ‸openssh`:                                   "write ssh",
		`allow ssh from ‸anywhere`:                         "write any",
		`allow ssh from ‸!office`:                          "write not office",
		`allow ssh from [0.0.0.0/0, ‸"::/0"]`:              "write ::/0 without quotes",
		`allow ssh from ‸country NO`:                       "{countries: [NO]}",
		`allow ssh ‸src office`:                            "write allow ssh from office",
		`allow ssh ‸saddr 203.0.113.7`:                     "write allow ssh from 203.0.113.7",
		`allow ssh ‸-s 203.0.113.7`:                        "write allow ssh from 203.0.113.7",
		`allow ssh ‸iif eth0`:                              "name the interface in a zone",
		`allow in ‸on eth0 to any port 80`:                 "name the interface in a zone",
		`allow ssh until 2027-01-31T18:00:00Z ‸src office`: "write from WHO",
		`allow ssh ‸comment "the office"`:                  "write a comment after #",
		`allow ssh ‸except office`:                         "write from not WHO",
		`allow ssh ‸for 2h`:                                "by command",
		`drop log ‸prefix "in"`:                            `write log "PREFIX"`,
		`allow ‸proto tcp from any to any`:                 "tcp/80 for TCP and UDP",
		`{‸accept: ssh}`:                                   "as in allow: tcp/8080",
		`{allow: ssh, ‸src: office}`:                       "write from",
		`{allow: ssh, ‸interface: eth0}`:                   "write in: ZONE",
		`{allow: ‸{ports: 22}}`:                            "put the keys of a rule next to each other",
		`allow ssh from ‸203.0.113.1-20`:                   "write 203.0.113.1-203.0.113.20",
		`allow ssh from ‸2001:db8::1-9`:                    "write 2001:db8::1-2001:db8::9",
		`allow ssh from ‸office.example.net`:               "not resolved",
		`allow ‸tcp:80`:                                    "write from or to",
	} {
		t.Run(rule, func(t *testing.T) {
			wantError(t, rule, "", hint, func(rule string) error {
				_, err := parseRule(t, Input, rule)
				return shift(err, Input)
			})
			line, _, _ := strings.Cut(strings.TrimPrefix(hint, "write "), ", or ")
			if action, _, _ := strings.Cut(line, " "); line == hint || action != "allow" && action != "drop" && action != "reject" || strings.Contains(line, "SERVICE") {
				return
			}
			if _, err := parseRule(t, Input, line); err != nil {
				t.Errorf("%s is no rule either: %v", line, err)
			}
		})
	}
}

// TestOtherToolsKeys does the same with keys.
func TestOtherToolsKeys(t *testing.T) {
	const head = "version: 1\n"
	for text, hint := range map[string]string{
		head + "‸incoming: {default: drop}\n":                     "write input",
		head + "‸rules: [allow ssh]\n":                            "write rules: under input, output or forward",
		head + "‸chains: {}\n":                                    "write rules: under input, output or forward",
		head + "input: ‸drop\n":                                   "write default: drop below it",
		head + "input: {default: drop, ‸ports: 22}\n":             "as in - allow tcp/8080",
		head + "input: {default: drop, ‸policy: drop}\n":          "write default",
		head + "forward: {default: drop, ‸accept: ssh}\n":         "as in - allow tcp/8080",
		head + "input: {default: ‸deny}\n":                        "write drop, reject or allow",
		head + "input:\n‸\tdefault: drop\n":                       "use spaces",
		head + "input:\n  default: drop\n  rules:\n  ‸\t- a\n":    "use spaces",
		head + "zones: {wan: ‸eth0}\n":                            "write it as in {interfaces: [",
		head + "sets: {office: {‸cidr: 203.0.113.0/24}}\n":        "write addresses",
		head + "sets: {office: ‸office.example.net}\n":            "not resolved",
		head + "sets: {office: {addresses: ‸203.0.113.1-20}}\n":   "write 203.0.113.1-203.0.113.20",
		head + "sets: {office: [203.0.113.0/24, ‸198.51.100.]}\n": "",
	} {
		t.Run(text, func(t *testing.T) {
			wantError(t, text, "", hint, func(text string) error {
				_, err := Parse("p.yaml", []byte(text))
				return err
			})
		})
	}
}

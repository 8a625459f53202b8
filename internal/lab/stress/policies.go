package stress

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// pair is the two policies of a run, as files.
type pair struct{ files [2]string }

// geography is the country sets of the two policies: words of the language.
type geography [2]string

var (
	fewCountries  = geography{"countries: [MT, SM, VA]", "countries: [MT, SM, LI, IS]"}
	someCountries = geography{"countries: [DE, MT, SM]", "countries: [FR, MT, SM]"}
	manyCountries = geography{"countries: [LU, IS, MT, SM, VA]", "countries: [LI, CY, IS, MT, SM]"}
	wholeEurope   = geography{"continents: [EU]", "countries: [DE, IT, IL]"}
)

// firstPolicy polices all three sections, drops by default, asks for countries,
// limits and offloads.
const firstPolicy = `version: 1
zones:
  wan: { interfaces: [wan0] }
  lan: { interfaces: [lan0] }
sets:
  served: { %[1]s }
  banned: { file: banned-first.txt }
  near: [192.0.2.0/24, "2001:db8:1::/64"]
ban: [banned]
never-ban: [near]
tracking:
  bypass: [%[2]s]
  table: { timeouts: { udp: 77s } }
input:
  default: drop log "in"
  rules:
    - allow [tcp/7000, udp/7000] from served
    - allow tcp/7100-7299 from near
    - allow ssh limit 6/30s per source then ban 10m
    - allow ping limit 20/second
    - allow [smtp, imaps] max 20 connections per source
output:
  default: drop
  rules:
    - allow udp/7000 to served
    - allow [tcp/7104, tcp/7204] to near
forward:
  default: drop
  accelerate: true
  rules:
    - clamp mss from lan to wan
    - allow [tcp/7000, udp/7000] from served to lan
    - allow [tcp/7105, tcp/7205] from wan to 10.77.0.2
    - allow [tcp/7105, tcp/7205] from wan to 2001:db8:77::2
    - allow published [tcp/7106, tcp/7206]
` + redirects

// secondPolicy lets in by default and leaves output alone, so that chains open,
// go and come with every change; rules of one field and of several become sets,
// verdict maps and concatenations.
const secondPolicy = `version: 1
zones:
  outside: { interfaces: [wan0] }
  lan: { interfaces: [lan0], networks: [10.77.0.0/24, "2001:db8:77::/64"] }
sets:
  served: { %[1]s }
  banned: { file: banned-second.txt, counters: true }
  listeners: { endpoints: ["192.0.2.1 tcp/443", "192.0.2.1 udp/443", "[2001:db8:1::1] tcp/443"] }
ban: [banned]
tracking:
  bypass: [%[2]s]
input:
  default: allow
  rules:
    - drop [tcp/7000, udp/7000] from not served
    - reject tcp/8000-8999
    - drop tcp/9001 from 198.51.100.1
    - drop tcp/9002 from 198.51.100.2
    - reject udp/9003 from 198.51.100.3
    - drop ssh from not 192.0.2.0/24 ipv4
forward:
  default: reject
  rules:
    - allow [tcp/7000, udp/7000] from served to lan
    - allow [tcp/7105, tcp/7205] in outside out lan
    - allow published [tcp/7106, tcp/7206]
    - allow any from lan
` + redirects

const redirects = `nat:
  - redirect tcp/7106 in %[3]s to 10.77.0.2:7106
  - redirect tcp/7206 in %[3]s to 10.77.0.2:7206
  - redirect tcp/7106 in %[3]s to [2001:db8:77::2]:7106
  - redirect tcp/7206 in %[3]s to [2001:db8:77::2]:7206
`

// bypass is the services that each policy leaves untracked. Where a policy
// tracks what the other did not, the product waits some seconds with every
// change until connections have been seen, so most runs do without that.
type bypass [2]string

var (
	sameBypass  = bypass{untracked(1), untracked(1)}
	otherBypass = bypass{untracked(1, 2), untracked(1, 3)}
)

func untracked(numbers ...int) string {
	var out []string
	for _, n := range numbers {
		s := services[n]
		out = append(out, fmt.Sprintf("tcp/%d, tcp/%d", s.connectPort(), s.streamPort()))
	}
	return strings.Join(out, ", ")
}

// Of both sets of bans a part lies in the countries that both policies serve.
const (
	bannedFirst  = "62.211.0.0/16\n80.80.224.0/20\n88.203.0.0/17\n198.51.100.0/24\n2001:b70::/32\n2a02:120::/29\n"
	bannedSecond = "46.11.0.0/16\n77.71.128.0/17\n203.0.113.0/24\n2001:db8:ffff::/48\n2a01:110::/31\n"
)

// writePolicies writes the two policies into a folder.
func writePolicies(dir string, where geography, untracked bypass) (pair, error) {
	p := pair{[2]string{filepath.Join(dir, "first.yaml"), filepath.Join(dir, "second.yaml")}}
	for name, text := range map[string]string{
		p.files[0]:                              fmt.Sprintf(firstPolicy, where[0], untracked[0], "wan"),
		p.files[1]:                              fmt.Sprintf(secondPolicy, where[1], untracked[1], "outside"),
		filepath.Join(dir, "banned-first.txt"):  bannedFirst,
		filepath.Join(dir, "banned-second.txt"): bannedSecond,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return p, err
		}
	}
	return p, nil
}

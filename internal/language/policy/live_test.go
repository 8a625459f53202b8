package policy

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestLiveSets: a live list that says within what may stand anywhere, another one only where it
// bans, alone and in what is made of it.
func TestLiveSets(t *testing.T) {
	const fleet = "version: 1\nfleet: example.net\nparts: [p.yaml]\nsets:\n  scan: { url: \"https://lists.example.net/a.txt\", live: true }\n  mon: { url: \"https://lists.example.net/b.txt\", live: true, refresh: 10m, within: 203.0.113.0/24 }\n  all: { union: [scan, banned] }\n  banned: [192.0.2.1]\n"
	for part, want := range map[string]string{
		"ban: [scan, all]\ninput: {default: drop, rules: [drop from scan, reject to 192.0.2.1 from all, allow ssh from mon]}\nnever-ban: mon\nexpect: [deny any from scan]": "",
		"input: {default: drop, rules: [allow ssh from scan]}": "p.yaml:2:47: set \"scan\" is live and has no within, so it can only ban and cannot be used in a rule that does not drop or reject; see fleet.yaml:5:3",
		"input: {default: drop, rules: [allow ssh from all]}":  "p.yaml:2:47: set \"scan\" is live and",
		"input: {default: drop, rules: [drop from not scan]}":  "p.yaml:2:46: set \"scan\" is live and has no within, so it can only ban and cannot be used after not",
		"never-ban: scan": "cannot be used in never-ban",
		"sets: {a: {union: [banned], except: [all]}}":                        "p.yaml:2:38: set \"scan\" is live and has no within, so it can only ban and cannot be used in except",
		"zones: {wan: [eth0]}\nnat: [masquerade from scan out wan]":          "cannot be used in nat",
		"exceptions: {who: scan}":                                            "cannot be used in exceptions",
		"sets: {a: {live: true, addresses: [192.0.2.1]}}":                    "p.yaml:2:12: live without url",
		"sets: {a: {url: \"https://x.example.net/\", within: 192.0.2.0/24}}": "within without hosts, guests or live: true",
	} {
		_, err := Reading{Texts: map[string][]byte{"fleet.yaml": []byte(fleet), "p.yaml": []byte("version: 1\n" + part + "\n")}, View: &View{Host: "web-1"}}.Load("fleet.yaml")
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", part, err)
		case want != "" && (err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "\n  hint: ", "; "), want)):
			t.Errorf("%s: %v, want %s", part, err, want)
		}
	}
	alone := "version: 1\nsets: {scan: {url: \"https://lists.example.net/a.txt\", live: true}}\n"
	if _, err := (Reading{Texts: map[string][]byte{"a.yaml": []byte(alone)}}).Load("a.yaml"); err == nil || !strings.Contains(err.Error(), "a.yaml:2:55: live is only for sets of a fleet, whose controller downloads them; this is the policy of one host") {
		t.Errorf("%v", err)
	}
	// On a host what was signed is at hand, however often it is asked for; and who reads the
	// fleet for its controller has the lists of parts.
	part := "version: 1\nhosts: role=db\nsets: {tor: {url: \"https://lists.example.net/tor.txt\", live: true}}\n"
	texts := map[string][]byte{
		"fleet.yaml": []byte(fleet), "p.yaml": []byte(part),
		"host.yaml": []byte("version: 1\nfleet: fleet.yaml\nhost: db-1\nlabels: {role: db}\nlists: trust/lists\n"),
	}
	p, err := Reading{Texts: texts}.Load("host.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"scan", "mon", "tor"} {
		s := p.Set(name)
		if want := filepath.Join("trust/lists", SignedList(name, s.URL.Text)); !s.Live || s.File == nil || s.FilePath() != want {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if p, err = (Reading{Texts: texts}).ReadFleet("fleet.yaml"); err != nil || len(p.Fleet.Parts) != 1 || len(p.Fleet.Parts[0].Live) != 1 || p.Fleet.Parts[0].Live[0].Name != "tor" {
		t.Errorf("%v: %+v", err, p)
	}
}

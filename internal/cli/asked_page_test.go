package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sluice/internal/cli/command"
)

// TestPagesOfQueryAndDiffAreTrue holds what the manual and the README show of query
// and diff to what these print. The changed policies are those that the pages tell of
// in words.
func TestPagesOfQueryAndDiffAreTrue(t *testing.T) {
	manual := "../../docs/asking.md"
	first := indented(t, manual, "\n## One packet: sluice explain\n")
	blocks := append(indented(t, manual, "\n## All packets: sluice query\n"), indented(t, manual, "\n## A change: sluice diff\n")...)
	blocks = append(blocks, indented(t, "../../README.md", "\n## Ask it\n")...)
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(readme), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"web.yaml": first[0], "scanners.txt": first[1], "policy.yaml": example,
		"web2.yaml": strings.NewReplacer("ssh from office", "ssh from [office, italy]", "allow web from", "allow [web, udp/443] from", "tcp/8080 from office", "tcp/8080 from 203.0.113.0/25").Replace(first[0]),
		"new.yaml":  strings.NewReplacer("ssh from office", "ssh from [office, italy]", "  europe:", "  italy: { countries: [IT] }\n  europe:").Replace(example),
		"gateway.json": `{"known": true, "forwarding4": true, "default-route": ["eth0"], "interfaces": [
		{"name": "eth0", "index": 2, "up": true, "addresses": ["198.51.100.1/24", "2001:db8:100::1/64"]},
		{"name": "lan0", "index": 3, "up": true, "addresses": ["10.20.0.1/24"]}]}`,
		"server.json": `{"known": true, "default-route": ["eth0"], "interfaces": [
		{"name": "eth0", "index": 2, "up": true, "addresses": ["198.51.100.1/24", "2001:db8:100::1/64"]}]}`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shown := map[string]int{}
	for _, block := range blocks {
		line, want, _ := strings.Cut(block, "\n")
		words, is := strings.CutPrefix(line, "$ sluice ")
		if !is || strings.HasPrefix(words, "explain ") {
			continue
		}
		var args []string
		for _, word := range regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(words, -1) {
			args = append(args, strings.Trim(word, `"`))
		}
		shown[args[0]]++
		host := "gateway.json"
		if args[1] == "policy.yaml" { // the README's
			host = "server.json"
		}
		var out, errOut strings.Builder
		command.Run(Root(), append(args, "--host", host, "--state-dir", "state"), nil, &out, &errOut)
		if got := out.String(); strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("sluice %s\n%s%s\nthe page has\n%s", words, got, errOut.String(), want)
		}
	}
	if shown["query"] < 4 || shown["diff"] < 2 {
		t.Errorf("the pages show %v", shown)
	}
}

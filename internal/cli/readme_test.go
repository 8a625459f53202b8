package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/internal/cli/command"
)

// What the README shows of explain, query and diff is what these print. The changed
// policy is the one that the page tells of in words.
func TestReadmeAsks(t *testing.T) {
	blocks := indented(t, "../../README.md", "\n## Ask it\n")
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(readme), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"policy.yaml": example,
		"new.yaml":    strings.NewReplacer("ssh from office", "ssh from [office, italy]", "  europe:", "  italy: { countries: [IT] }\n  europe:").Replace(example),
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
		if !is {
			continue
		}
		var args []string
		for _, word := range regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(words, -1) {
			args = append(args, strings.Trim(word, `"`))
		}
		shown[args[0]]++
		var out, errOut strings.Builder
		command.Run(Root(), append(args, "--host", "server.json", "--state-dir", "state"), nil, &out, &errOut)
		if got := out.String(); strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("sluice %s\n%s%s\nthe page has\n%s", words, got, errOut.String(), want)
		}
	}
	if shown["explain"] < 1 || shown["query"] < 1 || shown["diff"] < 1 {
		t.Errorf("the page shows %v", shown)
	}
}

// indented gives the blocks of a page's section that are set off by four blanks.
func indented(t *testing.T, file, heading string) []string {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), heading)
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatalf("%s has no section %q", file, strings.TrimSpace(heading))
	}
	var blocks []string
	for line := range strings.SplitSeq("\n"+section, "\n") {
		text, is := strings.CutPrefix(line, "    ")
		switch {
		case is && len(blocks) > 0:
			blocks[len(blocks)-1] += text + "\n"
		case line == "" && len(blocks) > 0:
			blocks[len(blocks)-1] += "\n"
		default:
			blocks = append(blocks, "")
		}
	}
	for i := range blocks {
		blocks[i] = strings.Trim(blocks[i], "\n") + "\n"
	}
	return slices.DeleteFunc(blocks, func(b string) bool { return b == "\n" })
}

package cli

import (
	"os"
	"slices"
	"strings"
	"testing"

	"sluice/internal/cli/command"
)

// What the manual and the README show of explain is what explain prints.
func TestPagesOfExplainAreTrue(t *testing.T) {
	manual := indented(t, "../../docs/asking.md", "\n## One packet: sluice explain\n")
	if len(manual) < 4 {
		t.Fatalf("the manual has %d blocks", len(manual))
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(readme), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	asked := slices.DeleteFunc(indented(t, "../../README.md", "\n## Ask it\n"), func(b string) bool { return !strings.HasPrefix(b, "$ sluice explain") })
	if len(asked) == 0 {
		t.Fatal("the README asks nothing")
	}
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"web.yaml": manual[0], "scanners.txt": manual[1], "policy.yaml": example, "facts.json": `{"known": true, "forwarding4": true, "default-route": ["eth0"], "interfaces": [
		{"name": "eth0", "index": 2, "up": true, "addresses": ["198.51.100.1/24", "2001:db8:100::1/64"]},
		{"name": "lan0", "index": 3, "up": true, "addresses": ["10.20.0.1/24"]}]}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, block := range append(manual[2:], asked...) {
		asked, want, _ := strings.Cut(block, "\n")
		words, is := strings.CutPrefix(asked, "$ sluice ")
		if !is {
			t.Errorf("no command: %s", asked)
			continue
		}
		var out, errOut strings.Builder
		command.Run(Root(), append(strings.Fields(words), "--host", "facts.json", "--state-dir", "state"), nil, &out, &errOut)
		if got := out.String(); strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("sluice %s\n%s%s\nthe manual has\n%s", words, got, errOut.String(), want)
		}
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

package cli

import (
	"os"
	"strings"
	"testing"

	"sluice/internal/cli/command"
)

// TestPromises holds the section of the manual about sluice test to what the
// command prints. The policy is that of the page's first section.
func TestPromises(t *testing.T) {
	page, err := os.ReadFile("../../docs/asking.md")
	if err != nil {
		t.Fatal(err)
	}
	first := setOff(t, string(page), "One packet: sluice explain")
	here := setOff(t, string(page), "Promises: sluice test")
	if len(here) != 2 {
		t.Fatalf("the section has %d blocks", len(here))
	}
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"web.yaml": first[0], "scanners.txt": first[1], "promises.yaml": here[0], "facts.json": `{"known": true, "default-route": ["eth0"], "interfaces": [
		{"name": "eth0", "index": 2, "up": true, "addresses": ["198.51.100.1/24", "2001:db8:100::1/64"]},
		{"name": "lan0", "index": 3, "up": true, "addresses": ["10.20.0.1/24"]}]}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	asked, want, _ := strings.Cut(here[1], "\n")
	var out, errOut strings.Builder
	status := command.Run(Root(), append(strings.Fields(strings.TrimPrefix(asked, "$ sluice ")), "--host", "facts.json", "--state-dir", "state"), nil, &out, &errOut)
	if got := out.String(); status != 1 || strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("%s\n%s%s\nthe manual has\n%s", asked, got, errOut.String(), want)
	}
}

// setOff gives the blocks of a section that are set off by four blanks.
func setOff(t *testing.T, page, heading string) (blocks []string) {
	t.Helper()
	_, section, found := strings.Cut(page, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("the page has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var block strings.Builder
	for line := range strings.SplitSeq(section+"\nend", "\n") {
		text, is := strings.CutPrefix(line, "    ")
		switch {
		case is:
			block.WriteString(text + "\n")
		case line == "" && block.Len() > 0:
			block.WriteString("\n")
		case block.Len() > 0:
			blocks = append(blocks, strings.TrimRight(block.String(), "\n")+"\n")
			block.Reset()
		}
	}
	return blocks
}

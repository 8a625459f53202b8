package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDayIsRun holds the commands of docs/how-to/day.md to those that the script day runs.
func TestDayIsRun(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/day.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("testdata/script/day.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var shown, run []string
	for _, m := range regexp.MustCompile(`(?m)^ +\$ sudo sluice (.*)$`).FindAllStringSubmatch(string(page), -1) {
		shown = append(shown, m[1])
	}
	told := false // behind the first line that is of the page
	for line := range strings.Lines(string(script)) {
		told = told || strings.HasPrefix(line, "# A customer calls")
		if _, words, is := strings.Cut(line, " sluice "); is && told && strings.HasSuffix(line, " --netns $NETNS\n") {
			run = append(run, strings.ReplaceAll(strings.TrimSuffix(words, " --netns $NETNS\n"), "'", `"`))
		}
	}
	slices.Sort(shown)
	slices.Sort(run)
	if len(shown) < 8 || !slices.Equal(shown, run) {
		t.Errorf("the page shows\n  %s\nand the script runs\n  %s", strings.Join(shown, "\n  "), strings.Join(run, "\n  "))
	}
}

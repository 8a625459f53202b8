package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mostWords is how long the manual may be: who adds a page shortens others.
const mostWords = 25_000

// unread is what make generate writes, and what pages say to their test alone.
var unread = regexp.MustCompile(`(?s)<!-- figures: .*?<!-- end of figures -->|<!-- .*?-->`)

// TestWords counts what is written by hand: all but the reference, the commands and tables of figures.
func TestWords(t *testing.T) {
	sum := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(filepath.Clean(page))
		if err != nil {
			t.Fatal(err)
		}
		sum += len(strings.Fields(unread.ReplaceAllString(string(text), "")))
	}
	if sum > mostWords || sum < mostWords/2 {
		t.Errorf("the manual has %d words; it may have %d", sum, mostWords)
	}
	t.Logf("%d words", sum)
}

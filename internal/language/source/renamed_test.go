package source

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice"
)

// row is one of the table as it is recorded.
func (r *Renamed) row() string {
	return strings.Join([]string{r.Of, r.Shape, r.Old, r.New, r.Since, r.On}, " | ")
}

// missing are the rows that were recorded and are gone, though their words are no errors yet.
func missing(recorded []string, table []Renamed) (out []string) {
	for _, row := range recorded {
		has := func(r Renamed) bool { return r.row() == row }
		var was Renamed
		for i, to := range []*string{&was.Of, &was.Shape, &was.Old, &was.New, &was.Since, &was.On} {
			*to = strings.Split(row, " | ")[i]
		}
		if !slices.ContainsFunc(table, has) && !was.Over() {
			out = append(out, row)
		}
	}
	return out
}

// TestRecorded holds the table to the one that was recorded: who renames a word adds the row, and
// none goes before its year is over.
func TestRecorded(t *testing.T) {
	text, err := os.ReadFile("testdata/renamed.txt")
	if err != nil {
		t.Fatal(err)
	}
	var recorded []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			recorded = append(recorded, line)
		}
	}
	for _, row := range missing(recorded, Renames) {
		t.Errorf("the old word lives for a year, and its row is gone or another one: %s", row)
	}
	for _, r := range Renames {
		if !slices.Contains(recorded, r.row()) {
			t.Errorf("testdata/renamed.txt lacks the row %s", r.row())
		}
	}
}

func TestMissing(t *testing.T) {
	day := func(years, days int) string { return sluice.Released.AddDate(years, 0, days).Format(time.DateOnly) }
	young := Renamed{"Sluice policy", "policy", "groups", "sets", "0.2.0", day(-1, 1)}
	old := Renamed{"Sluice policy", "", "permit", "allow", "0.1.0", day(-1, 0)}
	other := young
	other.New = "lists"
	if young.Over() || !old.Over() {
		t.Errorf("over: %t, %t, want false, true", young.Over(), old.Over())
	}
	recorded := []string{young.row(), old.row()}
	for name, c := range map[string]struct {
		table []Renamed
		want  []string
	}{
		"all there":         {[]Renamed{young, old}, nil},
		"an old one gone":   {[]Renamed{young}, nil},
		"a young one gone":  {[]Renamed{old}, []string{young.row()}},
		"a young one other": {[]Renamed{other, old}, []string{young.row()}},
	} {
		if got := missing(recorded, c.table); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

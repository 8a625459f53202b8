package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/internal/agent/config"
	"sluice/internal/cli/command"
	"sluice/internal/language/policy"
	"sluice/internal/language/source"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// renamedVariable has scripts take renamed for the table of old words.
const renamedVariable = "SLUICE_TEST_RENAMED"

// renamed are words that no version has renamed, of each kind, by which tests try what happens to
// the old ones; those of the year 2020 are errors.
var renamed = []source.Renamed{
	{Of: "Sluice policy", Shape: "policy", Old: "groups", New: "sets", Since: "0.2.0", On: "2026-11-01"},
	{Of: "Sluice policy", Shape: "log-to", Old: "journal", New: "netlink", Since: "0.2.0", On: "2026-11-01"},
	{Of: "Sluice policy", Shape: "", Old: "permit", New: "allow", Since: "0.2.0", On: "2026-11-01"},
	{Of: "Sluice policy", Shape: "rule", Old: "permit", New: "allow", Since: "0.2.0", On: "2026-11-01"},
	{Of: "Sluice policy", Shape: "section", Old: "otherwise", New: "default", Since: "0.2.0", On: "2026-11-01"},
	{Of: "Sluice policy", Shape: "section", Old: "lines", New: "rules", Since: "0.1.0", On: "2020-02-29"},
	{Of: "Sluice policy", Shape: "", Old: "permitted", New: "allow", Since: "0.1.0", On: "2020-02-29"},
	{Of: "Sluice policy", Shape: "fleet", Old: "members", New: "parts", Since: "0.2.0", On: "2026-11-01"},
	{Of: "Sluice agent", Shape: "agent", Old: "readers", New: "may-read", Since: "0.2.0", On: "2026-11-01"},
	{Of: "sluice check", Old: "--facts", New: "--host", Since: "0.2.0", On: "2026-11-01"},
	{Of: "sluice check", Old: "--describe", New: "--host", Since: "0.1.0", On: "2020-02-29"},
}

// inOldWords is a text with the old word of each row of a file's language, by language and shape.
var inOldWords = map[string]string{
	"Sluice policy/policy/groups":     "version: 1\ngroups: {a: [192.0.2.1]}\ninput: {default: drop, rules: [allow ssh from a]}\n",
	"Sluice policy/log-to/journal":    "version: 1\nlog: journal\ninput: {default: drop, rules: [allow ssh log]}\n",
	"Sluice policy//permit":           "version: 1\ninput: {default: drop, rules: [permit ssh]}\n",
	"Sluice policy/rule/permit":       "version: 1\ninput: {default: drop, rules: [{permit: ssh, from: 192.0.2.1}]}\n",
	"Sluice policy/section/otherwise": "version: 1\ninput: {otherwise: reject, rules: [allow ssh]}\n",
	"Sluice policy/fleet/members":     "version: 1\nfleet: example.net\nmembers: [web.yaml]\n",
	"Sluice agent/agent/readers":      "version: 1\nreaders: [root]\n",
}

// TestRenamed compiles a text with each old word that is taken yet, those of the product too, and
// the same with the new word.
func TestRenamed(t *testing.T) {
	own := source.Renames
	source.Renames = slices.Concat(own, renamed)
	t.Cleanup(func() { source.Renames = own })
	for _, r := range source.Renames {
		if r.Over() || strings.HasPrefix(r.Old, "--") { // flags that are none end each command
			continue
		}
		name := strings.Join([]string{r.Of, r.Shape, r.Old}, "/")
		text := inOldWords[name]
		now := strings.Replace(text, r.Old, r.New, 1)
		if text == now {
			t.Errorf("write a text with the old word into inOldWords: %s", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			switch {
			case r.Of == "Sluice agent":
				was, err := config.Parse("agent.yaml", []byte(text))
				if err != nil || len(was.OldWords) != 1 {
					t.Fatalf("%v, %v", was, err)
				}
				is, err := config.Parse("agent.yaml", []byte(now))
				if err != nil || len(is.OldWords) != 0 {
					t.Fatalf("%v, %v", is, err)
				}
				same := cmp.Options{cmpopts.IgnoreUnexported(config.Config{}), cmpopts.IgnoreFields(config.Config{}, "OldWords"), cmpopts.IgnoreTypes(source.Pos{})}
				if d := cmp.Diff(is, was, same, cmpopts.EquateComparable(is.Metrics)); d != "" {
					t.Errorf("the new word and the old one:\n%s", d)
				}
				return
			case r.Shape == "fleet":
			default:
				if is, was := compiled(t, now), compiled(t, text); is != was {
					t.Errorf("the new word and the old one:\n%s", cmp.Diff(is, was))
				}
			}
			is, err := policy.Format("policy.yaml", []byte(now))
			if err != nil {
				t.Fatal(err)
			}
			was, err := policy.Format("policy.yaml", []byte(text))
			if err != nil || !bytes.Equal(is, was) {
				t.Errorf("sluice fmt: %s, %v, want %s", was, err, is)
			}
		})
	}
}

// compiled is what a policy becomes, which says its lines as they would be written now.
func compiled(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{"policy.yaml": text, "facts.json": `{"version": 1, "known": true}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, errOut bytes.Buffer
	if status := command.Run(Root(), []string{"compile", "policy.yaml", "--host", "facts.json", "--state-dir", dir}, nil, &out, &errOut); status != 0 {
		t.Fatalf("exit status %d: %s", status, &errOut)
	}
	return out.String()
}

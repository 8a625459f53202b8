package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/classes"
	"sluice/internal/fleet/inventory"
	"sluice/internal/language/source"
	"sluice/internal/prove/query"
)

func newDiff() *cobra.Command {
	var base string
	var markdown bool
	cmd := &cobra.Command{
		Use:   "diff --base REVISION",
		Short: "Show what a change opens and closes, on which hosts",
		Long: `Compares the policy of each host in a git revision with the one in the folder now, by what
they mean: which packets are now allowed that were not, and the reverse, as "sluice diff" does,
for all packets. It prints classes of hosts, and those that change alike only once. Hosts
and the contents of sets come from the inventory of each side; facts are today's. Lists are
not downloaded.

With --markdown the output suits a comment on a pull request, with an example and the
deciding lines of each difference. --json has these too.

Exit status: 0 nothing opens, 1 something does, 2 bad use or a bad policy.
` + repositoryFiles,
		Example: `  sluice-controller diff --base main
  sluice-controller diff --base origin/main --markdown --repository fleet`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if markdown && command.JSON(cmd) {
				return errors.New("--markdown and --json exclude each other")
			}
			return runDiff(cmd, base, markdown)
		},
	}
	addRepository(cmd.Flags())
	cmd.Flags().StringVar(&base, "base", "", "compare with `REVISION` of git")
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print Markdown for a pull request")
	command.Must(cmd.MarkFlagRequired("base"))
	return cmd
}

// changeJSON is what becomes otherwise for some hosts.
type changeJSON struct {
	For         string            `json:"for"`
	Hosts       []string          `json:"hosts"`
	Opens       bool              `json:"opens"`
	Brief       []query.BriefLine `json:"brief"`
	Differences []query.Change    `json:"differences"`
	Settings    []string          `json:"settings"`
}

// comparedJSON is what "diff --json" prints.
type comparedJSON struct {
	Base      string       `json:"base"`
	Opens     bool         `json:"opens"`
	Changes   []changeJSON `json:"changes"`
	Unchanged int          `json:"unchanged"` // hosts
	Joined    []string     `json:"joined"`
	Left      []string     `json:"left"`
}

func runDiff(cmd *cobra.Command, base string, markdown bool) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	next, err := classify(ctx, cmd)
	if err != nil {
		return err
	}
	if err := next.sound(); err != nil {
		return err
	}
	files, err := checkOut(ctx, repository(cmd), base)
	if err != nil {
		return err
	}
	defer files.Close()
	inv, err := inventoryOf(files, next.Inventory)
	if err != nil {
		return fmt.Errorf("in revision %s: %w", base, err)
	}
	before, err := classes.Read(repository(cmd), files, inv, next.Sources)
	var old []*classes.Class
	var found []classes.Found
	if err == nil {
		old, found, err = before.Classes(ctx)
	}
	if err == nil {
		err = (&reading{before, old, found}).sound()
	}
	if err != nil {
		return fmt.Errorf("in revision %s: %w", base, err)
	}
	d, err := next.Compare(ctx, next.classes, before, old, counting(cmd, "compare", len(next.classes)))
	if err != nil {
		return err
	}
	if err := printCompared(cmd, base, d, markdown); err != nil {
		return err
	}
	if d.Opens() {
		return command.ErrFound
	}
	return nil
}

// inventoryOf is the inventory of a revision, with the facts that hosts have now. Where it has
// none, that of now says who was there.
func inventoryOf(files *revision, now *inventory.Inventory) (*inventory.Inventory, error) {
	data, err := source.ReadFrom(files.Open, filepath.Join(files.dir, classes.InventoryFile), 1<<30)
	if errors.Is(err, fs.ErrNotExist) {
		return now, nil
	}
	if err != nil {
		return nil, err
	}
	inv, err := inventory.Parse(filepath.Join(files.dir, classes.InventoryFile), data)
	if err != nil {
		return nil, err
	}
	facts := map[string]*inventory.Host{}
	for i := range now.Hosts {
		facts[now.Hosts[i].Name] = &now.Hosts[i]
	}
	for i := range inv.Hosts {
		h := &inv.Hosts[i]
		if h.Facts = ""; facts[h.Name] != nil {
			h.Facts = facts[h.Name].Facts
		}
	}
	return inv, nil
}

func comparedOf(base string, d *classes.Comparison) *comparedJSON {
	out := &comparedJSON{base, d.Opens(), []changeJSON{}, d.Unchanged, append([]string{}, d.Joined...), append([]string{}, d.Left...)}
	for _, c := range d.Changes {
		out.Changes = append(out.Changes, changeJSON{c.For, c.Hosts, c.Opens(), c.Brief(), append([]query.Change{}, c.Changes...), append([]string{}, c.Settings...)})
	}
	return out
}

func printCompared(cmd *cobra.Command, base string, d *classes.Comparison, markdown bool) error {
	w := cmd.OutOrStdout()
	if command.JSON(cmd) {
		return command.PrintJSON(w, comparedOf(base, d))
	}
	if markdown {
		printMarkdown(w, base, d)
		return nil
	}
	for _, c := range d.Changes {
		for _, l := range c.Brief() {
			style := "1"
			switch {
			case l.Kind.Opens():
				style = "1;31"
			case l.Kind == query.Closed || l.Kind == query.Tightened:
				style = "1;32"
			}
			fmt.Fprintf(w, "%s: %s\n", command.Paint(w, "1", c.For), command.Paint(w, style, l.String()))
		}
		for _, s := range c.Settings {
			fmt.Fprintf(w, "%s: setting: %s\n", command.Paint(w, "1", c.For), s)
		}
	}
	for _, line := range comings(d) {
		fmt.Fprintln(w, line)
	}
	if d.Unchanged > 0 {
		fmt.Fprintf(w, "%s: no difference\n", english.Plural(d.Unchanged, "host"))
	}
	return nil
}

// comings says which hosts there are, and were, in one of both alone.
func comings(d *classes.Comparison) (out []string) {
	const most = 5
	if len(d.Joined) > 0 {
		out = append(out, fmt.Sprintf("new in the inventory: %s", english.Few(d.Joined, most)))
	}
	if len(d.Left) > 0 {
		out = append(out, fmt.Sprintf("no longer in the inventory: %s", english.Few(d.Left, most)))
	}
	return out
}

func printMarkdown(w io.Writer, base string, d *classes.Comparison) {
	fmt.Fprintf(w, "### What changes against `%s`\n\n", strings.ReplaceAll(base, "`", "'"))
	var blocks []string
	if lines := comings(d); len(lines) > 0 {
		blocks = append(blocks, "- "+strings.Join(lines, "\n- ")+"\n")
	}
	if len(d.Changes) == 0 {
		blocks = append(blocks, "No difference: every packet is treated alike on all hosts.\n")
	} else if d.Unchanged > 0 {
		blocks = append(blocks, fmt.Sprintf("Nothing changes for %s.\n", english.Plural(d.Unchanged, "other host")))
	}
	for _, c := range d.Changes {
		blocks = append(blocks, fmt.Sprintf("#### %s\n\n%s", english.Sentence(c.For), c.Markdown()))
	}
	fmt.Fprint(w, strings.Join(blocks, "\n"))
}

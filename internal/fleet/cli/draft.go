package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
)

func newDraft() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "draft [ID]",
		Short: "List the drafts that people have saved, and take one into the repository",
		Long: `Lists the drafts of the policy that the controller keeps, the newest first. With an ID it shows
how the draft changes the files of the repository, and what that opens and closes, on which
hosts of the inventory: computed here, whatever the controller reports. The ID is a hash of the
content, so what is shown is what was saved.

With --roll-out the controller signs it and starts the roll-out, if fleet.yaml says
signing: controller and the controller was started with --sign-in.

With --into the files are written into a repository, where "check", "sign" and git find them.
If a file there differs from the bundle on which the draft was made, nothing is written, unless
--force is given. "sign ID" writes and signs in one step.

Exit status: 0 fine, 2 bad use, an error in the draft, or no controller answers.
` + repositoryFiles,
		Example: "  sluice-controller draft\n  sluice-controller draft 3f0c52a1b97e44d08e15c0d2774ab963\n  sluice-controller draft 3f0c52a1b97e44d08e15c0d2774ab963 --into .",
		Args:    cobra.MaximumNArgs(1),
		RunE:    runDraft,
	}
	addController(cmd)
	addRepository(cmd.Flags())
	cmd.Flags().String("into", "", "write the files into the repository `DIR`")
	cmd.Flags().Bool("roll-out", false, "have the controller sign it and roll it out, if fleet.yaml says signing: controller")
	cmd.Flags().Bool("force", false, "overwrite files that have changed since")
	command.Must(cmd.MarkFlagDirname("into"))
	cmd.MarkFlagsMutuallyExclusive("into", "repository")
	cmd.MarkFlagsMutuallyExclusive("into", "roll-out")
	return cmd
}

func runDraft(cmd *cobra.Command, args []string) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	into, _ := cmd.Flags().GetString("into")
	if len(args) == 0 {
		if into != "" {
			return errors.New("--into is for one draft: name its ID")
		}
		return listDrafts(ctx, cmd)
	}
	if rollOut, _ := cmd.Flags().GetBool("roll-out"); rollOut {
		made, err := controllerOf(cmd).RollOutDraft(ctx, args[0], "")
		switch {
		case err != nil:
			return waiting(err)
		case command.JSON(cmd):
			return command.PrintJSON(cmd.OutOrStdout(), made)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "bundle %d is signed, and roll-out %d has begun\n", made.Bundle, made.ID)
		return nil
	}
	if into != "" {
		command.Must(cmd.Flags().Set("repository", into))
	}
	d, err := readDraft(ctx, cmd, args[0])
	if err != nil {
		return err
	}
	if err := d.show(ctx, cmd); err != nil || into == "" {
		return err
	}
	force, _ := cmd.Flags().GetBool("force")
	if err := d.write(force); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s written into %s: review them, then sign them with sluice-controller sign\n", english.Plural(len(d.Files), "file"), into)
	return nil
}

func listDrafts(ctx context.Context, cmd *cobra.Command) error {
	found, err := controllerOf(cmd).Drafts(ctx)
	if err != nil {
		return hinted(err)
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), found)
	}
	if len(found.Drafts) == 0 {
		fmt.Fprintln(cmd.OutOrStdout(), "there are no drafts")
		return nil
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "id\tby\tat\tbundle\tfiles\ttitle")
	for _, d := range found.Drafts {
		files := make([]string, len(d.Files))
		for i, f := range d.Files {
			files[i] = f.Name
		}
		title := d.Title
		if d.Published > 0 {
			title = strings.TrimSpace(fmt.Sprintf("%s (in bundle %d)", title, d.Published))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", command.PlainName(d.Id), command.PlainName(d.By), d.At.Local().Format(time.DateTime),
			d.Bundle, command.PlainName(english.Few(files, 3)), command.PlainName(title))
	}
	return table.Flush()
}

// readDraft asks the controller for a draft, and reads the repository with it.
func readDraft(ctx context.Context, cmd *cobra.Command, id string) (*drafted, error) {
	d, err := controllerOf(cmd).Draft(ctx, id)
	if err != nil {
		return nil, hinted(err)
	}
	return draftIn(repository(cmd), d)
}

// takeDraft shows a draft and writes it into the repository to be signed, where somebody agrees. In a
// trial nothing is written, and nothing is to be signed.
func takeDraft(ctx context.Context, cmd *cobra.Command, id string) (goOn bool, err error) {
	d, err := readDraft(ctx, cmd, id)
	if err != nil {
		return false, err
	}
	trial, _ := cmd.Flags().GetBool("dry-run")
	if trial || !command.JSON(cmd) {
		err = d.show(ctx, cmd)
	} else {
		_, err = d.compared(ctx, cmd)
	}
	if err != nil || trial {
		return false, err
	}
	if yes, _ := cmd.Flags().GetBool("yes"); !yes && len(d.Files) > 0 {
		answer, err := ask(fmt.Sprintf("write this into %s and sign it? [y/N]", d.dir), "")
		if err != nil {
			return false, fmt.Errorf("draft %s must be reviewed before it is signed: %w\nhint: --yes signs it without being asked", d.Id, err)
		}
		if answer != "y" && answer != "Y" && answer != "yes" {
			return false, command.Found("nothing is written or signed")
		}
	}
	return true, d.write(false)
}

// draftJSON is what "draft ID --json" prints.
type draftJSON struct {
	*api.Draft
	Compared *comparedJSON `json:"compared,omitempty"` // by the inventory of the repository
}

// show says how a draft changes the files of the repository, and what that means for hosts.
func (d *drafted) show(ctx context.Context, cmd *cobra.Command) error {
	compared, err := d.compared(ctx, cmd)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if command.JSON(cmd) {
		out := draftJSON{Draft: d.Draft}
		if compared != nil {
			out.Compared = comparedOf(d.dir, compared)
		}
		return command.PrintJSON(w, out)
	}
	fmt.Fprintf(w, "%s by %s at %s, on bundle %d\n", command.Paint(w, "1", "draft "+d.Id), command.Plain(d.By), d.At.Local().Format(time.DateTime), d.Bundle)
	if d.Title != "" {
		fmt.Fprintln(w, command.Plain(d.Title))
	}
	if len(d.Files) == 0 {
		fmt.Fprintf(w, "%s has all of it already\n", d.dir)
		return nil
	}
	if err := d.printTexts(ctx, w); err != nil {
		return err
	}
	if compared == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s without %s its effect on hosts is unknown: sluice-controller inventory writes it\n", command.Paint(cmd.ErrOrStderr(), "33", "warning:"), inventoryFile(cmd))
		return nil
	}
	return printCompared(cmd, d.dir, compared, false)
}

// printTexts prints how the files change, as diff does.
func (d *drafted) printTexts(ctx context.Context, w io.Writer) error {
	text, err := d.textDiff(ctx)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		style := map[byte]string{'+': "32", '-': "31", '@': "36"}[line[0]]
		line = command.Plain(strings.TrimSuffix(line, "\n"))
		if style != "" {
			line = command.Paint(w, style, line)
		}
		fmt.Fprintln(w, line)
	}
	return nil
}

// names are those of the files that the draft changes here.
func (d *drafted) names() (names []string) {
	for _, f := range d.Files {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return names
}

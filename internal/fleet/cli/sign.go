package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/fleet/bundle"
	"sluice/internal/fleet/classes"
	"sluice/internal/fleet/trust"
	"sluice/internal/language/policy"
	"sluice/internal/prove/check"
)

func newSign() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sign [DRAFT]",
		Short: "Sign the policy of a fleet as it is in the repository, or with a draft",
		Long: `Signs fleet.yaml, its parts and the files of their sets as the next bundle, which hosts may
enforce for 90 days. It first shows what has changed since the last one. If nothing has
changed, it extends the last bundle instead. With an inventory, nothing is signed if "check"
finds an error.

Lists that sets take from a "url" without "refresh" are signed too: sign downloads them, and hosts
get them with the bundle. A list that cannot be downloaded, or that has far fewer or far more
addresses than before, stays as it was signed; --force takes it whatever its size, and --offline
downloads none.

If a fleet requires several policy keys, each of the other holders runs "sign" too, on the
same files. No host enforces a bundle before it has all signatures. --floor sets the oldest
bundle that hosts may still enforce; it can never be lowered.

With the ID of a DRAFT saved at the controller, its files are written into the repository
first, as "draft" does. It shows what they change and what that means for hosts, and asks before
it goes on, unless --yes is given.

--restore makes a new incarnation: hosts then accept a controller whose database is older
than what they know.
` + passphraseHelp + `

Exit status: 0 signed; 1 signed, but signatures of others are missing; 2 an error in a
policy, a wrong key, or bad use.
` + repositoryFiles + ` And trust/.`,
		Example: `  sluice-controller sign --key ~/fleet-keys/policy.age
  sluice-controller sign --floor 7
  sluice-controller sign --dry-run --json
  sluice-controller sign 3f0c52a1b97e44d08e15c0d2774ab963`,
		Args: cobra.MaximumNArgs(1),
		RunE: runSign,
	}
	flags := cmd.Flags()
	addRepository(cmd.Flags())
	addController(cmd)
	addKeys(cmd)
	flags.Int64("floor", 0, "let hosts enforce no bundle below `NUMBER`")
	flags.Bool("restore", false, "make a new incarnation, after an older database was restored")
	flags.Int("days", int(trust.BundleFor/(24*time.Hour)), "let the bundle end after `DAYS`")
	addOffline(cmd)
	flags.Bool("force", false, "take lists that have far fewer or far more addresses than before")
	flags.Bool("dry-run", false, "show what would be signed, and sign nothing")
	flags.Bool("yes", false, "sign a draft without being asked")
	cmd.AddCommand(newSignLabels())
	return cmd
}

// signedJSON is what "sign --json" prints.
type signedJSON struct {
	trust.Signed
	Fleet   string   `json:"fleet"`
	Changed []string `json:"changed"` // "+path", "-path", "~path", "~floor", "~incarnation"
	DryRun  bool     `json:"dry-run,omitempty"`
}

func runSign(cmd *cobra.Command, args []string) error {
	r, err := openRepository(cmd)
	if err != nil {
		return err
	}
	now := time.Now()
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	if len(args) == 1 {
		if goOn, err := takeDraft(ctx, cmd, args[0]); err != nil || !goOn {
			return err
		}
	}
	s, err := signingOf(ctx, cmd, r)
	if err != nil {
		return err
	}
	if err := checkFirst(ctx, cmd); err != nil {
		return err
	}
	_, last, err := r.Newest()
	if err != nil {
		return err
	}
	plan, err := r.Plan(s, now)
	if err != nil {
		return err
	}
	out := signedJSON{Signed: plan, Fleet: r.Fleet(), Changed: bundle.Changes(last, s)}
	if out.DryRun, _ = cmd.Flags().GetBool("dry-run"); out.DryRun {
		return reportSigned(cmd, r, &out)
	}
	if !command.JSON(cmd) {
		printPlan(cmd, &out)
	}
	signers, done, err := signersOf(cmd, r.Role("targets").Keys)
	defer done()
	if err != nil {
		return err
	}
	if has, needs := r.Pending(); has > 0 && has < needs && !plan.New && !s.Restore && s.Floor == 0 {
		if err := r.Cosign(signers...); err != nil {
			return err
		}
		newest, _, err := r.Newest()
		if err != nil {
			return err
		}
		out.Bundle = *newest
		out.Signatures, _ = r.Pending()
	} else if out.Signed, err = r.Sign(s, now, signers...); err != nil {
		return err
	}
	return reportSigned(cmd, r, &out)
}

// checkFirst finds the errors of all hosts of the inventory, if there is one. Those of parts
// of some guests stop nobody else: hosts keep what such a part said last.
func checkFirst(ctx context.Context, cmd *cobra.Command) error {
	_, err := os.Stat(filepath.Join(repository(cmd), classes.InventoryFile))
	if errors.Is(err, fs.ErrNotExist) && !cmd.Flags().Changed("inventory") {
		p, err := policy.Reading{Parts: true}.ReadFleet(filepath.Join(repository(cmd), classes.FleetFile))
		if err == nil {
			for _, b := range p.Broken {
				warnBroken(cmd, b.File, b.Errors)
			}
			warnOld(cmd, engine.OldWords(p, nil))
			w := cmd.ErrOrStderr()
			fmt.Fprintf(w, "%s without %s each part is read by itself: errors across parts, such as a name that no part defines, show only on the first hosts of the roll-out\n", command.Paint(w, "33", "warning:"), classes.InventoryFile)
			fmt.Fprintln(w, "hint: once hosts have enrolled, sluice-controller inventory writes it")
		}
		return err
	}
	r, err := classify(ctx, cmd)
	if err != nil {
		return err
	}
	found, wrong, err := r.errors(ctx, cmd)
	for _, f := range found {
		warnOld(cmd, []check.Finding{f.Finding})
	}
	if err != nil || wrong == nil {
		return err
	}
	refused := r.Refuse(found)
	if len(refused) == 0 {
		return wrong
	}
	if r.classes, r.found, err = r.Classes(ctx); err != nil {
		return err
	}
	_, others, err := r.errors(ctx, cmd)
	if err != nil {
		return err
	}
	if others != nil {
		return others
	}
	for _, file := range slices.Sorted(maps.Keys(refused)) {
		warnBroken(cmd, file, refused[file])
	}
	return nil
}

// warnOld names the words of a fleet that are called otherwise now.
func warnOld(cmd *cobra.Command, found []check.Finding) {
	for _, f := range found {
		if f.Code == engine.OldWord {
			w := cmd.ErrOrStderr()
			fmt.Fprintf(w, "%s %s: %s\n", command.Paint(w, "33", "warning:"), f.Pos, f.Message)
		}
	}
}

func warnBroken(cmd *cobra.Command, file string, errs policy.Errors) {
	w := cmd.ErrOrStderr()
	fmt.Fprintf(w, "%s %s has errors, and hosts keep its last correct version:\n  %s\n", command.Paint(w, "33", "warning:"), file, strings.ReplaceAll(errs.Error(), "\n", "\n  "))
}

// errors are what keeps a fleet from being signed, and all that was found.
func (r *reading) errors(ctx context.Context, cmd *cobra.Command) (found []classes.Found, wrong, err error) {
	if found, err = r.Check(ctx, r.classes, counting(cmd, "check", len(r.classes))); err != nil {
		return nil, nil, err
	}
	found = classes.Join(slices.Concat(r.found, found))
	var all []check.Finding
	for _, f := range found {
		all = append(all, f.Finding)
	}
	withRemedies(all)
	return found, check.Errors(all), nil
}

// signingOf is what the files of a repository and the flags say.
func signingOf(ctx context.Context, cmd *cobra.Command, r *trust.Repository) (trust.Signing, error) {
	from, err := newSigning(ctx, cmd, r)
	if err != nil {
		return trust.Signing{}, err
	}
	if has, needs := r.Pending(); has > 0 && has < needs {
		from.offline = true // what the others signed is signed
	}
	s, err := bundle.Read(repository(cmd), r.Fleet(), from.list)
	if err != nil {
		return s, err
	}
	flags := cmd.Flags()
	days, _ := flags.GetInt("days")
	if days < 1 || days > 3660 {
		return s, fmt.Errorf("--days %d: 1 to 3660", days)
	}
	s.For = time.Duration(days) * 24 * time.Hour
	s.Floor, _ = flags.GetInt64("floor")
	s.Restore, _ = flags.GetBool("restore")
	if s.Floor < 0 {
		return s, fmt.Errorf("--floor %d: bundles are numbered from 1", s.Floor)
	}
	return s, nil
}

func printPlan(cmd *cobra.Command, out *signedJSON) {
	w := cmd.OutOrStdout()
	what := fmt.Sprintf("bundle %d of %s", out.Bundle.Number, out.Fleet)
	if !out.New {
		what += ", which nothing has changed since"
	}
	fmt.Fprintf(w, "%s\n", command.Paint(w, "1", what))
	for _, c := range out.Changed {
		colour := map[byte]string{'+': "32", '-': "31", '~': "33"}[c[0]]
		fmt.Fprintf(w, "  %s\n", command.Paint(w, colour, c[:1]+" "+c[1:]))
	}
	fmt.Fprintf(w, "  valid until %s\n", out.Bundle.Expires.Format(time.DateOnly))
	if out.Floor > 0 {
		fmt.Fprintf(w, "  floor %d: no host goes back to a bundle below it\n", out.Floor)
	}
	if out.Incarnation > 1 {
		fmt.Fprintf(w, "  incarnation %d: hosts accept the controller whose database was restored\n", out.Incarnation)
	}
}

func reportSigned(cmd *cobra.Command, r *trust.Repository, out *signedJSON) error {
	if command.JSON(cmd) {
		if err := command.PrintJSON(cmd.OutOrStdout(), out); err != nil {
			return err
		}
	} else if out.DryRun {
		printPlan(cmd, out)
	}
	if out.DryRun {
		return nil
	}
	w := cmd.ErrOrStderr()
	if left := time.Until(r.RootExpires()); left < 60*24*time.Hour {
		fmt.Fprintf(w, "%s root.json ends on %s, and no policy changes after that: sluice-controller key renew\n", command.Paint(w, "33", "warning:"), r.RootExpires().Format(time.DateOnly))
	}
	if missing := out.Needed - out.Signatures; missing > 0 {
		return command.Found(fmt.Sprintf("bundle %d lacks %s: commit trust/, and have the holder of another policy key run sluice-controller sign", out.Bundle.Number, english.Plural(missing, "signature")))
	}
	fmt.Fprintf(w, "signed bundle %d until %s: commit trust/, then sluice-controller publish\n", out.Bundle.Number, out.Bundle.Expires.Format(time.DateOnly))
	return nil
}

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/fetch"
	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
	"sluice/internal/language/lists"
	"sluice/internal/language/policy"
	"sluice/internal/prove/check"
)

func newRefresh() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refresh [SET]...",
		Short: "Download the lists of the running policy and load what changed",
		Long: `Asks the servers of the running policy's lists (sets with "url") whether there are
newer ones: those whose "refresh" is due, or the named ones. A list that is empty
or damaged is refused and the copy stays; so is one whose size can hardly be meant:

- fewer than 80 % of the addresses of the copy in use, in either family; a copy of
  up to ten ranges may lose what it wants;
- more than ten times the addresses of the copy in use, in either family, where
  that is more than an IPv4 /8 or an IPv6 /16 has;
- a range as wide as an IPv4 /7 or an IPv6 /15, or wider, that the copy in use does
  not name. Addresses that no host of the internet has do not count in these two.

--force takes a list of any size. plan and apply refuse the same, warn, and use the
copy. What check warns of under the new lists is told.

What changes is shown first: how many addresses come and go, and which live
connections it would cut (bans) or not allow again. If there are such, or somebody
who is logged in over ssh would be locked out, nothing is changed; --allow-cut
goes on.

The policy is the one that was applied, not the file as it is now. Besides lists
nothing changes: where a set file or the country data are others than when it was
applied, it has to be applied again. While a policy waits for its confirmation no
list is refreshed. A refreshed policy is a generation of its own, and the newest
refresh alone stays in the history; rollback goes to the policy before.

A list is asked for and read by a process of its own: another user (sluice-fetch,
which packaging's sysusers.d makes), without capabilities, with landlock and seccomp
where the kernel has them, in the namespace that the policy is for. It hands back plain
ranges; what it could not be confined by is noted. plan and apply do the same.

packaging has a timer that runs this: sluice-refresh.timer.
` + filesHelp + `
Environment: HTTP_PROXY, HTTPS_PROXY, NO_PROXY.

Exit status: 0 refreshed, or nothing is newer; 1 stopped, since it would cut
somebody off, or a list was refused for its size; 2 bad use, or a list cannot be
had, is empty or damaged.`,
		Example: `  sluice refresh
  sluice refresh scanners --dry-run
  sluice refresh --allow-cut --netns customer7`,
		ValidArgsFunction: completeLists,
		RunE:              runRefresh,
	}
	flags := cmd.Flags()
	flags.Bool("dry-run", false, "show what would change, and change nothing")
	flags.Bool("allow-cut", false, "go on where live connections are cut or somebody is locked out")
	flags.Bool("force", false, "take lists that have far fewer or far more addresses than the copies in use")
	addWait(cmd)
	return cmd
}

// refreshJSON is what --json prints.
type refreshJSON struct {
	Lists []refreshedList `json:"lists"`
	*apply.Refreshed
	DryRun bool `json:"dry-run,omitempty"`
}

// refreshedList is what came of asking for one list.
type refreshedList struct {
	Set   string      `json:"set"`
	URL   string      `json:"url"`
	State lists.State `json:"state,omitempty"`
	Error string      `json:"error,omitempty"`
	Copy  time.Time   `json:"copy,omitzero"` // with Error: of when the copy is that is used
}

func runRefresh(cmd *cobra.Command, args []string) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	h, err := hostOf(cmd)
	if err != nil {
		return err
	}
	flags := cmd.Flags()
	r := refreshing{cmd: cmd, host: h}
	r.dryRun, _ = flags.GetBool("dry-run")
	r.allowCut, _ = flags.GetBool("allow-cut")
	r.force, _ = flags.GetBool("force")
	out, err := r.run(ctx, args)
	if err != nil {
		return err
	}
	if optionsOf(cmd).json {
		err = command.PrintJSON(cmd.OutOrStdout(), out)
	} else {
		printRefresh(cmd.OutOrStdout(), out)
	}
	switch {
	case err != nil:
		return err
	case out.Stopped && !r.dryRun:
		return command.Found("stopped: nothing was changed\nhint: --allow-cut goes on all the same")
	case out.Stopped:
		return command.ErrFound
	}
	return r.failure()
}

// failure is what was wrong with lists: one whose size alone is, somebody has to
// look at.
func (r *refreshing) failure() error {
	var errs []error
	onlySizes := true
	for _, err := range r.failed {
		var size *lists.SizeError
		onlySizes = onlySizes && errors.As(err, &size)
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if err != nil && onlySizes {
		return command.Found("refused: " + err.Error())
	}
	return err
}

type refreshing struct {
	cmd                     *cobra.Command
	host                    *apply.Host
	dryRun, allowCut, force bool
	failed                  []error // of lists that could not be had
}

func (r *refreshing) run(ctx context.Context, names []string) (*refreshJSON, error) {
	o := optionsOf(r.cmd)
	base, err := filepath.Abs(o.stateDir)
	if err != nil {
		return nil, err
	}
	o.stateDir = base
	g, texts, err := r.host.RunningPolicy()
	if err != nil {
		return nil, err
	}
	line := pipeline{options: o, warn: r.cmd.ErrOrStderr(), profile: g.Profile, without: g.Without}
	line.costs = o.costs()
	if line.costs.ignored != "" {
		r.host.Note(line.costs.ignored)
	}
	r.host.Backend = o.nftables(line.costs.options()...)
	if line.policy, err = policy.LoadTexts(g.Policy, texts); err != nil {
		return nil, fmt.Errorf("read the policy of generation %d: %w", g.Number, err)
	}
	line.policy.Dir = g.Dir
	if err := json.Unmarshal(g.Facts, &line.facts); err != nil {
		return nil, fmt.Errorf("read the facts of generation %d: %w", g.Number, err)
	}
	store := lists.Store{Dir: filepath.Join(base, "lists"), Context: ctx, Child: fetchRanges, Unconfined: once(r.host.Note)}
	staging := store.Stage()
	defer staging.Discard()
	out := &refreshJSON{Lists: []refreshedList{}, Refreshed: &apply.Refreshed{Generation: g.Number, Unchanged: true}, DryRun: r.dryRun}
	due, err := dueLists(store, line.policy, names)
	if err != nil || len(due) == 0 {
		return out, err
	}
	for _, s := range due {
		out.Lists = append(out.Lists, r.fetch(ctx, staging, s))
	}
	prepared, err := r.prepare(ctx, &line, staging, g)
	if err != nil {
		return nil, err
	}
	if prepared != nil {
		if out.Refreshed, err = r.host.Refresh(ctx, *prepared); err != nil {
			return nil, refused(err)
		}
	}
	if !r.dryRun && !out.Stopped {
		err = staging.Keep()
	}
	return out, err
}

// dueLists are the sets whose lists are to be asked for.
func dueLists(store lists.Store, p *policy.Policy, names []string) ([]*policy.Set, error) {
	var out []*policy.Set
	var all []string
	for _, s := range p.Sets {
		if s.URL == nil {
			continue
		}
		all = append(all, s.Name)
		if len(names) > 0 {
			if slices.Contains(names, s.Name) {
				out = append(out, s)
			}
			continue
		}
		due, err := store.Due(s.URL.Text, s.Refresh)
		if err != nil {
			return nil, err
		}
		if due {
			out = append(out, s)
		}
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			hint := "it has none"
			if len(all) > 0 {
				hint = "it has: " + strings.Join(all, ", ")
			}
			return nil, fmt.Errorf("the policy that runs has no set %q with a url\nhint: %s", name, hint)
		}
	}
	return out, nil
}

// fetch asks for one list. One that cannot be had keeps the others from nothing.
func (r *refreshing) fetch(ctx context.Context, staging *lists.Staging, s *policy.Set) refreshedList {
	out := refreshedList{Set: s.Name, URL: fetch.Redact(s.URL.Text)}
	state, err := staging.Fetch(ctx, s.URL.Text, r.force)
	if err != nil {
		out.Error = err.Error()
		if at, there := staging.Copied(s.URL.Text); there {
			out.Copy = at
		}
		r.failed = append(r.failed, fmt.Errorf("set %s: %w", s.Name, err))
	}
	out.State = state
	return out
}

// prepare compiles the policy with the new lists; nil where they say what the
// old ones did.
func (r *refreshing) prepare(ctx context.Context, line *pipeline, staging *lists.Staging, g *apply.Generation) (*apply.Refreshing, error) {
	line.staging = staging
	if err := line.resolve(ctx, g.Policy); err != nil {
		return nil, err
	}
	others, changed, known := g.ChangedInputs(line.resolved.Inputs)
	switch {
	case !known:
		return nil, fmt.Errorf("generation %d was applied by an older sluice, which did not write down what it was made of\nhint: sluice apply%s %s", g.Number, command.HereArguments(r.cmd), g.Policy)
	case len(others) > 0:
		return nil, fmt.Errorf("not only lists have changed since generation %d was applied: %s\n  nothing changed\nhint: sluice apply%s %s takes all of it", g.Number, strings.Join(others, ", "), command.HereArguments(r.cmd), g.Policy)
	case !changed:
		return nil, nil
	}
	if err := r.check(ctx, line); err != nil {
		return nil, err
	}
	built, err := line.build(r.host.Backend, line.options.capabilities(ctx))
	if err != nil {
		return nil, err
	}
	results, err := line.expectationsOf(ctx, built.Expected)
	if err != nil {
		return nil, err
	}
	for _, u := range unmet(results) {
		warn(r.cmd.ErrOrStderr(), u.Expectation.Pos.String()+": "+unmetWords(u))
	}
	return &apply.Refreshing{
		Input: apply.Input{
			Program: built.Program, Expected: built.Expected, Artifact: built.Artifact, Profile: g.Profile, Without: g.Without, Sources: line.resolved.Inputs,
			SSHClients: apply.SSHClients(line.facts.WithSSHClientsNow()), Memory: apply.FreeMemory(),
		},
		Generation: g.Number, AllowCut: r.allowCut, DryRun: r.dryRun,
	}, nil
}

// check tells of what check warns of under the new lists, on the host as it is
// now.
func (r *refreshing) check(ctx context.Context, line *pipeline) error {
	facts, err := readFacts(ctx, "", line.options)
	if err != nil {
		return err
	}
	findings := check.Run(line.resolved, facts)
	for _, f := range findings {
		if f.Severity == check.Warning {
			warn(r.cmd.ErrOrStderr(), f.Pos.String()+": "+f.Message)
		}
	}
	return check.Errors(findings)
}

func printRefresh(w io.Writer, r *refreshJSON) {
	if len(r.Lists) == 0 {
		fmt.Fprintln(w, "no list is due")
		return
	}
	for _, l := range r.Lists {
		text := map[lists.State]string{lists.Current: "the copy is current", lists.Fetched: "fetched"}[l.State]
		if l.Error != "" {
			text = "not refreshed"
			if !l.Copy.IsZero() {
				text += ", the copy of " + l.Copy.Local().Format(time.DateTime) + " is used"
			}
		}
		fmt.Fprintf(w, "list %s: %s\n", l.Set, text)
	}
	for _, s := range r.Sets {
		fmt.Fprintf(w, "set %s: %s, %d before: %d come, %d go%s\n", s.Name, plural(s.After, "element"), s.Before, s.Added, s.Removed, addressesText(s))
	}
	for i, f := range r.Flows {
		if i == shownRefusals {
			fmt.Fprintf(w, "and %s\n", plural(len(r.Flows)-i, "more connection"))
			break
		}
		fmt.Fprintln(w, f)
	}
	if r.LockedOut != "" {
		fmt.Fprintf(w, "%s is logged in over ssh and would be locked out\n", r.LockedOut)
	}
	switch {
	case r.Unchanged:
		fmt.Fprintf(w, "nothing changes: %s runs\n", generationName(r.Generation))
	case !r.DryRun && !r.Stopped:
		fmt.Fprintf(w, "%s runs\n", generationName(r.Generation))
	}
}

// addressesText counts addresses that come and go, of IPv6 networks of 64 bits.
func addressesText(s apply.SetChange) string {
	var parts []string
	if s.AddressesPlus+s.AddressesMinus > 0 {
		parts = append(parts, fmt.Sprintf("IPv4: %s %s come, %s go", grouped(s.AddressesPlus), noun(s.AddressesPlus, "address"), grouped(s.AddressesMinus)))
	}
	if s.NetworksPlus > 0 || s.NetworksMinus > 0 {
		parts = append(parts, fmt.Sprintf("IPv6: addresses of %s %s (/64) come, of %s go", grouped(s.NetworksPlus), noun(s.NetworksPlus, "network"), grouped(s.NetworksMinus)))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// completeLists offers the sets of the running policy that have a list.
func completeLists(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	h, err := hostOf(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	g, texts, err := h.RunningPolicy()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	p, err := policy.LoadTexts(g.Policy, texts)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range p.Sets {
		if s.URL != nil {
			names = append(names, cobra.CompletionWithDesc(s.Name, fetch.Redact(s.URL.Text)))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/base/regular"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/trust"
	"sluice/internal/language/policy"
)

func newPublish() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Send the controller the bundle signed last, and start its roll-out",
		Long: `Sends the signed bundles of the repository to the controller: the signed metadata, and the files
of all listed bundles that it does not have, since hosts may run an older one. Then the roll-out
of the newest bundle begins, in the stages of fleet.yaml, replacing one that is under way. The
controller takes nothing that a host would refuse.

If the repository has an inventory.yaml, it warns of hosts that the inventory lacks or has old
facts of: "check" and "sign" did not judge the policy for these.

With --not-before no host gets it before a time; until then the roll-out shows what it waits
for, and a newer one may replace it. With --wait each stage is reported on standard error until
the roll-out is done, has gone back, or waits for a person after a halt; interrupting the command
leaves the roll-out as it is. Where fleet.yaml requires a second person to approve it, nothing
begins until then; --wait waits for that too.

Files: trust/ in the repository, and the files of the newest bundle, which must be what was
signed.

Exit status: 0 the roll-out has begun, with --wait it is done or another took its place; 1 it
is halted or went back, or waits for approval; 2 bad use, or it was refused.`,
		Example: "  sluice-controller publish --wait\n  sluice-controller publish --not-before 2026-12-01T05:00:00+01:00",
		Args:    cobra.NoArgs,
		RunE:    publish,
	}
	addController(cmd)
	cmd.Flags().String("repository", ".", "`DIR` of fleet.yaml and trust/")
	cmd.Flags().Bool("wait", false, "wait until the roll-out ends, and report each stage")
	addNotBefore(cmd)
	cmd.AddCommand(newPublishLabels())
	return cmd
}

// published is what is printed of a bundle.
type published struct {
	Bundle  int64            `json:"bundle"`
	Sent    int              `json:"sent"` // files that the controller did not have
	Bytes   int64            `json:"bytes"`
	Lacking []string         `json:"lacking,omitempty"` // files of older bundles that nobody has any more
	Rollout *rollout.Rollout `json:"rollout"`
}

func addNotBefore(cmd *cobra.Command) {
	cmd.Flags().String("not-before", "", "start no stage before `TIME`, such as 2026-12-01T05:00:00+01:00 or 8h (from now)")
}

// notBefore reads a time, or how long it is until then.
func notBefore(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, _, ok := policy.ParseDuration(text); ok && d > 0 {
		return now.Add(d).UTC().Truncate(time.Second), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil:
		return at, fmt.Errorf("--not-before %q is not a time: write it as 2026-12-01T05:00:00+01:00, or as 8h from now", text)
	case !at.After(now):
		return at, fmt.Errorf("--not-before %s is in the past: leave it out to begin now", text)
	}
	return at, nil
}

func publish(cmd *cobra.Command, _ []string) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	text, _ := cmd.Flags().GetString("not-before")
	from, err := notBefore(text, time.Now())
	if err != nil {
		return err
	}
	r, err := openRepository(cmd)
	if err != nil {
		return err
	}
	dir, _ := cmd.Flags().GetString("repository")
	p, err := publicationOf(dir, r)
	if err != nil {
		return err
	}
	p.NotBefore = from
	c := controllerOf(cmd)
	waits, _ := cmd.Flags().GetBool("wait")
	if waits {
		patient(cmd, c)
	}
	warnUnseen(ctx, cmd, c)
	out := published{Bundle: p.Bundle}
	if err := send(ctx, c, r, p.files, p.older, &out); err != nil {
		return hinted(err)
	}
	for _, file := range out.Lacking {
		w := cmd.ErrOrStderr()
		fmt.Fprintf(w, "%s %s is neither at the controller nor in trust/blobs: no host can go back to it\n", command.Paint(w, "33", "warning:"), file)
	}
	if out.Rollout, err = c.Publish(ctx, p.Publish); err != nil {
		return waiting(err)
	}
	if waits {
		if out.Rollout, err = awaitRollout(ctx, cmd, c, out.Rollout); err != nil {
			return err
		}
	}
	if err := printPublished(cmd, &out); err != nil {
		return err
	}
	if failed(out.Rollout) {
		return command.ErrFound
	}
	return nil
}

// publication is the newest signed bundle of a repository, as a controller gets it.
type publication struct {
	api.Publish
	files map[string][]byte // of it, and the manifests of older ones, by hash
	older map[string]string // what to call each other file of older ones, by hash
}

func publicationOf(dir string, r *trust.Repository) (*publication, error) {
	m, err := r.Metadata()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("no bundle is signed yet\nhint: sluice-controller sign signs the first one")
	}
	if errors.Is(err, trust.ErrUnsigned) || errors.Is(err, trust.ErrThreshold) {
		has, needs := r.Pending()
		return nil, fmt.Errorf("what is signed has %d of %s by the keys that root.json names for policies\nhint: sluice-controller sign adds one, and sluice-controller key list names the keys", has, english.Plural(needs, "signature"))
	}
	if err != nil {
		return nil, err
	}
	listed := r.Bundles()
	b := listed[len(listed)-1]
	manifests, err := r.Manifests()
	if err != nil {
		return nil, err
	}
	files, err := bundleFiles(dir, r, b, manifests[b.SHA256])
	if err != nil {
		return nil, err
	}
	older, err := olderFiles(listed[:len(listed)-1], manifests)
	if err != nil {
		return nil, err
	}
	for hash, manifest := range manifests { // a restored controller may lack older ones
		files[hash] = manifest
	}
	return &publication{api.Publish{Roots: m.Roots, Targets: m.Targets, Bundle: b.Number}, files, older}, nil
}

func printPublished(cmd *cobra.Command, out *published) error {
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), out)
	}
	w := cmd.OutOrStdout()
	if waits, _ := cmd.Flags().GetBool("wait"); waits {
		printRollout(w, out.Rollout)
		return nil
	}
	fmt.Fprintf(w, "bundle %d is published, and %s sent; roll-out %d has begun\n", out.Bundle, english.Plural(out.Sent, "file"), out.Rollout.ID)
	return nil
}

// bundleFiles reads the files of a bundle, by their hash, with its manifest.
func bundleFiles(dir string, r *trust.Repository, b trust.Bundle, manifest []byte) (map[string][]byte, error) {
	m, err := b.Manifest(manifest)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{b.SHA256: manifest}
	for _, f := range m.Files() {
		if strings.HasPrefix(f.Path, trust.URLLists+"/") {
			text, err := r.Blob(f.SHA256)
			if err != nil {
				return nil, err
			}
			files[f.SHA256] = text
			continue
		}
		text, err := regular.Read(filepath.Join(dir, filepath.FromSlash(f.Path)), trust.MaxList)
		if err != nil {
			return nil, err
		}
		if f.Check(text) != nil {
			return nil, fmt.Errorf("%s was changed after bundle %d was signed\nhint: sluice-controller sign signs it as it is now", f.Path, b.Number)
		}
		files[f.SHA256] = text
	}
	return files, nil
}

// olderFiles are what bundles are made of, by hash, and what to call each of it.
func olderFiles(bundles []trust.Bundle, manifests map[string][]byte) (map[string]string, error) {
	names := map[string]string{}
	for _, b := range bundles {
		m, err := b.Manifest(manifests[b.SHA256])
		if err != nil {
			return nil, err
		}
		for _, f := range m.Files() {
			names[f.SHA256] = fmt.Sprintf("%s of bundle %d", f.Path, b.Number)
		}
	}
	return names, nil
}

// askedAtOnce is of how many blobs the controller is asked at once whether it has them.
const askedAtOnce = 10_000

// send gives the controller those files that it does not have; older ones are in trust/blobs.
func send(ctx context.Context, c *api.Client, r *trust.Repository, files map[string][]byte, older map[string]string, out *published) error {
	hashes := slices.Collect(maps.Keys(files))
	for hash := range older {
		if _, newest := files[hash]; !newest {
			hashes = append(hashes, hash)
		}
	}
	for some := range slices.Chunk(hashes, askedAtOnce) {
		missing, err := c.Missing(ctx, some)
		if err != nil {
			return err
		}
		for _, hash := range missing {
			text, newest := files[hash]
			if !newest {
				text, err = r.Blob(hash)
			}
			if errors.Is(err, fs.ErrNotExist) {
				out.Lacking = append(out.Lacking, older[hash])
				continue
			}
			if err == nil {
				err = c.PutBlob(ctx, hash, bytes.NewReader(text))
			}
			if err != nil {
				return err
			}
			out.Sent++
			out.Bytes += int64(len(text))
		}
	}
	slices.Sort(out.Lacking)
	return nil
}

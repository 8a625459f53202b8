package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/base/regular"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/archive"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
)

// What an exported bundle is, as an archive: the chain of root.json in roots/, targets.json,
// and in blobs/ the manifest and all files of the bundle, by SHA-256.
const (
	exportKind    = "signed bundle of a fleet"
	exportVersion = 1
	exportRoots   = "roots/"
	exportTargets = "targets.json"
	exportBlobs   = "blobs/"
)

// exported is what such a file says of itself.
type exported struct {
	Fleet   string    `json:"fleet"`
	Bundle  int64     `json:"bundle"`
	Expires time.Time `json:"expires"`
}

func newExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Write a signed bundle to one file, for a controller without a network",
		Long: `Writes a bundle that was published here to FILE: the signed metadata, the policy and the
contents of its lists. "import" sends it to another controller of the fleet, one without a
network. The same bundle gives the same bytes. FILE holds no secret; hosts and controllers
trust its signatures, not where it came from.

It reads the controller's directory and database; the controller need not run.

Exit status: 0 fine, 2 there is no such bundle, or FILE exists.`,
		Example: "  sluice-controller export --bundle 12 bundle-12.sluice",
		Args:    cobra.ExactArgs(1),
		RunE:    onDatabase(exportBundle),
	}
	addDatabase(cmd)
	cmd.Flags().Int64("bundle", 0, "write bundle `N` (default the newest)")
	return cmd
}

func exportBundle(ctx context.Context, cmd *cobra.Command, s *store.Store, args []string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, _ := cmd.Flags().GetString("dir")
	number, _ := cmd.Flags().GetInt64("bundle")
	online, err := trust.OpenOnline(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: there is no controller\nhint: --dir names its directory", dir)
	}
	if err != nil {
		return err
	}
	b, err := listedBundle(online.State().Bundles, number)
	if err != nil {
		return err
	}
	m := online.Metadata()
	var files []archive.Source
	for i, root := range m.Roots {
		files = append(files, archive.Bytes(fmt.Sprintf("%s%06d.json", exportRoots, i), 0o644, root))
	}
	files = append(files, archive.Bytes(exportTargets, 0o644, m.Targets))
	hashes, err := blobsOf(ctx, s, b)
	if err != nil {
		return err
	}
	for _, hash := range hashes {
		files = append(files, archive.Source{Path: exportBlobs + hash, Mode: 0o644, Open: func() (io.ReadCloser, error) { return s.OpenBlob(ctx, hash) }})
	}
	is := exported{online.State().Fleet, b.Number, b.Expires}
	size, err := writeWhole(ctx, args[0], nil, func(w io.Writer) error { return archive.Write(w, exportKind, exportVersion, is, files) }, func(r io.Reader) error {
		a, err := archive.Open(r, exportKind, exportVersion)
		if err != nil {
			return err
		}
		defer a.Close()
		return a.Each(func(archive.File, io.Reader) error { return nil })
	})
	if err != nil {
		return err
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), struct {
			exported

			File  string `json:"file"`
			Files int    `json:"files"` // of the bundle, with its manifest
			Bytes int64  `json:"bytes"`
		}{is, args[0], len(hashes), size})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: bundle %d of %s, good until %s, %s, %d KiB\n", args[0], b.Number, is.Fleet, b.Expires.Format(time.DateOnly), english.Plural(len(hashes), "file"), (size+1023)>>10)
	return nil
}

// listedBundle is a bundle that is signed, 0 being the newest.
func listedBundle(listed []trust.Bundle, number int64) (trust.Bundle, error) {
	if len(listed) == 0 {
		return trust.Bundle{}, errors.New("nothing was published here yet")
	}
	newest := listed[len(listed)-1]
	if number == 0 {
		return newest, nil
	}
	i := slices.IndexFunc(listed, func(b trust.Bundle) bool { return b.Number == number })
	if i < 0 {
		return trust.Bundle{}, fmt.Errorf("--bundle %d: bundles %d to %d are signed", number, listed[0].Number, newest.Number)
	}
	return listed[i], nil
}

// blobsOf are the manifest and the files of a bundle, in the order of their hashes.
func blobsOf(ctx context.Context, s *store.Store, b trust.Bundle) ([]string, error) {
	blob, err := s.OpenBlob(ctx, b.SHA256)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(blob, trust.MaxManifest))
	if err != nil {
		return nil, err
	}
	m, err := b.Manifest(text)
	if err != nil {
		return nil, err
	}
	hashes := []string{b.SHA256}
	for _, f := range m.Files() {
		hashes = append(hashes, f.SHA256)
	}
	slices.Sort(hashes)
	return slices.Compact(hashes), nil
}

func newImport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Send the controller an exported bundle, and start its roll-out",
		Long: `Sends the controller a file that "export" wrote, and starts the roll-out of its bundle as
"publish" does. The controller verifies the signatures, and takes nothing that a host would
refuse, such as a bundle older than one it knows.

Exit status: 0 the roll-out has begun, 2 bad use, or it was refused.`,
		Example: "  sluice-controller import bundle-12.sluice && sluice-controller rollout show",
		Args:    cobra.ExactArgs(1),
		RunE:    importBundle,
	}
	addController(cmd)
	addNotBefore(cmd)
	return cmd
}

func importBundle(cmd *cobra.Command, args []string) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	text, _ := cmd.Flags().GetString("not-before")
	from, err := notBefore(text, time.Now())
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "sluice-controller-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	is, files, err := openExport(args[0], temp)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	p := api.Publish{Bundle: is.Bundle, NotBefore: from}
	var hashes []string
	for _, f := range files {
		if hash, blob := strings.CutPrefix(f.Path, exportBlobs); blob {
			if hash != f.SHA256 {
				return fmt.Errorf("%s: %w: %s is another file", args[0], archive.ErrDamaged, f.Path)
			}
			hashes = append(hashes, hash)
			continue
		}
		text, err := regular.Read(filepath.Join(temp, f.Path), mostOfDir)
		if err != nil {
			return err
		}
		if f.Path == exportTargets {
			p.Targets = text
		} else {
			p.Roots = append(p.Roots, text)
		}
	}
	c := controllerOf(cmd)
	out := published{Bundle: is.Bundle}
	for some := range slices.Chunk(hashes, askedAtOnce) {
		missing, err := c.Missing(ctx, some)
		if err != nil {
			return hinted(err)
		}
		for _, hash := range missing {
			if err := putFile(ctx, c, hash, filepath.Join(temp, exportBlobs, hash), &out); err != nil {
				return err
			}
		}
	}
	if out.Rollout, err = c.Publish(ctx, p); err != nil {
		return waiting(err)
	}
	return printPublished(cmd, &out)
}

func putFile(ctx context.Context, c *api.Client, hash, name string, out *published) error {
	f, err := regular.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	out.Sent++
	out.Bytes += info.Size()
	return c.PutBlob(ctx, hash, f)
}

// openExport reads an exported bundle into a folder.
func openExport(name, into string) (is exported, files []archive.File, err error) {
	f, err := regular.Open(name)
	if err != nil {
		return is, nil, err
	}
	defer f.Close()
	a, err := archive.Open(f, exportKind, exportVersion)
	if errors.Is(err, archive.ErrForeign) {
		return is, nil, fmt.Errorf("%w\nhint: sluice-controller export writes one", err)
	}
	if err != nil {
		return is, nil, err
	}
	defer a.Close()
	if err := a.About(&is); err != nil {
		return is, nil, err
	}
	return is, a.Files, a.Each(func(f archive.File, content io.Reader) error { return unpackTo(into, f, content) })
}

package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"filippo.io/age"
	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"sluice"
	"sluice/internal/base/english"
	"sluice/internal/base/regular"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/archive"
	"sluice/internal/fleet/store"
)

// What a backup is, as an archive.
const (
	backupKind    = "backup of a controller"
	backupVersion = 1
	backupFleet   = "fleet.db" // the database, as one of SQLite, whatever it was
	backupDir     = "dir/"     // before the files of the controller's directory
	mostOfDir     = 64 << 20   // bytes of one of those
)

// backedUp is what a backup says of itself.
type backedUp struct {
	store.Copied

	Version string    `json:"version"` // of the program
	At      time.Time `json:"at"`
	Keys    bool      `json:"keys"` // the files of the controller's directory are there too
}

func newBackup() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Back a controller up to one file, while it runs",
		Long: `Writes a snapshot of the database to FILE: hosts and their keys, tokens (as hashes), signed
bundles with their files, roll-outs and the audit. The controller keeps running. Both kinds of
database give the same file, and "restore" puts it into either.

The controller's private keys are not in FILE, and a restored database needs them: keep a copy
of the controller's directory. With --keys FILE has the whole directory: whoever reads it can
pose as the controller. --recipient encrypts FILE with age to a public key, so that a machine
can write backups that it cannot read.

FILE appears once it is complete and has been read back; no file is overwritten. Until then a
copy of the database is in the controller's directory, or in that of FILE. The audit is
verified; if it was changed, FILE is written anyway.

Exit status: 0 fine, 1 written, but the audit was changed, 2 nothing was written.`,
		Example: "  sluice-controller backup fleet-$(date +%F).backup\n  sluice-controller backup --keys --recipient age1lvyvwawkr0mcnnnncaghunadrqkmuf9e6507x9y920xxpp866cnql7dp2z fleet.backup",
		Args:    cobra.ExactArgs(1),
		RunE:    onDatabase(backUp),
	}
	addDatabase(cmd)
	cmd.Flags().Bool("keys", false, "include the controller's directory, with its private keys")
	cmd.Flags().StringArray("recipient", nil, "encrypt it to `KEY`, an age public key (age1…); repeatable")
	return cmd
}

func backUp(ctx context.Context, cmd *cobra.Command, s *store.Store, args []string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	keys, _ := cmd.Flags().GetBool("keys")
	recipients, err := recipientsOf(cmd)
	if err != nil {
		return err
	}
	dir, _ := cmd.Flags().GetString("dir")
	if inside, err := within(dir, args[0]); err != nil {
		return err
	} else if keys && inside {
		return fmt.Errorf("%s is in %s, whose files are backed up into it\nhint: put it elsewhere, best on another machine", args[0], dir)
	}
	temp, err := secretTemp(dir, filepath.Dir(args[0]))
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	is, report, err := copyOut(ctx, s, filepath.Join(temp, backupFleet))
	if err != nil {
		return err
	}
	is.Keys = keys
	files := []archive.Source{onDisk(temp, backupFleet)}
	if keys { // after the database, which may lack what was published since
		of, err := filesOf(dir, databaseOf(cmd))
		if err != nil {
			return err
		}
		files = append(files, of...)
	}
	size, err := writeWhole(ctx, args[0], recipients, func(w io.Writer) error {
		return archive.Write(w, backupKind, backupVersion, is, files)
	}, func(r io.Reader) error {
		_, _, err := readBackup(r, "")
		return err
	})
	if err != nil {
		return err
	}
	if command.JSON(cmd) {
		err = command.PrintJSON(cmd.OutOrStdout(), struct {
			backedUp
			File      string          `json:"file"`
			Bytes     int64           `json:"bytes"`
			Encrypted bool            `json:"encrypted"`
			Findings  []store.Finding `json:"findings"` // of the audit
		}{is, args[0], size, len(recipients) > 0, report.Findings})
	} else {
		printBackedUp(cmd, is, args[0], size)
	}
	if keys && len(recipients) == 0 {
		w := cmd.ErrOrStderr()
		fmt.Fprintf(w, "%s the controller's private keys are in %s, not encrypted\n", command.Paint(w, "33", "warning:"), args[0])
	}
	return errors.Join(err, auditWarned(cmd, report))
}

// secretTemp makes a folder, which its owner alone reads, for a copy that is not encrypted, in the
// first of some folders that has room for one: that of a controller has such secrets anyhow. TMPDIR
// may be of another disk.
func secretTemp(folders ...string) (name string, err error) {
	for _, folder := range folders {
		if name, err = os.MkdirTemp(folder, ".sluice-controller-"); err == nil {
			return name, nil
		}
	}
	return "", err
}

func printBackedUp(cmd *cobra.Command, is backedUp, file string, size int64) {
	with := "without the controller's keys"
	if is.Keys {
		with = "with the controller's keys"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: the fleet %s at revision %d, %s, %s of the audit, %s, %d KiB\n", file, is.Fleet.Name, is.Fleet.Revision,
		english.Plural(int(is.Rows["host"]), "host"), english.Plural(int(is.Rows["audit"]), "entry"), with, (size+1023)>>10)
}

// copyOut makes an SQLite file of a database, and verifies the audit in it.
func copyOut(ctx context.Context, s *store.Store, path string) (is backedUp, report store.Report, err error) {
	to, err := store.Open(ctx, "sqlite:"+path)
	if err != nil {
		return is, report, err
	}
	is = backedUp{Version: sluice.Version(), At: time.Now().UTC().Truncate(time.Second)}
	if is.Copied, err = s.CopyTo(ctx, to); err == nil {
		report, err = to.Verify(ctx, is.Fleet.Head)
	}
	return is, report, errors.Join(err, to.Close())
}

// within says that a file lies, or would, in a folder.
func within(dir, name string) (bool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false, err
	}
	name, err = filepath.Abs(name)
	return strings.HasPrefix(name, dir+string(filepath.Separator)), err
}

func onDisk(dir, name string) archive.Source {
	return archive.Source{Path: name, Mode: 0o600, Open: func() (io.ReadCloser, error) { return regular.Open(filepath.Join(dir, name)) }}
}

// filesOf are the files of a controller's directory, except for databases and what is being
// written.
func filesOf(dir, database string) (files []archive.Source, err error) {
	path, sqlite := strings.CutPrefix(database, "sqlite:")
	return files, filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), ".") || strings.HasPrefix(entry.Name(), backupFleet) ||
			sqlite && strings.HasPrefix(filepath.Clean(name), filepath.Clean(path)) {
			return err
		}
		path, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		text, err := regular.Read(name, mostOfDir)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		files = append(files, archive.Bytes(backupDir+filepath.ToSlash(path), info.Mode().Perm(), text))
		return nil
	})
}

func recipientsOf(cmd *cobra.Command) (out []age.Recipient, err error) {
	texts, _ := cmd.Flags().GetStringArray("recipient")
	for _, text := range texts {
		some, err := age.ParseRecipients(strings.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("--recipient %.60s: not an age public key\nhint: age-keygen makes one: age1…", text)
		}
		out = append(out, some...)
	}
	return out, nil
}

// writeWhole writes a new file, encrypted if there are recipients, that appears when it was
// read back: check reads it where it is not encrypted.
func writeWhole(ctx context.Context, name string, recipients []age.Recipient, write func(io.Writer) error, check func(io.Reader) error) (size int64, err error) {
	if _, err := os.Lstat(name); err == nil {
		return 0, fmt.Errorf("%s exists already, and is not overwritten", name)
	}
	f, err := renameio.NewPendingFile(name, renameio.WithTempDir(filepath.Dir(name)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Cleanup() }() // of nothing, once it has its name
	wrote := sha256.New()
	var to io.Writer = &counted{ctx, io.MultiWriter(f, wrote), &size}
	if len(recipients) > 0 {
		sealed, err := age.Encrypt(to, recipients...)
		if err != nil {
			return 0, err
		}
		err = errors.Join(write(sealed), sealed.Close())
		if err != nil {
			return 0, err
		}
	} else if err := write(to); err != nil {
		return 0, err
	}
	if err := readBack(f, wrote, len(recipients) == 0, check); err != nil {
		return 0, fmt.Errorf("%s was written, but reads back differently: %w", name, err)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return size, f.CloseAtomicallyReplace()
}

func readBack(f *renameio.PendingFile, wrote hash.Hash, open bool, check func(io.Reader) error) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	read := sha256.New()
	from := io.TeeReader(f, read)
	if open {
		if err := check(from); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, from); err != nil {
		return err
	}
	if !bytes.Equal(read.Sum(nil), wrote.Sum(nil)) {
		return archive.ErrDamaged
	}
	return nil
}

// counted counts what is written, until ctx ends.
type counted struct {
	ctx  context.Context //nolint:containedctx // io.Writer has none
	w    io.Writer
	size *int64
}

func (c *counted) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.w.Write(p)
	*c.size += int64(n)
	return n, err
}

// readBackup reads a backup whole, and puts its files into a folder unless that is "".
func readBackup(r io.Reader, into string) (is backedUp, files []archive.File, err error) {
	a, err := archive.Open(r, backupKind, backupVersion)
	if err != nil {
		return is, nil, err
	}
	defer a.Close()
	if err := a.About(&is); err != nil {
		return is, nil, err
	}
	if len(a.Files) == 0 || a.Files[0].Path != backupFleet {
		return is, nil, fmt.Errorf("%w: it has no %s", archive.ErrDamaged, backupFleet)
	}
	return is, a.Files, a.Each(func(f archive.File, content io.Reader) error {
		if into == "" {
			return nil
		}
		return unpackTo(into, f, content)
	})
}

// unpackTo writes a file of an archive into a folder.
func unpackTo(into string, f archive.File, content io.Reader) error {
	name := filepath.Join(into, filepath.FromSlash(f.Path))
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close())
}

package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"filippo.io/age"
	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/base/regular"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/archive"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
)

// restoringName is a file that is in a controller's directory while a backup is put there.
const restoringName = ".restoring"

func newRestore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup into an empty database, and an empty directory",
		Long: `Restores what "backup" wrote: the database into an empty one, of either kind, and, if FILE has
keys, the controller's directory into an empty one (--dir). All of FILE is read and verified
before anything is changed. Run the same command again to finish a restore that was killed;
until then no controller starts there.

If the directory is intact, --without-keys restores only the database; a FILE without keys
requires that directory.

Hosts keep their policy and their bans. They may know more than the backup does, so they take
nothing from the controller until a policy key has signed a new incarnation, and until then the
controller refuses new bans and allows:

  sluice-controller run
  sluice-controller sign --restore && sluice-controller publish

The controller from which the backup was made must not run again.

Exit status: 0 fine, 2 nothing was changed, or it did not finish.`,
		Example: "  sluice-controller restore fleet.backup\n  sluice-controller restore --identity ~/age.key --database postgres://sluice@db.example.net/fleet fleet.backup",
		Args:    cobra.ExactArgs(1),
		RunE:    restore,
	}
	addDatabase(cmd)
	cmd.Flags().StringArray("identity", nil, "decrypt it with the age private key in `FILE`; repeatable")
	cmd.Flags().Bool("without-keys", false, "restore only the database: the directory is intact")
	command.Must(cmd.MarkFlagFilename("identity"))
	return cmd
}

func restore(cmd *cobra.Command, args []string) (err error) {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	dir, _ := cmd.Flags().GetString("dir")
	alone, _ := cmd.Flags().GetBool("without-keys")
	temp, err := secretTemp(filepath.Dir(filepath.Clean(dir)), filepath.Dir(args[0]))
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	is, files, err := openBackup(cmd, args[0], temp)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	from, err := store.Open(ctx, "sqlite:"+filepath.Join(temp, backupFleet)) // and brings an older one up
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	keys := is.Keys && !alone
	incarnation := is.Fleet.Incarnation
	if keys {
		err = beginDir(dir)
	} else {
		var here int64
		here, err = fitsDir(dir, is.Fleet.Name)
		incarnation = max(incarnation, here)
	}
	if err != nil {
		return err
	}
	if err := restoreDatabase(ctx, from, databaseOf(cmd), incarnation, is, keys); err != nil {
		return err
	}
	if keys {
		if err := restoreDir(dir, temp, files); err != nil {
			return err
		}
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), is)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "restored the fleet %s at revision %d, of %s, with %s\n", is.Fleet.Name, is.Fleet.Revision, is.At.Local().Format(time.DateTime), english.Plural(int(is.Rows["host"]), "host"))
	fmt.Fprintf(cmd.OutOrStdout(), "start the controller, then: sluice-controller sign --restore && sluice-controller publish; before that nothing can be banned or let in\n")
	return nil
}

// openBackup reads a backup into a folder, decrypted.
func openBackup(cmd *cobra.Command, name, into string) (is backedUp, files []archive.File, err error) {
	f, err := regular.Open(name)
	if err != nil {
		return is, nil, err
	}
	defer f.Close()
	identities, err := identitiesOf(cmd)
	if err != nil {
		return is, nil, err
	}
	buffered := bufio.NewReader(f)
	var r io.Reader = buffered
	if start, _ := buffered.Peek(len(ageStart)); string(start) == ageStart {
		if len(identities) == 0 {
			return is, nil, errors.New("it is encrypted by age\nhint: --identity names the file of the private key")
		}
		if r, err = age.Decrypt(buffered, identities...); err != nil {
			return is, nil, err
		}
	}
	is, files, err = readBackup(r, into)
	if errors.Is(err, archive.ErrForeign) {
		return is, nil, fmt.Errorf("%w\nhint: sluice-controller backup writes one", err)
	}
	return is, files, err
}

// ageStart is how a file begins that age has encrypted.
const ageStart = "age-encryption.org/"

func identitiesOf(cmd *cobra.Command) (out []age.Identity, err error) {
	names, _ := cmd.Flags().GetStringArray("identity")
	for _, name := range names {
		text, err := regular.Read(name, 64<<10)
		if err != nil {
			return nil, err
		}
		some, err := age.ParseIdentities(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, some...)
	}
	return out, nil
}

// beginDir sees that a directory is empty, or that a restore has begun there, and has the
// controller not start in it until restoreDir has ended.
func beginDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, restoringName)); err == nil {
		return nil
	}
	has, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(has) > 0 {
		return fmt.Errorf("%s is not empty: it has %s\nhint: --dir names another directory; --without-keys restores only the database, and leaves the directory as it is", dir, has[0].Name())
	}
	return os.WriteFile(filepath.Join(dir, restoringName), nil, 0o600)
}

// restoredWhole says that no restore has ended in the middle.
func restoredWhole(dir string) error {
	_, err := os.Lstat(filepath.Join(dir, restoringName))
	if err == nil {
		return fmt.Errorf("%s: a restore was interrupted\nhint: run the same sluice-controller restore again", dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// fitsDir sees that a directory has the keys of the fleet, and says which incarnation was
// signed there.
func fitsDir(dir, fleet string) (incarnation int64, err error) {
	online, err := trust.OpenOnline(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("the keys of the controller are not restored, and %s has none\nhint: --dir names the controller's directory; put it back first", dir)
	}
	if err != nil {
		return 0, err
	}
	if is := online.State().Fleet; is != fleet {
		return 0, fmt.Errorf("%s is of the fleet %s, and the backup of %s", dir, is, fleet)
	}
	return online.State().Incarnation, nil
}

// restoreDatabase fills a database, unless a restore that was killed has done so.
func restoreDatabase(ctx context.Context, from *store.Store, database string, incarnation int64, is backedUp, begun bool) (err error) {
	to, err := store.Open(ctx, database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close(), ownedByFolder(database)) }()
	_, err = from.RestoreTo(ctx, to, operatorHere(), incarnation, map[string]any{"at": is.At, "incarnation": is.Fleet.Incarnation, "revision": is.Fleet.Revision, "version": is.Version})
	if !errors.Is(err, store.ErrNotEmpty) {
		return err
	}
	has, fault := to.Fleet(ctx)
	if fault != nil {
		return errors.Join(err, fault)
	}
	if begun && has.Position == is.Fleet.Position && has.Name == is.Fleet.Name {
		if stands, fault := to.Known(ctx, is.Fleet.Head); fault == nil && stands == store.Same {
			return nil
		}
	}
	return fmt.Errorf("%s is not empty: it holds the fleet %s at revision %d\nhint: --database names another one", shownDatabase(database), has.Name, has.Revision)
}

// restoreDir puts the files of a backup into the controller's directory.
func restoreDir(dir, temp string, files []archive.File) error {
	for _, f := range files {
		path, is := strings.CutPrefix(f.Path, backupDir)
		if !is {
			continue
		}
		text, err := regular.Read(filepath.Join(temp, filepath.FromSlash(f.Path)), mostOfDir)
		if err != nil {
			return err
		}
		name := filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := renameio.WriteFile(name, text, f.Mode, renameio.WithTempDir(filepath.Dir(name)), renameio.WithStaticPermissions(f.Mode)); err != nil {
			return err
		}
		if err := handOver(dir, filepath.Dir(name), name); err != nil {
			return err
		}
	}
	return os.Remove(filepath.Join(dir, restoringName))
}

// handOver gives files to the owner of a folder, where root has made them.
func handOver(dir string, names ...string) error {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	owner, is := info.Sys().(*syscall.Stat_t)
	if !is {
		return nil
	}
	for _, name := range names {
		if err := os.Lchown(name, int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	return nil
}

// operatorHere is who runs a command, as the audit names people.
func operatorHere() string {
	if u, err := user.Current(); err == nil {
		return "operator:" + u.Username
	}
	return "operator:" + strconv.Itoa(os.Getuid())
}

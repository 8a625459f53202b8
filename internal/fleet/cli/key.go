package cli

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/trust/operator"
)

func newKey() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "List the keys of a fleet, replace one, renew root.json",
		Long: `Manages the keys that trust/root.json names. A new root.json is in force once enough root
keys have signed it; holders in different places run "key sign" on the repository, one after
another. Hosts follow from whichever version they know.`,
		Example: "  sluice-controller key list\n  sluice-controller key rotate policy --keys ~/fleet-keys --key root-1.age --key root-2.age",
		Args:    cobra.NoArgs,
		RunE:    help,
	}
	cmd.AddCommand(newKeyList(), newKeyRotate(), newKeyRenew(), newKeySign())
	for _, c := range cmd.Commands() {
		c.Flags().String("repository", ".", "`DIR` of fleet.yaml and its parts")
		command.Must(c.MarkFlagDirname("repository"))
	}
	return cmd
}

func openRepository(cmd *cobra.Command) (*trust.Repository, error) { return openFleet(repository(cmd)) }

func openFleet(dir string) (*trust.Repository, error) {
	r, err := trust.OpenRepository(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no fleet is here: %w\nhint: sluice-controller init creates one", dir, err)
	}
	return r, err
}

// keyRoles are the roles of keys as people say them.
var keyRoles = []struct{ name, role string }{
	{"root", "root"}, {"policy", "targets"}, {"snapshot", "snapshot"}, {"timestamp", "timestamp"}, {"live", "live"},
}

func roleKeys(r *trust.Repository, role string) trust.RoleKeys {
	if role == "live" {
		return trust.RoleKeys{Keys: r.Live(), Threshold: 1}
	}
	return r.Role(role)
}

// listedKeys is what "key list --json" prints.
type listedKeys struct {
	Fleet   string       `json:"fleet"`
	Version int64        `json:"version"` // of root.json
	Expires time.Time    `json:"expires"`
	Roles   []listedRole `json:"roles"`

	Pending *trust.Rooted `json:"pending,omitempty"` // a newer one, which lacks signatures
}

type listedRole struct {
	Role      string   `json:"role"`
	Threshold int      `json:"threshold"`
	Keys      []string `json:"keys"`
}

func newKeyList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the keys that root.json names, by role",
		Long:    "Lists the keys that root.json names for each role, and how many of them must sign. Keys are\nshown by the first 16 digits of their ids.\n\nExit status: 0 fine, 2 there is no fleet, or trust/ is damaged.",
		Example: "  sluice-controller key list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := openRepository(cmd)
			if err != nil {
				return err
			}
			m := listedKeys{Fleet: r.Fleet(), Version: r.RootVersion(), Expires: r.RootExpires()}
			for _, k := range keyRoles {
				keys := roleKeys(r, k.role)
				m.Roles = append(m.Roles, listedRole{k.name, keys.Threshold, namesOf(keys.Keys)})
			}
			next, err := r.PendingRoot()
			switch {
			case err == nil:
				m.Pending = &next
			case !errors.Is(err, fs.ErrNotExist):
				return err
			}
			if command.JSON(cmd) {
				return command.PrintJSON(cmd.OutOrStdout(), m)
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "root.json of %s, version %d, until %s\n", m.Fleet, m.Version, m.Expires.Format(time.DateOnly))
			for _, role := range m.Roles {
				fmt.Fprintf(w, "%-10s %d of  %s\n", role.Role, role.Threshold, strings.Join(role.Keys, "  "))
			}
			if m.Pending != nil {
				fmt.Fprintln(w, lacking(*m.Pending))
			}
			return nil
		},
	}
}

func namesOf(keys []ed25519.PublicKey) []string {
	names := make([]string, 0, len(keys))
	for _, key := range keys {
		names = append(names, trust.KeyName(key))
	}
	return names
}

func newKeyRotate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate ROLE",
		Short: "Replace a key: root, policy, snapshot, timestamp, live or ca",
		Long: `Replaces the keys of a role, or the one that --drop names, with a new one. From then on
the old key's signatures count for nothing.

A new root or policy key is made as a file in --keys, or is the one of --new. After a policy
key was replaced, "sluice-controller sign" with the new one signs the list of bundles again. A
new snapshot, timestamp or live key is made in the controller's directory, and the controller
uses it from the next publish on. If that directory is lost, this command makes a new one: see
docs/how-to/recover.md.

"rotate ca" replaces the controller's own certificate authority with the offline key that
--ca-key names, and needs no root key: hosts renew their certificates as they expire.
` + passphraseHelp + `

Exit status: 0 replaced; 1 more root keys must sign; 2 bad use.`,
		Example: `  sluice-controller key rotate policy --keys ~/fleet-keys --key root-1.age --key root-2.age
  sluice-controller key rotate root --drop 0f3a51c2 --keys . --key root-2.age --key root-3.age
  sluice-controller key rotate timestamp --dir ./controller --key root-1.age --key root-2.age
  sluice-controller key rotate ca --dir ./controller --ca-key ca.age`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"root", "policy", "snapshot", "timestamp", "live", "ca"},
		RunE:      func(cmd *cobra.Command, args []string) error { return rotate(cmd, args[0]) },
	}
	addKeys(cmd)
	flags := cmd.Flags()
	flags.String("drop", "", "replace only `KEY`, given by the beginning of its id")
	flags.String("new", "", "use the key in the public key `FILE` (ssh-ed25519) as the new one")
	flags.String("keys", "", "`DIR` for the file of the new key")
	flags.String("dir", "", "`DIR` of the controller, for keys that it has")
	flags.String("ca-key", "", "`FILE` of the offline certificate authority's key")
	flags.Bool("no-passphrase", false, "leave the new key file unencrypted")
	for _, name := range []string{"keys", "dir"} {
		command.Must(cmd.MarkFlagDirname(name))
	}
	return cmd
}

func rotate(cmd *cobra.Command, name string) error {
	r, err := openRepository(cmd)
	if err != nil {
		return err
	}
	if name == "ca" {
		return rotateCA(cmd, r)
	}
	at := slices.IndexFunc(keyRoles, func(k struct{ name, role string }) bool { return k.name == name })
	if at < 0 {
		return fmt.Errorf("role %q: root, policy, snapshot, timestamp, live or ca", name)
	}
	role := keyRoles[at].role
	old := roleKeys(r, role)
	kept, err := withoutDropped(cmd, name, old.Keys)
	if err != nil {
		return err
	}
	signers, done, err := signersOf(cmd, r.RootSigners())
	defer done()
	if err != nil {
		return err
	}
	key, file, err := replacement(cmd, r, name)
	if err != nil {
		return err
	}
	keys := append(kept, key)
	change := trust.Change{Roles: map[string]trust.RoleKeys{role: {Keys: keys, Threshold: min(old.Threshold, len(keys))}}}
	if role == "live" {
		change = trust.Change{Live: keys}
	}
	rooted, err := r.Rotate(change, time.Now(), signers...)
	if err != nil {
		return err
	}
	return reportRooted(cmd, r, rooted, trust.KeyName(key), file)
}

// withoutDropped are the keys of a role that stay.
func withoutDropped(cmd *cobra.Command, name string, keys []ed25519.PublicKey) ([]ed25519.PublicKey, error) {
	drop, _ := cmd.Flags().GetString("drop")
	if drop == "" {
		if name == "root" {
			return nil, fmt.Errorf("--drop says which root key is replaced: %s", keyNames(keys))
		}
		return nil, nil
	}
	var kept []ed25519.PublicKey
	for _, key := range keys {
		if !strings.HasPrefix(trust.KeyName(key), drop) {
			kept = append(kept, key)
		}
	}
	if len(kept) != len(keys)-1 {
		return nil, fmt.Errorf("--drop %s names %s: %s", drop, english.Plural(len(keys)-len(kept), "key"), keyNames(keys))
	}
	return kept, nil
}

// replacement makes or reads the new key of a role; file is where it was put.
func replacement(cmd *cobra.Command, r *trust.Repository, name string) (key ed25519.PublicKey, file string, err error) {
	flag := func(name string) string { s, _ := cmd.Flags().GetString(name); return s }
	if name != "root" && name != "policy" {
		if flag("dir") == "" {
			return nil, "", fmt.Errorf("--dir says where the controller's keys are")
		}
		made, err := trust.NewKey()
		if err == nil {
			err = begun(flag("dir"), r)
		}
		if err != nil {
			return nil, "", err
		}
		return made.Public(), filepath.Join(flag("dir"), "keys"), trust.AddOnlineKey(flag("dir"), name, made)
	}
	switch public, dir := flag("new"), flag("keys"); {
	case (public == "") == (dir == ""):
		return nil, "", fmt.Errorf("either --keys, where the new key is made, or --new, which names one")
	case public != "":
		key, err = operator.ReadPublic(public)
		return key, public, err
	default:
		passphrase := ""
		if open, _ := cmd.Flags().GetBool("no-passphrase"); !open {
			if passphrase, err = newPassphrase(); err != nil {
				return nil, "", err
			}
		}
		return operator.NewKeyFile(dir, name, passphrase)
	}
}

// begun has a controller's folder begin where there is none, as after its machine was lost: it
// goes on from the first root.json, by those that follow, with the next publish.
func begun(dir string, r *trust.Repository) error {
	if _, err := trust.OpenOnline(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	m, err := r.Metadata()
	if err != nil {
		return err
	}
	return trust.NewOnline(dir, m.Roots[0])
}

func rotateCA(cmd *cobra.Command, r *trust.Repository) error {
	dir, _ := cmd.Flags().GetString("dir")
	file, _ := cmd.Flags().GetString("ca-key")
	if dir == "" || file == "" {
		return errors.New("ca requires --dir, the controller's folder, and --ca-key, the offline key")
	}
	key, err := operator.ReadKeyText(file, passphrases())
	if err != nil {
		return err
	}
	cas := r.CAs()
	certificate, own, err := trust.NewIntermediate(r.Fleet(), cas[len(cas)-1], key, time.Now())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := trust.AddOnlineCA(dir, certificate, own); err != nil {
		return err
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), struct {
			Dir string `json:"dir"`
		}{dir})
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "the controller in %s has a new certificate authority: restart it\n", dir)
	return nil
}

func newKeyRenew() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "renew",
		Short:   "Sign root.json again, for two more years",
		Long:    "Signs root.json again with the same keys, for two more years. Once it has expired no policy\ncan change; hosts keep the one that they run.\n" + passphraseHelp + "\n\nExit status: 0 renewed; 1 more root keys must sign; 2 bad use.",
		Example: "  sluice-controller key renew --key root-1.age --key root-2.age",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return onRoot(cmd, func(r *trust.Repository, by []trust.Signer) (trust.Rooted, error) {
				return r.Rotate(trust.Change{}, time.Now(), by...)
			})
		},
	}
	addKeys(cmd)
	return cmd
}

func newKeySign() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "sign",
		Short:   "Add the signature of a root key to a new root.json",
		Long:    "Adds the signature of a root key to a new root.json that another holder has made.\n" + passphraseHelp + "\n\nExit status: 0 it is in force; 1 signatures are still missing; 2 none is waiting, or bad\nuse.",
		Example: "  sluice-controller key sign --key root-2.age",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return onRoot(cmd, func(r *trust.Repository, by []trust.Signer) (trust.Rooted, error) {
				rooted, err := r.CosignRoot(by...)
				if errors.Is(err, fs.ErrNotExist) {
					return rooted, errors.New("no new root.json waits for signatures")
				}
				return rooted, err
			})
		},
	}
	addKeys(cmd)
	return cmd
}

func onRoot(cmd *cobra.Command, do func(r *trust.Repository, by []trust.Signer) (trust.Rooted, error)) error {
	r, err := openRepository(cmd)
	if err != nil {
		return err
	}
	signers, done, err := signersOf(cmd, r.RootSigners())
	defer done()
	if err != nil {
		return err
	}
	rooted, err := do(r, signers)
	if err != nil {
		return err
	}
	return reportRooted(cmd, r, rooted, "", "")
}

// rootedJSON is what commands print that make a root.json.
type rootedJSON struct {
	trust.Rooted
	Key  string `json:"key,omitempty"` // the new one
	File string `json:"file,omitempty"`
}

func lacking(rooted trust.Rooted) string {
	return fmt.Sprintf("version %d of root.json lacks %s: commit trust/, and have the holder of another root key run sluice-controller key sign", rooted.Version, english.Plural(rooted.Missing, "signature"))
}

func reportRooted(cmd *cobra.Command, r *trust.Repository, rooted trust.Rooted, key, file string) error {
	if command.JSON(cmd) {
		if err := command.PrintJSON(cmd.OutOrStdout(), rootedJSON{rooted, key, file}); err != nil {
			return err
		}
	}
	w := cmd.ErrOrStderr()
	if key != "" {
		fmt.Fprintf(w, "the new key is %s, in %s\n", key, file)
	}
	if rooted.Missing > 0 {
		return command.Found(lacking(rooted))
	}
	next := "commit trust/, and publish"
	if has, needs := r.Pending(); has < needs {
		next = "commit trust/, and sign with a policy key of it before you publish: sluice-controller sign"
	}
	fmt.Fprintf(w, "version %d of root.json is in force until %s: %s\n", rooted.Version, rooted.Expires.Format(time.DateOnly), next)
	return nil
}

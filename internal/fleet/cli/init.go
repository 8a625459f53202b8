package cli

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/trust/operator"
)

const defaultControllerDir = "/var/lib/sluice-controller"

func newInit() *cobra.Command {
	var o operator.Options
	var policyKeys []string
	var open bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create a fleet: its keys, its certificate authority, a first policy",
		Long: `Creates a fleet. It makes

  - fleet.yaml, a first part, and trust/, which belong in version control;
  - key files for the operators: root keys, which name all other keys; a key that signs
    policies; the key of the certificate authority. age encrypts them with a passphrase, and
    none of them is ever needed on a controller;
  - the directory of a controller, with the keys that it uses: with them it can state which
    signed policy is the newest, and issue certificates to hosts. It cannot sign a policy.

It asks at the terminal for what no flag gives. It overwrites no file.
` + passphraseHelp + `

Exit status: 0 fine, 2 bad use, or a file exists already.`,
		Example: `  sluice-controller init
  sluice-controller init --fleet example.net --keys ~/fleet-keys --dir ./controller
  sluice-controller init --fleet example.net --keys ~/fleet-keys --dir ./controller \
    --policy-key ~/.ssh/id_ed25519.pub --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range policyKeys {
				key, err := operator.ReadPublic(name)
				if err != nil {
					return err
				}
				for _, other := range o.Policy {
					if other.Equal(key) {
						return fmt.Errorf("%s: this key is given twice", name)
					}
				}
				o.Policy = append(o.Policy, key)
			}
			if n := max(len(policyKeys), 1); o.PolicyThreshold > n {
				return fmt.Errorf("--policy-threshold %d, and %s\nhint: give --policy-key with the public key of each holder", o.PolicyThreshold, english.Plural(n, "policy key"))
			}
			if err := askInit(cmd, &o, open); err != nil {
				return err
			}
			made, err := operator.Init(o, time.Now())
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%w: nothing was made\nhint: a fleet is created once; give other folders, or remove what is there", err)
			}
			if err != nil {
				return err
			}
			if command.JSON(cmd) {
				return command.PrintJSON(cmd.OutOrStdout(), made)
			}
			printMade(cmd, made, o.Policy)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Repository, "repository", ".", "`DIR` for fleet.yaml, its parts and trust/")
	flags.StringVar(&o.Fleet, "fleet", "", "`NAME` of the fleet, such as a domain: example.net")
	flags.StringVar(&o.Keys, "keys", "", "`DIR` for the operators' key files")
	flags.StringVar(&o.Controller, "dir", "", "`DIR` for the controller's files (\"run\" reads "+defaultControllerDir+" by default)")
	flags.IntVar(&o.RootKeys, "root-keys", 3, "make `N` root keys")
	flags.IntVar(&o.RootThreshold, "root-threshold", 2, "require the signatures of `N` root keys on root.json")
	flags.StringArrayVar(&policyKeys, "policy-key", nil, "let the key in the public key `FILE` (ssh-ed25519) sign policies, and make none; repeatable")
	flags.IntVar(&o.PolicyThreshold, "policy-threshold", 1, "require the signatures of `N` of those keys on each policy")
	flags.BoolVar(&open, "no-passphrase", false, "leave key files unencrypted, for a secret store that encrypts them itself")
	for _, name := range []string{"repository", "keys", "dir"} {
		command.Must(cmd.MarkFlagDirname(name))
	}
	command.Must(cmd.MarkFlagFilename("policy-key", "pub"))
	return cmd
}

// askInit asks for what no flag has said.
func askInit(cmd *cobra.Command, o *operator.Options, open bool) error {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "."
	}
	for _, q := range []struct {
		flag, prompt string
		into         *string
		offered      func() string
	}{
		{"fleet", "Name of the fleet, such as a domain", &o.Fleet, func() string { return "" }},
		{"keys", "Folder for the operators' key files", &o.Keys, func() string { return filepath.Join(home, "sluice-keys-"+o.Fleet) }},
		{"dir", "Folder for what the controller has", &o.Controller, func() string { return defaultControllerDir }},
	} {
		if *q.into != "" {
			continue
		}
		answer, err := ask(q.prompt, q.offered())
		if err != nil && !errors.Is(err, command.ErrInterrupted) {
			return fmt.Errorf("no terminal to ask on\nhint: give --%s", q.flag)
		}
		if err != nil {
			return err
		}
		if *q.into = answer; answer == "" {
			return fmt.Errorf("--%s is empty", q.flag)
		}
	}
	for _, dir := range []*string{&o.Repository, &o.Keys, &o.Controller} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	if open {
		return nil
	}
	o.Passphrase, err = newPassphrase()
	return err
}

func printMade(cmd *cobra.Command, m *operator.Made, policy []ed25519.PublicKey) {
	w := cmd.OutOrStdout()
	bold := func(text string) string { return command.Paint(w, "1", text) }
	fmt.Fprintf(w, "Created the fleet %s. What was made, and where to keep it:\n\n", m.Fleet)
	fmt.Fprintf(w, "%s\n  %s\n", bold("in version control, for everybody who changes policies"), m.Repository)
	for _, name := range m.Files {
		fmt.Fprintf(w, "    %s\n", name)
	}
	fmt.Fprintf(w, "%s\n", bold(fmt.Sprintf("root keys: keep each with another person or medium, offline; any %d can replace a lost key", m.RootThreshold)))
	for _, name := range m.RootKeys {
		fmt.Fprintf(w, "  %s\n", name)
	}
	if m.PolicyKey != "" {
		fmt.Fprintf(w, "%s\n  %s\n", bold("policy key: for whoever signs policies, a person or CI"), m.PolicyKey)
	} else {
		fmt.Fprintf(w, "%s\n  %s, %d of them each time\n", bold("policies are signed by the keys that you gave"), keyNames(policy), m.PolicyThreshold)
	}
	fmt.Fprintf(w, "%s\n  %s\n", bold("key of the certificate authority: keep it offline; only a new controller needs it"), m.CAKey)
	fmt.Fprintf(w, "%s\n  %s\n", bold("for the controller, readable only by it"), m.Controller)
	if !m.Encrypted {
		fmt.Fprintf(w, "\n%s the key files are not encrypted\n", command.Paint(w, "33", "warning:"))
	}
	fmt.Fprintf(w, "\nroot.json has SHA-256 %s and is valid until %s (%s).\n", m.RootSHA256[:16]+"…", m.RootExpires.Format(time.DateOnly), english.Plural(len(m.RootKeys), "root key"))
	fmt.Fprintf(w, "Next: put your own networks into %s, then sign it:\n", filepath.Join(m.Repository, m.Files[1]))
	sign := "  sluice-controller sign --repository " + command.ShellWord(m.Repository)
	if m.PolicyKey != "" {
		sign += " --key " + command.ShellWord(m.PolicyKey)
	}
	fmt.Fprintln(w, sign)
}

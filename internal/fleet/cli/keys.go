package cli

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sluice/internal/cli/command"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/trust/operator"
)

// passphraseFile names the file of the passphrase of key files, for scripts.
const passphraseFile = "SLUICE_PASSPHRASE_FILE"

const passphraseHelp = `The passphrase of key files is asked for, or read from the first line of the file that
SLUICE_PASSPHRASE_FILE in the environment names.`

// theTerminal is where somebody can be asked, whatever happens to the output.
func theTerminal() (*os.File, error) { return os.OpenFile("/dev/tty", os.O_RDWR, 0) }

// givenPassphrase is the one that the environment gives; "" without.
func givenPassphrase() (string, error) {
	name := os.Getenv(passphraseFile)
	if name == "" {
		return "", nil
	}
	text, err := command.ReadFile(name)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	line = strings.TrimSuffix(line, "\r")
	if line == "" {
		return "", fmt.Errorf("%s: its first line, the passphrase, is empty", name)
	}
	return line, nil
}

// askPassphrase asks without showing what is typed.
func askPassphrase(prompt string) (string, error) {
	tty, err := theTerminal()
	if err != nil {
		return "", fmt.Errorf("%s: no terminal to ask on\nhint: %s names a file whose first line is the passphrase", prompt, passphraseFile)
	}
	defer tty.Close()
	fmt.Fprint(tty, prompt+": ")
	text, err := term.ReadPassword(int(tty.Fd()))
	fmt.Fprintln(tty)
	return string(text), err
}

// passphrases asks for each file, and tries the last answer again for the next one.
func passphrases() operator.Passphrase {
	last := ""
	return func(file string) (string, error) {
		given, err := givenPassphrase()
		if err != nil || given != "" {
			return given, err
		}
		answer, err := askPassphrase("passphrase of " + file + orLast(last))
		if answer == "" && last != "" {
			answer = last
		}
		last = answer
		return answer, err
	}
}

func orLast(last string) string {
	if last == "" {
		return ""
	}
	return " (empty: the same as before)"
}

// newPassphrase asks twice.
func newPassphrase() (string, error) {
	given, err := givenPassphrase()
	if err != nil || given != "" {
		return given, err
	}
	first, err := askPassphrase("new passphrase of the key files")
	if err != nil {
		return "", err
	}
	if first == "" {
		return "", errors.New("the passphrase is empty\nhint: --no-passphrase leaves key files unencrypted, for a secret store that encrypts them itself")
	}
	again, err := askPassphrase("once more")
	if err != nil {
		return "", err
	}
	if first != again {
		return "", errors.New("the passphrases differ: nothing was made")
	}
	return first, nil
}

// ask asks for a line at a terminal; what is offered is taken for an empty one.
func ask(prompt, offered string) (string, error) {
	tty, err := theTerminal()
	if err != nil {
		return "", err
	}
	defer tty.Close()
	if offered != "" {
		prompt += " [" + offered + "]"
	}
	fmt.Fprint(tty, prompt+": ")
	line, err := bufio.NewReader(tty).ReadString('\n')
	if errors.Is(err, io.EOF) {
		return "", command.ErrInterrupted
	}
	if line = strings.TrimSpace(line); line == "" {
		line = offered
	}
	return line, err
}

// addKeys gives a command the flag that names key files.
func addKeys(cmd *cobra.Command) {
	cmd.Flags().StringArray("key", nil, "sign with the key in `FILE`, - for standard input; repeatable (default: the keys in the ssh-agent)")
	command.Must(cmd.MarkFlagFilename("key"))
}

// signersOf are the signers for some of these keys: of the files that --key names, or
// else those that the ssh-agent has. Done leaves the ssh-agent.
func signersOf(cmd *cobra.Command, wanted []ed25519.PublicKey) (signers []trust.Signer, done func(), err error) {
	names, _ := cmd.Flags().GetStringArray("key")
	ask, done := passphrases(), func() {}
	among := func(s trust.Signer) bool {
		return slices.ContainsFunc(wanted, func(k ed25519.PublicKey) bool { return bytes.Equal(k, s.Public()) })
	}
	for _, name := range names {
		s, err := operator.ReadKey(name, ask)
		if errors.Is(err, trust.ErrMalformed) {
			return nil, done, fmt.Errorf("%w\nhint: --key is for key files of this fleet; a key of ssh signs from the ssh-agent: ssh-add it, and leave --key out", err)
		}
		if err != nil {
			return nil, done, err
		}
		if !among(s) {
			return nil, done, fmt.Errorf("%s has the key %s, and root.json accepts only these: %s\nhint: sluice-controller key list says which key is for what", name, trust.KeyName(s.Public()), keyNames(wanted))
		}
		signers = append(signers, s)
	}
	if socket := os.Getenv("SSH_AUTH_SOCK"); len(names) == 0 && socket != "" {
		all, leave, err := operator.AgentSigners(socket)
		if err != nil {
			return nil, done, err
		}
		done = leave
		for _, s := range all {
			if among(s) {
				signers = append(signers, s)
			}
		}
	}
	if len(signers) == 0 {
		return nil, done, fmt.Errorf("nothing to sign with: root.json names %s, and no ssh-agent has one of them\nhint: --key FILE names the file of a key", keyNames(wanted))
	}
	return signers, done, nil
}

func keyNames(keys []ed25519.PublicKey) string {
	var names []string
	for _, key := range keys {
		names = append(names, trust.KeyName(key))
	}
	return strings.Join(names, ", ")
}

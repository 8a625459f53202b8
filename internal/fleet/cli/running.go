package cli

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/base/regular"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
)

// What says which controller commands ask, where no flag does.
const (
	controllerVariable = "SLUICE_CONTROLLER"
	tokenVariable      = "SLUICE_TOKEN"
)

// addController adds the flags of commands that ask a controller which runs.
func addController(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.String("dir", defaultDir, "`DIR` of the controller, on its machine")
	flags.String("controller", "", "use the controller at `URL`, https://HOST:8443 (or "+controllerVariable+")")
	flags.String("token-file", "", "authenticate with the token in `FILE`, - for standard input (or "+tokenVariable+")")
	flags.String("ca", "", "trust the certificates in `FILE` (default those of the system)")
	command.Must(cmd.MarkFlagDirname("dir"))
	cmd.MarkFlagsMutuallyExclusive("dir", "controller")
}

// controllerOf is the controller that a command asks. What is wrong with the flags is told
// when it is asked.
func controllerOf(cmd *cobra.Command) *api.Client {
	flags := cmd.Flags()
	dir, _ := flags.GetString("dir")
	at, _ := flags.GetString("controller")
	if at == "" && !flags.Changed("dir") {
		at = os.Getenv(controllerVariable)
	}
	if at == "" {
		for _, name := range []string{"token-file", "ca"} {
			if flags.Changed(name) {
				return api.NewFailing(fmt.Errorf("--%s is for a controller elsewhere\nhint: --controller URL names it", name))
			}
		}
		return api.NewClient(dir)
	}
	c, err := remote(cmd, at)
	if err != nil {
		return api.NewFailing(err)
	}
	return c
}

// controllerURL is a controller's URL as it is kept: https://HOST:PORT.
func controllerURL(text string) (string, error) {
	is, err := url.Parse(text)
	if err != nil || is.Scheme != "https" || is.Host == "" || is.User != nil || is.RawQuery != "" || strings.Trim(is.Path, "/") != "" {
		return "", fmt.Errorf("%q is not a controller: it is https://HOST:PORT", text)
	}
	return is.Scheme + "://" + is.Host, nil
}

// remote is a controller that is asked over HTTPS, by a token that is given or by the session
// that login has kept.
func remote(cmd *cobra.Command, at string) (*api.Client, error) {
	base, err := controllerURL(at)
	if err != nil {
		return nil, err
	}
	ca, _ := cmd.Flags().GetString("ca")
	token, err := accessToken(cmd)
	if err != nil {
		return nil, err
	}
	if token == "" {
		kept, err := readSession(base)
		if err != nil {
			return nil, err
		}
		if kept.Token == "" {
			return nil, errors.New("a controller elsewhere requires a token\nhint: sluice-controller login logs you in; --token-file FILE takes a token of \"sluice-controller access create\"")
		}
		token, ca = kept.Token, cmp.Or(ca, kept.CA)
	}
	config, err := certifiedBy(ca)
	if err != nil {
		return nil, err
	}
	return api.NewRemote(base, token, config), nil
}

// certifiedBy is how a controller elsewhere is known: by the certificates of a file, or by
// those of the system.
func certifiedBy(file string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if file == "" {
		return config, nil
	}
	text, err := regular.Read(file, 1<<20)
	if err != nil {
		return nil, err
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return config, nil
}

// accessToken is the token by which a command asks; "" where none is given.
func accessToken(cmd *cobra.Command) (string, error) {
	from := "$" + tokenVariable
	text := os.Getenv(tokenVariable)
	if file, _ := cmd.Flags().GetString("token-file"); file != "" {
		var body []byte
		var err error
		if from = file; file == "-" {
			from = "standard input"
			body, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), 4096))
		} else {
			body, err = regular.Read(file, 4096)
		}
		if err != nil {
			return "", err
		}
		text = string(body)
	}
	text = strings.TrimSpace(text)
	if text == "" && from == "$"+tokenVariable {
		return "", nil
	}
	if _, err := api.SecretHash(text); err != nil {
		return "", fmt.Errorf("%s: %w", from, err)
	}
	return text, nil
}

// hintedGuest is hinted of what names a guest.
func hintedGuest(err error) error {
	if f := (*wire.Failure)(nil); errors.As(err, &f) && f.Kind == wire.KindNotFound {
		return fmt.Errorf("%w\nhint: sluice-controller guest list names those that there are", err)
	}
	return hinted(err)
}

// hinted says what to do about an error of a controller that was asked.
func hinted(err error) error {
	if errors.Is(err, api.ErrNotRunning) {
		return fmt.Errorf("%w\nhint: sluice-controller run starts one; --dir names its directory, --controller one elsewhere", err)
	}
	if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
		return fmt.Errorf("%w\nhint: --ca FILE names its CA: ca.pem of the controller's directory, unless it has another certificate", err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w\nhint: root and the user that the controller runs as may use it", err)
	}
	if waits := (*api.WaitingError)(nil); errors.As(err, &waits) {
		return waiting(err)
	}
	f := (*wire.Failure)(nil)
	if !errors.As(err, &f) {
		return err
	}
	switch f.Kind {
	case wire.KindNotFound:
		return fmt.Errorf("%w\nhint: sluice-controller hosts lists those that are enrolled", err)
	case wire.KindUnknownCaller:
		return fmt.Errorf("%w\nhint: sluice-controller login logs you in; \"sluice-controller access create\" makes a token for a program", err)
	}
	return err
}

// later is hinted of what makes a secret, which is printed where it is good once somebody has
// approved it: nobody can say it afterwards.
func later(cmd *cobra.Command, secret string, err error) error {
	if is := (*api.WaitingError)(nil); !errors.As(err, &is) {
		return hinted(err)
	}
	if command.JSON(cmd) {
		return errors.Join(command.PrintJSON(cmd.OutOrStdout(), map[string]string{"secret": secret, "waits": err.Error()}), command.ErrFound)
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "what is printed is valid once somebody has approved it; keep it until then")
	fmt.Fprintln(cmd.OutOrStdout(), secret)
	return waiting(err)
}

// waiting is what ends a command whose request waits for approval, or did not get it; other
// errors stay as they are.
func waiting(err error) error {
	is := (*api.WaitingError)(nil)
	if !errors.As(err, &is) {
		return err
	}
	text := err.Error()
	if is.Request.State == api.RequestWaiting {
		text += fmt.Sprintf("\nhint: somebody else approves it with sluice-controller approve %s; sluice-controller requests %[1]s shows the result", is.Request.Id)
	}
	return command.Found(text)
}

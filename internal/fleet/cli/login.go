package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"sluice/internal/base/regular"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
)

// session is a login that is kept for the commands after it.
type session struct {
	Token   string    `json:"token"`
	Who     string    `json:"who"`
	CA      string    `json:"ca,omitempty"` // the file of certificates
	Expires time.Time `json:"expires"`
}

// sessionsFile is where logins are kept, by the controller's URL.
func sessionsFile() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "sluice-controller", "sessions.json"), err
}

func readSessions() (map[string]session, error) {
	all := map[string]session{}
	file, err := sessionsFile()
	if err != nil {
		return all, nil //nolint:nilerr // who has no home has no logins
	}
	text, err := regular.Read(file, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		if err = json.Unmarshal(text, &all); err != nil {
			err = fmt.Errorf("%s: %w\nhint: remove it, and log in anew", file, err)
		}
	}
	return all, err
}

func readSession(controller string) (session, error) {
	all, err := readSessions()
	return all[controller], err
}

// keepSession keeps a login; one without a token is forgotten.
func keepSession(controller string, s session) error {
	all, err := readSessions()
	if err != nil {
		return err
	}
	for at, is := range all {
		if at == controller || is.Expires.Before(time.Now()) {
			delete(all, at)
		}
	}
	if s.Token != "" {
		all[controller] = s
	}
	file, err := sessionsFile()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(file, append(text, '\n'), 0o600)
}

func newLogin() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "login LINK",
		Short: "Log in at a controller elsewhere",
		Long: `Logs you in at a controller by a link that "sluice-controller access link" made, for twelve
hours. The commands that name that controller by --controller or SLUICE_CONTROLLER ask by this
session from then on. LINK may be -, which reads it from standard input.

Files: sluice-controller/sessions.json in your configuration folder (~/.config), which nobody
else may read.

Exit status: 0 you are logged in, 2 bad use, or the controller says no.`,
		Example: "  sluice-controller login 'https://controller.example.net:8443/login?link=sluice_access_…'\n  sluice-controller login - --ca ca.pem",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := args[0]
			if text == "-" {
				body, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 4096))
				if err != nil {
					return err
				}
				text = strings.TrimSpace(string(body))
			}
			base, link, err := readLink(text)
			if err != nil {
				return err
			}
			return logIn(cmd, base, func(ctx context.Context, s *session) error {
				config, err := certifiedBy(s.CA)
				if err != nil {
					return err
				}
				var a *api.Access
				s.Token, a, err = api.LogIn(ctx, base, link, config)
				if err == nil {
					s.Who, s.Expires = a.Who, a.Expires
				}
				return err
			})
		},
	}
	cmd.Flags().String("ca", "", "`FILE` of certificates that certify it (default those of the system)")
	return cmd
}

// readLink is the controller of a link, and what it is known by there.
func readLink(text string) (base, link string, err error) {
	is, err := url.Parse(text)
	if err == nil {
		link = is.Query().Get("link")
		_, err = api.SecretHash(link)
	}
	if err != nil || is.Path != "/login" {
		return "", "", errors.New("this is no link to log in: one is https://HOST:PORT/login?link=…\nhint: \"sluice-controller access link USER\" makes one")
	}
	base, err = controllerURL(is.Scheme + "://" + is.Host)
	return base, link, err
}

// logIn has a session begun, keeps it, and says who is logged in.
func logIn(cmd *cobra.Command, base string, begin func(context.Context, *session) error) error {
	s := session{}
	if ca, _ := cmd.Flags().GetString("ca"); ca != "" {
		var err error
		if s.CA, err = filepath.Abs(ca); err != nil {
			return err
		}
	}
	if err := begin(cmd.Context(), &s); err != nil {
		return hinted(err)
	}
	if err := keepSession(base, s); err != nil {
		return err
	}
	config, err := certifiedBy(s.CA)
	if err != nil {
		return err
	}
	is, err := api.NewRemote(base, s.Token, config).Session(cmd.Context())
	if err != nil {
		return hinted(err)
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), is)
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "you are logged in at %s as %s until %s\n", base, command.Plain(is.Who), until(is.Expires, time.Time{}))
	for _, g := range is.Grants {
		fmt.Fprintf(w, "  %s for %s\n", g.Role, ofHosts(g.Hosts))
	}
	if os.Getenv(controllerVariable) != base {
		fmt.Fprintf(cmd.ErrOrStderr(), "commands ask it with: export %s=%s\n", controllerVariable, base)
	}
	return nil
}

func newLogout() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logout",
		Short: "End your session at a controller",
		Long: `Ends the session by which you ask the controller that --controller or SLUICE_CONTROLLER
names, there and here.

Exit status: 0 it is over, 2 bad use, or no controller answers: then it is forgotten here alone.`,
		Example: "  sluice-controller logout",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, _ := cmd.Flags().GetString("controller")
			if at == "" {
				at = os.Getenv(controllerVariable)
			}
			base, err := controllerURL(at)
			if err != nil {
				return err
			}
			c, err := remote(cmd, base)
			if err != nil {
				return err
			}
			ended := c.EndSession(cmd.Context())
			if err := errors.Join(ended, keepSession(base, session{})); err != nil {
				return hinted(err)
			}
			if command.JSON(cmd) {
				return command.PrintJSON(cmd.OutOrStdout(), map[string]string{"logged-out": base})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "you are logged out at %s\n", base)
			return nil
		},
	}
	addController(cmd)
	return cmd
}

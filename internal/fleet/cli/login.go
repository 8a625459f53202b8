package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
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
			err = fmt.Errorf("%s: %w\nhint: remove it, and log in again", file, err)
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
		Use:   "login URL",
		Short: "Log in at a controller elsewhere",
		Long: `Logs you in at a controller for twelve hours: in a browser, at the provider that "run
--oidc-issuer" names, or by a link that "sluice-controller access link" made, which is then
URL. Commands that name that controller with --controller or SLUICE_CONTROLLER use this session
from then on. With - the URL is read from standard input.

A browser is opened with xdg-open, if there is one. The page must be opened on this machine, since
it returns to a port here.

Files: sluice-controller/sessions.json in your configuration folder (~/.config), which nobody
else may read.

Exit status: 0 you are logged in, 2 bad use, or the controller refuses.`,
		Example: `  sluice-controller login https://controller.example.net:8443
  sluice-controller login 'https://controller.example.net:8443/login?link=sluice_access_…'
  sluice-controller login - --ca ca.pem`,
		Args: cobra.ExactArgs(1),
		RunE: runLogin,
	}
	cmd.Flags().String("ca", "", "trust the certificates in `FILE` (default those of the system)")
	return cmd
}

func runLogin(cmd *cobra.Command, args []string) error {
	text := args[0]
	if text == "-" {
		body, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 4096))
		if err != nil {
			return err
		}
		text = strings.TrimSpace(string(body))
	}
	if base, err := controllerURL(text); err == nil {
		return logIn(cmd, base, func(ctx context.Context, token string) (string, error) { return inBrowser(ctx, cmd, base, token) })
	}
	base, link, err := readLink(text)
	if err != nil {
		return err
	}
	return logIn(cmd, base, func(context.Context, string) (string, error) { return link, nil })
}

// browserTime is how long a person has to log in there.
const browserTime = 10 * time.Minute

// inBrowser has a person log in at the provider, for a session that asks by a token, and
// waits for the link that the controller sends back.
func inBrowser(ctx context.Context, cmd *cobra.Command, base, token string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, browserTime)
	defer cancel()
	hash, err := api.SecretHash(token)
	if err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	links := make(chan string, 1)
	path := "/" + rand.Text() // what else comes to the port is not for it
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		link := r.URL.Query().Get("link")
		if _, err := api.SecretHash(link); err != nil || r.URL.Path != path {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintln(w, "You are logged in. Go back to the terminal.")
		select {
		case links <- link:
		default:
		}
	})}
	go func() { _ = s.Serve(l) }()
	defer func() { _ = s.Shutdown(context.WithoutCancel(ctx)) }()
	page := base + "/login?back=" + url.QueryEscape("http://"+l.Addr().String()+path) + "&binds=" + hex.EncodeToString(hash[:])
	fmt.Fprintf(cmd.ErrOrStderr(), "log in there, in a browser on this machine:\n  %s\n", page)
	if opener, err := exec.LookPath("xdg-open"); err == nil && os.Getenv("DISPLAY")+os.Getenv("WAYLAND_DISPLAY") != "" {
		_ = exec.CommandContext(ctx, opener, page).Start() // else the person does
	}
	select {
	case link := <-links:
		return link, nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return "", fmt.Errorf("nobody has logged in within %s", browserTime)
		}
		return "", command.ErrInterrupted
	}
}

// readLink is the controller of a link, and what it is known by there.
func readLink(text string) (base, link string, err error) {
	is, err := url.Parse(text)
	if err == nil {
		link = is.Query().Get("link")
		_, err = api.SecretHash(link)
	}
	if err != nil || is.Path != "/login" {
		return "", "", errors.New("this is neither a controller, https://HOST:PORT, nor a link to log in, https://HOST:PORT/login?link=…\nhint: \"sluice-controller access link USER\" makes one")
	}
	base, err = controllerURL(is.Scheme + "://" + is.Host)
	return base, link, err
}

// logIn begins a session by a link that is for its token, keeps it, and says who is logged in.
func logIn(cmd *cobra.Command, base string, linkFor func(ctx context.Context, token string) (string, error)) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	s := session{Token: api.NewSecret()}
	if ca, _ := cmd.Flags().GetString("ca"); ca != "" {
		var err error
		if s.CA, err = filepath.Abs(ca); err != nil {
			return err
		}
	}
	config, err := certifiedBy(s.CA)
	if err != nil {
		return err
	}
	link, err := linkFor(ctx, s.Token)
	if err != nil {
		return err
	}
	a, err := api.LogIn(ctx, base, link, s.Token, config)
	if err != nil {
		return hinted(err)
	}
	s.Who, s.Expires = a.Who, a.Expires
	if err := keepSession(base, s); err != nil {
		return err
	}
	is, err := api.NewRemote(base, s.Token, config).Session(ctx)
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
		Long: `Ends your session at the controller that --controller or SLUICE_CONTROLLER names, there and here.

Exit status: 0 it has ended; 2 bad use, or no controller answers: then it ended only here.`,
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

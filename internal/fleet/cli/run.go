package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sluice"
	"sluice/internal/base/regular"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/controller"
	"sluice/internal/fleet/notices"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Serve the hosts of a fleet",
		Long: `Serves the agents of a fleet's hosts, over TLS 1.3 with certificates of the fleet's own CA,
and the other commands, on controller.sock in its directory (for root and the user that it runs
as). It runs until it is stopped; on SIGTERM it first asks the agents to reconnect, each after a
different time.

With --web it also serves people and programs elsewhere, over HTTPS, with a token from
"sluice-controller access create". The certificate is issued by the fleet's own CA, whose ca.pem
the other commands take with --ca, or is read from files, which are read again when they change.
People log in with links from "sluice-controller access link", or with --oidc-issuer at their
provider; "access" in fleet.yaml says what they may do.

With --sign-in and --key it signs the drafts that an admin rolls out, in a repository here, if
fleet.yaml says signing: controller. A small fleet then needs no operator with a key, but whoever
takes over this machine can push policies.

Hosts stay as they are while no controller runs. While the database does not answer, hosts
get what was known last, and commands that change something are refused.

Files: keys/, ca.pem and trust.json in its directory, which "sluice-controller init" makes;
fleet.db there, unless --database says otherwise; notices.yaml there says who gets notices (the
journal without that file).

` + passphraseHelp + `

Exit status: 0 it was stopped, 2 it could not start, or had to end.`,
		Example: `  sluice-controller run
  sluice-controller run --dir ./controller --listen 127.0.0.1:7443 --reached-by 127.0.0.1:7443
  sluice-controller run --web :8443 --web-certificate fullchain.pem --web-key privkey.pem
  sluice-controller run --database postgres://sluice@db.example.net/fleet`,
		Args: cobra.NoArgs,
		RunE: runController,
	}
	addDatabase(cmd)
	flags := cmd.Flags()
	flags.String("listen", ":"+strconv.Itoa(wire.Port), "serve agents at `ADDRESS:PORT`")
	flags.StringSlice("reached-by", nil, "`HOST:PORT` where hosts reach it, which new hosts are told; more than one may be given (default this machine's name, and the port)")
	flags.String("web", "", "serve people and programs at `ADDRESS:PORT`, such as :8443 (default nowhere)")
	flags.String("web-certificate", "", "`FILE` of the certificate of --web, with its chain (default one of the fleet's CA)")
	flags.String("web-key", "", "`FILE` of its key")
	flags.String("web-url", "", "`URL` at which browsers reach --web (default https://, the first of --reached-by, and the port)")
	flags.String("oidc-issuer", "", "let people log in at --web by the OpenID Connect provider at `URL`, which sends them back to /login/callback there")
	flags.String("oidc-client", "", "the controller's `ID` at the provider")
	flags.String("oidc-secret-file", "", "`FILE` of its secret there (default none: a public client)")
	flags.String("oidc-groups", "groups", "the `CLAIM` that has the groups of a person")
	cmd.MarkFlagsRequiredTogether("web-certificate", "web-key")
	cmd.MarkFlagsRequiredTogether("oidc-issuer", "oidc-client")
	addOnlineSigning(cmd)
	return cmd
}

// collectAt is by how much the heap grows before it is collected: half the default, since what
// a controller has for each host is memory that it keeps.
const collectAt = 50 // percent

func runController(cmd *cobra.Command, _ []string) (err error) {
	debug.SetGCPercent(collectAt)
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	dir, _ := cmd.Flags().GetString("dir")
	at, _ := cmd.Flags().GetString("listen")
	reached, _ := cmd.Flags().GetStringSlice("reached-by")
	for _, r := range reached {
		if _, port, err := net.SplitHostPort(r); err != nil || port == "" {
			return fmt.Errorf("--reached-by %s: it is HOST:PORT", r)
		}
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: there is no controller\nhint: sluice-controller init makes one; --dir names another directory", dir)
	}
	if _, err := api.NewClient(dir).Status(ctx); err == nil { // before its keys and trust.json are used by two
		return fmt.Errorf("%s: another controller runs in this directory", dir)
	}
	if err := restoredWhole(dir); err != nil {
		return err
	}
	sign, err := onlineSigning(cmd, dir)
	if err != nil {
		return err
	}
	people, err := notices.Load(dir, func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), "notice: "+text) })
	if err != nil { // hosts need a controller more than people its notices
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: started without the faulty parts:\n%s\n", notices.File, people.Wrong)
	}
	s, err := store.Open(ctx, databaseOf(cmd))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	defer l.Close()
	if len(reached) == 0 {
		if reached, err = here(l.Addr()); err != nil {
			return err
		}
	}
	web, err := listenWeb(cmd, reached[0])
	if err != nil {
		return err
	}
	if web != nil {
		defer web.Listener.Close()
	}
	c, err := controller.New(ctx, controller.Options{
		Dir: dir, Store: s, Version: sluice.Version(), Controllers: reached, Fetch: command.FetchRanges("sluice-controller"), Web: web, Notices: people, Sign: sign,
		Note: func(err error) { fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+err.Error()) },
	})
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w\nhint: sluice-controller init makes a controller; --dir names another directory", err)
	}
	if err != nil {
		return databaseHint(err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "serves the fleet %s at %s, which hosts reach by %s\n", c.Fleet(), l.Addr(), reached[0])
	if web != nil {
		fmt.Fprintf(cmd.OutOrStdout(), "serves people and programs at %s\n", web.URL)
	}
	return databaseHint(c.Run(ctx, l))
}

// listenWeb listens where --web says, on a machine that hosts reach so; nil where it says
// nothing.
func listenWeb(cmd *cobra.Command, reached string) (*controller.Web, error) {
	flags := cmd.Flags()
	at, _ := flags.GetString("web")
	web := &controller.Web{}
	web.Certificate, _ = flags.GetString("web-certificate")
	web.Key, _ = flags.GetString("web-key")
	web.URL, _ = flags.GetString("web-url")
	var err error
	if web.Provider, err = providerOf(cmd); err != nil {
		return nil, err
	}
	if at == "" {
		if web.Certificate != "" || web.URL != "" || web.Provider != nil {
			return nil, errors.New("--web-certificate, --web-url and --oidc-issuer require --web")
		}
		return nil, nil
	}
	if web.URL != "" {
		is, err := controllerURL(web.URL)
		if err != nil {
			return nil, fmt.Errorf("--web-url: %w", err)
		}
		web.URL = is
	}
	if web.Listener, err = net.Listen("tcp", at); err != nil || web.URL != "" {
		return web, err
	}
	host, _, err := net.SplitHostPort(reached)
	_, port, badly := net.SplitHostPort(web.Listener.Addr().String())
	web.URL = "https://" + net.JoinHostPort(host, port)
	return web, errors.Join(err, badly)
}

// here is where hosts reach a listener: this machine's name where it listens on all of its
// addresses.
func here(at net.Addr) ([]string, error) {
	tcp, is := at.(*net.TCPAddr)
	if !is {
		return nil, fmt.Errorf("%s is not a TCP address", at)
	}
	if !tcp.IP.IsUnspecified() {
		return []string{tcp.String()}, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return []string{net.JoinHostPort(name, strconv.Itoa(tcp.Port))}, nil
}

// providerOf is the provider that people log in with; nil where none is named.
func providerOf(cmd *cobra.Command) (*controller.Provider, error) {
	flags := cmd.Flags()
	p := &controller.Provider{}
	if p.Issuer, _ = flags.GetString("oidc-issuer"); p.Issuer == "" {
		return nil, nil
	}
	is, err := url.Parse(p.Issuer)
	if err != nil {
		return nil, fmt.Errorf("--oidc-issuer: %w", err)
	}
	if ip := net.ParseIP(is.Hostname()); is.Host == "" || is.Scheme != "https" && !(is.Scheme == "http" && ip != nil && ip.IsLoopback()) {
		return nil, fmt.Errorf("--oidc-issuer %s: it is https://…", p.Issuer)
	}
	p.Client, _ = flags.GetString("oidc-client")
	p.GroupsClaim, _ = flags.GetString("oidc-groups")
	if file, _ := flags.GetString("oidc-secret-file"); file != "" {
		text, err := regular.Read(file, 4096)
		if err != nil {
			return nil, err
		}
		p.Secret = strings.TrimSpace(string(text))
	}
	return p, nil
}

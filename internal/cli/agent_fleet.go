package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/agent/fleet"
	"sluice/internal/base/regular"
	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
	"sluice/internal/fleet/trust"
	protocol "sluice/internal/fleet/wire"
	"sluice/internal/system/kernel/netns"
)

func newAgentEnrol() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enrol URL",
		Short: "Enrol this host in a fleet",
		Long: `Has the controller of a fleet certify this host, which then runs the policy that the fleet
signs for it. The token comes from "sluice-controller token create" and names the fleet's
root.json by its SHA-256. Nothing is sent, not even the token or a name, until the controller
has shown that file. The host's key is made here and never leaves. The labels that the token
gives select the parts of the policy, and no controller can change them.

A running "sluice agent" notices by itself. The policy that runs stays until the fleet sends one.
Where that is a policy of the host's own, the command asks first; elsewhere than on a terminal it
then needs --yes. The fleet's policy comes on trial, as each of its policies does: the host refuses
one that locks out who is logged in over ssh, and takes one back whose probes fail. The host's own
stays in its history, and "sluice agent leave" and "sluice rollback N" bring it back.

With a token from "token create --approve" the command waits until an admin of the fleet
lets this host in, and prints the hash of its key for them to compare. You can stop it and
start it again meanwhile.
` + filesHelp + `

Exit status: 0 enrolled, 1 answered no, 2 bad use, or refused.`,
		Example: "  sluice agent enrol https://controller.example.net:7443 --token-file token\n  ssh controller sluice-controller token create | sluice agent enrol https://controller.example.net:7443 --token-file -",
		Args:    cobra.ExactArgs(1),
		RunE:    runEnrol,
	}
	cmd.Flags().String("token-file", "", "read the token from `FILE`, or from standard input for -")
	cmd.Flags().String("name", "", "use the name `ID` in the fleet instead of the host name")
	cmd.Flags().Bool("yes", false, "do not ask before a policy of the host's own is to be replaced")
	command.Must(cmd.MarkFlagRequired("token-file"))
	return cmd
}

// mostToken is how large a token may be, in bytes.
const mostToken = 64 << 10

func runEnrol(cmd *cobra.Command, args []string) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	h, err := hostOf(cmd)
	if err != nil {
		return err
	}
	controller, err := controllerOf(args[0])
	if err != nil {
		return err
	}
	token, err := readToken(cmd)
	if err != nil {
		return err
	}
	own, err := ownPolicy(h.Host)
	if err != nil {
		return err
	}
	if own != nil {
		what := fmt.Sprintf(`this host runs generation %d, a policy of its own (%s)
  the fleet's first policy for this host replaces it, on trial
  generation %d stays in the history: sluice agent leave%s and sluice rollback%s %d bring it back`,
			own.Number, command.PlainName(own.Policy), own.Number, command.HereArguments(cmd), command.HereArguments(cmd), own.Number)
		if err := agreed(cmd, what+"\nenrol this host?", what); err != nil {
			return err
		}
	}
	id, _ := cmd.Flags().GetString("name")
	if id == "" {
		if id, err = os.Hostname(); err != nil {
			return err
		}
	}
	facts, err := readFacts(ctx, "", optionsOf(cmd))
	if err != nil {
		return err
	}
	here, err := netns.Here()
	if err != nil {
		return err
	}
	defer here.Close()
	e := fleet.Enrolment{
		Host: h.Host, ID: strings.ToLower(id), Controller: controller, Token: token, Dialer: here.Dial,
		Waiting: func(text, key string) {
			note(cmd, fmt.Sprintf("%s\nthe key of this host is %s; waiting until an admin lets it in", text, key))
		},
	}
	for _, i := range facts.Interfaces {
		for _, a := range i.Addresses {
			if a.Addr().IsGlobalUnicast() {
				e.Addresses = append(e.Addresses, a.Addr())
			}
		}
	}
	e.Addresses = e.Addresses[:min(len(e.Addresses), mostAddresses)]
	m, err := fleet.Enrol(ctx, e)
	if member := (*fleet.MemberError)(nil); errors.As(err, &member) {
		return fmt.Errorf("%w\nhint: sluice agent leave%s takes it out; the running policy stays", err, command.HereArguments(cmd))
	}
	if err != nil {
		return fmt.Errorf("%w%s", err, enrolHint(err, token))
	}
	return answer(cmd, m, false, func(w io.Writer) {
		fmt.Fprintf(w, "this host is %s of fleet %s\n", m.Host, m.Fleet)
		if len(m.Labels) > 0 {
			fmt.Fprintf(w, "labels: %s\n", labelsText(m.Labels))
		}
		if own != nil {
			fmt.Fprintf(w, "generation %d, of %s, runs until the fleet sends a policy\n", own.Number, command.PlainName(own.Policy))
		}
	})
}

// ownPolicy is the generation of a policy of the host's own that runs, and that one of a fleet
// would replace; nil where none does, and on a host that is of a fleet.
func ownPolicy(h *apply.Host) (*apply.Generation, error) {
	m, err := h.Membership()
	if m != nil || err != nil {
		return nil, err
	}
	all, err := h.History()
	if err != nil {
		return nil, err
	}
	for _, g := range all.Generations {
		if g.Number == all.Running && !g.Closed && !h.InBundle(g.In(g.Policy)) {
			return g, nil
		}
	}
	return nil, nil
}

// enrolHint is what to do about a token that lets nobody in.
func enrolHint(err error, token trust.Token) string {
	var f *protocol.Failure
	switch {
	case errors.Is(err, trust.ErrForeignFleet):
		return fmt.Sprintf("\nhint: the token is for %s: enrol there, or make one in the repository of this controller with sluice-controller token create", strings.Join(token.Controllers, " or "))
	case errors.Is(err, fleet.ErrWaited):
		return "\nhint: run the same command with the same token to go on waiting"
	case errors.As(err, &f) && f.Kind == protocol.KindToken:
		return "\nhint: sluice-controller token create makes another one; --for and --uses set how long it is valid, and for how many hosts"
	}
	return ""
}

// mostAddresses is how many addresses a controller is told.
const mostAddresses = 64

// controllerOf is the HOST:PORT of a controller's URL.
func controllerOf(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("%.200q is not the URL of a controller\n  hint: write https://HOST:7443", text)
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "7443")), nil
}

func readToken(cmd *cobra.Command) (trust.Token, error) {
	name, _ := cmd.Flags().GetString("token-file")
	var text []byte
	var err error
	if name == "-" {
		text, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), mostToken))
	} else {
		text, err = regular.Read(name, mostToken)
	}
	if err != nil {
		return trust.Token{}, err
	}
	return trust.ParseToken(strings.TrimSpace(string(text)))
}

func newAgentLeave() *cobra.Command {
	return &cobra.Command{
		Use:   "leave",
		Short: "Take this host out of its fleet",
		Long: `Deletes what this host has of the fleet: its key, its labels, the fleet's keys. The policy
that runs stays, also after a reboot; from now on "sluice apply" changes it. The controller
is not notified: "sluice-controller hosts" lists the host as offline until you remove it there.
` + filesHelp + `

Exit status: 0 it has left, 2 it was in no fleet, or a file could not be removed.`,
		Example: "  sluice agent leave",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := hostOf(cmd)
			if err != nil {
				return err
			}
			m, err := fleet.Leave(h.Host)
			if err != nil {
				return err
			}
			return answer(cmd, m, false, func(w io.Writer) {
				fmt.Fprintf(w, "this host has left fleet %s; the running policy stays\n", m.Fleet)
				fmt.Fprintf(w, "to take it off the list of the fleet, run there: sluice-controller revoke %s\n", m.Host)
			})
		},
	}
}

func newAgentAttach() *cobra.Command {
	return &cobra.Command{
		Use:   "attach",
		Short: "Follow the policy of the fleet again",
		Long: `Undoes "sluice apply --detach": the agent applies the policy of the fleet again, on trial as
usual.
` + filesHelp + `

Exit status: 0 attached, 2 the host is in no fleet, or a file could not be removed.`,
		Example: "  sluice agent attach",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := hostOf(cmd)
			if err != nil {
				return err
			}
			if err := h.Attach(); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			m, err := h.Membership()
			if err != nil {
				return err
			}
			return answer(cmd, m, false, func(w io.Writer) { fmt.Fprintf(w, "fleet %s decides which policy runs\n", m.Fleet) })
		},
	}
}

// printFleet says where the host is with what its fleet desires.
func printFleet(w io.Writer, f *apply.InFleet, here string) {
	if f == nil {
		return
	}
	text := fmt.Sprintf("%s of %s", f.Host, f.Fleet)
	if f.Bundle > 0 {
		text += fmt.Sprintf(", bundle %d %s", f.Bundle, f.State)
	}
	if f.Running != f.Bundle {
		text += choice(f.Running > 0, fmt.Sprintf(", bundle %d runs", f.Running), ", and no bundle runs")
	}
	fmt.Fprintf(w, "fleet        %s\n", command.PlainName(text))
	if f.Error != "" && f.Detached == nil {
		fmt.Fprintf(w, "%s        %s\n", command.Paint(w, "31", "fleet"), plainLines(f.Error))
	}
	if d := f.Detached; d != nil {
		fmt.Fprintf(w, "%s        detached since %s%s: sluice agent attach%s follows the fleet again\n", command.Paint(w, "33", "fleet"), d.Time.Local().Format(time.DateTime), by(d.By), here)
	}
	switch {
	case !f.Lost.IsZero():
		fmt.Fprintf(w, "%s        no controller reached since %s: %s\n", command.Paint(w, "33", "fleet"), f.Lost.Local().Format(time.DateTime), plainLines(f.Why))
	case f.Reached.IsZero():
		fmt.Fprintf(w, "%s        no controller reached yet: is sluice-agent.service running?\n", command.Paint(w, "33", "fleet"))
	}
}

// plainLines is a text of another machine below a label.
func plainLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = command.PlainName(lines[i])
	}
	return strings.Join(lines, "\n             ")
}

// labelsText is labels as selectors write them.
func labelsText(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return strings.Join(out, ", ")
}

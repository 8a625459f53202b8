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
		Short: "Make this host one of a fleet",
		Long: `Has a controller of a fleet certify this host, which then runs the policy that the fleet
signs for it. The token is of "sluice-controller token create": it names the fleet's
root.json by its SHA-256, and nothing is sent, neither the token nor a name, before the
controller has shown that file. The host's key is made here and stays here, as do the labels that the token
gives: they select the parts of the policy, and no controller changes them.

"sluice agent" notices by itself, and needs no other policy; what runs stays until the fleet
desires one.

Where the token is one of "token create --approve" it waits until an admin of the fleet lets
this host in, and prints the hash of its key for them. It may be ended and begun again meanwhile,
and the controller too.
` + filesHelp + `

Exit status: 0 the host is of the fleet, 2 bad use, or it was refused.`,
		Example: "  sluice agent enrol https://controller.example.net:7443 --token-file token\n  ssh controller sluice-controller token create | sluice agent enrol https://controller.example.net:7443 --token-file -",
		Args:    cobra.ExactArgs(1),
		RunE:    runEnrol,
	}
	cmd.Flags().String("token-file", "", "read the token from `FILE`, - being standard input")
	cmd.Flags().String("name", "", "be called `ID` in the fleet; the name of this host when left out")
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
			note(cmd, fmt.Sprintf("%s\nthe key of this host is %s; this waits until it is let in", text, key))
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
		return fmt.Errorf("%w\nhint: sluice agent leave%s takes it out, and what runs stays", err, command.HereArguments(cmd))
	}
	if err != nil {
		return fmt.Errorf("%w%s", err, enrolHint(err, token))
	}
	return answer(cmd, m, false, func(w io.Writer) {
		fmt.Fprintf(w, "this host is %s of fleet %s\n", m.Host, m.Fleet)
		if len(m.Labels) > 0 {
			fmt.Fprintf(w, "labels: %s\n", labelsText(m.Labels))
		}
	})
}

// enrolHint is what to do about a token that lets nobody in.
func enrolHint(err error, token trust.Token) string {
	var f *protocol.Failure
	switch {
	case errors.Is(err, trust.ErrForeignFleet):
		return fmt.Sprintf("\nhint: the token is for %s: enrol there, or make one in the repository of this controller with sluice-controller token create", strings.Join(token.Controllers, " or "))
	case errors.Is(err, fleet.ErrWaited):
		return "\nhint: the same command with the same token goes on waiting"
	case errors.As(err, &f) && f.Kind == protocol.KindToken:
		return "\nhint: sluice-controller token create makes another one; --for and --uses say how long it is good, and for how many hosts"
	}
	return ""
}

// mostAddresses is how many addresses a controller is told.
const mostAddresses = 64

// controllerOf is the HOST:PORT of a controller's URL.
func controllerOf(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("%.200q is not where a controller is\n  hint: write https://HOST:7443", text)
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
		Long: `Forgets the fleet: the host's key, its labels, what it believes. The policy that runs stays,
at the next boot too, and from then on "sluice apply" changes it. The controller is not
told: "sluice-controller hosts" shows the host as offline until it is removed there.
` + filesHelp + `

Exit status: 0 it is of no fleet, 2 it was of none, or a file could not be removed.`,
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
				fmt.Fprintf(w, "this host has left fleet %s; what runs stays\n", m.Fleet)
				fmt.Fprintf(w, "the fleet lists it until, there: sluice-controller revoke %s\n", m.Host)
			})
		},
	}
}

func newAgentAttach() *cobra.Command {
	return &cobra.Command{
		Use:   "attach",
		Short: "Have the fleet decide again which policy runs",
		Long: `Takes back what "sluice apply --detach" did: the agent brings the policy of the fleet into
force again, on trial as each one.
` + filesHelp + `

Exit status: 0 the fleet decides, 2 the host is of no fleet, or a file could not be removed.`,
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
		fmt.Fprintf(w, "%s        detached since %s%s: sluice agent attach%s has the fleet decide again\n", command.Paint(w, "33", "fleet"), d.Time.Local().Format(time.DateTime), by(d.By), here)
	}
	switch {
	case !f.Lost.IsZero():
		fmt.Fprintf(w, "%s        no controller is reached since %s: %s\n", command.Paint(w, "33", "fleet"), f.Lost.Local().Format(time.DateTime), plainLines(f.Why))
	case f.Reached.IsZero():
		fmt.Fprintf(w, "%s        no controller was reached yet: is sluice-agent.service running?\n", command.Paint(w, "33", "fleet"))
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

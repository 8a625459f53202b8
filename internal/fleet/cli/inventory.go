package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/base/regular"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/classes"
	"sluice/internal/fleet/inventory"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
)

func newInventory() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inventory",
		Short: "Write the hosts that the controller knows into the repository",
		Long: `Writes inventory.yaml from what the controller knows: each host with its labels, its addresses
and its facts, which go to facts/HOST.json beside it, and the guests on the hosts. "check", "test"
and "diff" then judge a change by the real hosts. Facts that are up to date are not fetched again,
and those of hosts that are gone are removed.

Exit status: 0 fine, 2 bad use, or no controller answers.`,
		Example: "  sluice-controller inventory && sluice-controller check",
		Args:    cobra.NoArgs,
		RunE:    writeInventory,
	}
	addController(cmd)
	addRepository(cmd.Flags())
	return cmd
}

// inventoryWritten is what happened to the file.
type inventoryWritten struct {
	File    string `json:"file"`
	Hosts   int    `json:"hosts"`
	Guests  int    `json:"guests"`
	Facts   int    `json:"facts"`   // hosts whose facts are known
	Fetched int    `json:"fetched"` // facts that were not here
	Changed bool   `json:"changed"`
}

// factsFolder is beside inventory.yaml.
const factsFolder = "facts"

func writeInventory(cmd *cobra.Command, _ []string) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	c := controllerOf(cmd)
	is, err := c.Inventory(ctx)
	if err != nil {
		return hinted(err)
	}
	out := inventoryWritten{File: inventoryFile(cmd), Hosts: len(is.Hosts)}
	dir := filepath.Dir(out.File)
	var text bytes.Buffer
	text.WriteString("# Written by sluice-controller inventory.\nversion: 1\nhosts:\n")
	keep := map[string]bool{}
	for _, h := range is.Hosts {
		line := struct {
			Labels    map[string]string `json:"labels,omitempty"`
			Addresses []string          `json:"addresses,omitempty"`
			Facts     string            `json:"facts,omitempty"`
		}{Labels: h.Labels}
		for _, a := range h.Addresses {
			line.Addresses = append(line.Addresses, a.String())
		}
		if h.Facts != "" {
			line.Facts = factsFolder + "/" + h.Host + ".json"
			out.Facts++
			keep[filepath.Join(dir, line.Facts)] = true
			fetched, err := fetchFacts(ctx, c, filepath.Join(dir, line.Facts), h.Facts)
			if err != nil {
				return err
			}
			if fetched {
				out.Fetched++
			}
		}
		value, err := json.Marshal(line)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "  %s: %s\n", h.Host, value) // JSON is YAML
	}
	if err := addGuests(ctx, c, &text, &out); err != nil {
		return err
	}
	before, err := inventory.Load(out.File)
	if err == nil {
		for _, h := range before.Hosts { // what only the old file named
			if h.Facts != "" && !keep[h.Facts] && filepath.Dir(h.Facts) == filepath.Join(dir, factsFolder) {
				if err := os.Remove(h.Facts); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
	}
	if had, err := regular.Read(out.File, 1<<30); err != nil || !bytes.Equal(had, text.Bytes()) {
		out.Changed = true
		if err := renameio.WriteFile(out.File, text.Bytes(), 0o644, renameio.WithTempDir(dir)); err != nil {
			return err
		}
	}
	if command.JSON(cmd) {
		return command.PrintJSON(cmd.OutOrStdout(), out)
	}
	said := "is as it was"
	if out.Changed {
		said = "is written"
	}
	guests := ""
	if out.Guests > 0 {
		guests = ", and " + english.Plural(out.Guests, "guest")
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s, %d with facts%s\n", out.File, said, english.Plural(out.Hosts, "host"), out.Facts, guests)
	return nil
}

// warnUnseen says which hosts of the controller the inventory of a repository, if it has one, does
// not know as they are: no check of the policy was for these.
func warnUnseen(ctx context.Context, cmd *cobra.Command, c *api.Client) {
	inv, err := inventory.Load(inventoryFile(cmd))
	if err != nil { // which "check" says
		return
	}
	is, err := c.Inventory(ctx)
	if err != nil { // what comes next says it too, if it matters
		return
	}
	var stale []string
	for _, h := range is.Hosts {
		switch has := inv.Host(h.Host); {
		case has == nil:
			stale = append(stale, h.Host)
		case !maps.Equal(has.Labels, h.Labels):
			stale = append(stale, h.Host)
		case h.Facts != "":
			if text, err := regular.Read(has.Facts, store.MaxFacts); err != nil || trust.HashOf(text) != h.Facts {
				stale = append(stale, h.Host)
			}
		}
	}
	if len(stale) > 0 {
		w := cmd.ErrOrStderr()
		fmt.Fprintf(w, "%s %s is out of date for %s: the policy was not checked against the labels and facts there are now; run sluice-controller inventory, then sluice-controller check\n",
			command.Paint(w, "33", "warning:"), inventoryFile(cmd), english.Few(stale, 3))
	}
}

// addGuests writes the machines on hosts.
func addGuests(ctx context.Context, c *api.Client, text *bytes.Buffer, out *inventoryWritten) error {
	guests, err := c.Guests(ctx, "", "")
	if err != nil {
		return hinted(err)
	}
	for i, g := range guests {
		if i == 0 {
			text.WriteString("guests:\n")
		}
		value, err := json.Marshal(struct {
			Host      string            `json:"host"`
			Interface string            `json:"interface"`
			Addresses []netip.Addr      `json:"addresses"`
			Public    []netip.Addr      `json:"public,omitempty"`
			Labels    map[string]string `json:"labels,omitempty"`
		}{g.Host, g.Interface, g.Addresses, g.Public, g.Labels})
		if err != nil {
			return err
		}
		fmt.Fprintf(text, "  %s: %s\n", g.Guest, value)
	}
	out.Guests = len(guests)
	return nil
}

// fetchFacts writes the facts of a hash to a file, unless they are there.
func fetchFacts(ctx context.Context, c *api.Client, path, hash string) (fetched bool, err error) {
	if had, err := regular.Read(path, store.MaxFacts); err == nil && trust.HashOf(had) == hash {
		return false, nil
	}
	text, err := c.Facts(ctx, hash)
	if err != nil {
		return false, err
	}
	if trust.HashOf(text) != hash {
		return false, fmt.Errorf("the controller's facts for %s do not match their hash", filepath.Base(path))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	return true, renameio.WriteFile(path, text, 0o644, renameio.WithTempDir(filepath.Dir(path)))
}

// inventoryFile is the file of the hosts of a repository.
func inventoryFile(cmd *cobra.Command) string {
	if file, _ := cmd.Flags().GetString("inventory"); file != "" {
		return file
	}
	return filepath.Join(repository(cmd), classes.InventoryFile)
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/fleet/bundle"
	"sluice/internal/fleet/classes"
	"sluice/internal/fleet/inventory"
	"sluice/internal/fleet/judge"
	"sluice/internal/language/source"
	"sluice/internal/prove/check"
)

// repositoryFiles is of the help of commands that read a repository.
const repositoryFiles = `Files: fleet.yaml and its parts, inventory.yaml, copies of lists in the user's cache.`

// addRepository gives a command the flags of those that work on a repository.
func addRepository(flags *pflag.FlagSet) {
	flags.String("repository", ".", "`DIR` of fleet.yaml and its parts")
	flags.String("inventory", "", "`FILE` of the hosts (default inventory.yaml in the repository)")
	command.Must(cobra.MarkFlagDirname(flags, "repository"))
	command.Must(cobra.MarkFlagFilename(flags, "inventory", "yaml", "yml"))
}

// addOffline is for commands that may download lists; others use the copies.
func addOffline(cmd *cobra.Command) {
	cmd.Flags().Bool("offline", false, "use the copies of lists, download none")
}

func repository(cmd *cobra.Command) string {
	dir, _ := cmd.Flags().GetString("repository")
	return dir
}

// readInventory reads the hosts of a repository.
func readInventory(cmd *cobra.Command) (*inventory.Inventory, error) {
	file := inventoryFile(cmd)
	inv, err := ownInventory(cmd, file)
	if errors.Is(err, fs.ErrNotExist) {
		policy := filepath.Join(repository(cmd), classes.FleetFile)
		if _, err := os.Stat(policy); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: no such file\nhint: --repository names the folder of a fleet.yaml; sluice-controller init creates one", policy)
		}
		return nil, fmt.Errorf("%s: no such file, which says what hosts the fleet has\nhint: write version: 1, and below hosts: a line for each, such as web-1: { labels: {role: web}, addresses: [203.0.113.5] }; --inventory names another file, and sluice-controller inventory writes it from the hosts of a controller; sluice check --labels role=web fleet.yaml checks one host without it", file)
	}
	return inv, err
}

// ownInventory reads an inventory. That of the repository, and the facts that it names, are
// in there.
func ownInventory(cmd *cobra.Command, file string) (*inventory.Inventory, error) {
	if cmd.Flags().Changed("inventory") {
		return inventory.Load(file)
	}
	files, err := bundle.Open(repository(cmd), nil)
	if err != nil {
		return nil, err
	}
	data, err := source.ReadFrom(files.Open, file, 1<<30)
	if err != nil {
		return nil, err
	}
	inv, err := inventory.Parse(file, data)
	if err != nil {
		return nil, err
	}
	for i := range inv.Hosts {
		h := &inv.Hosts[i]
		if h.Facts == "" {
			continue
		}
		if _, err := files.Real(h.Facts); errors.Is(err, bundle.ErrOutside) {
			return nil, fmt.Errorf("%s: %s: %w", h.FactsPos, h.Facts, bundle.ErrOutside)
		}
	}
	return inv, nil
}

// sources is where the names of policies are resolved from.
func sources(cmd *cobra.Command) (*engine.Sources, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find where copies of lists are kept: %w", err)
	}
	offline, err := cmd.Flags().GetBool("offline")
	offline = offline || err != nil // there is no such flag
	return &engine.Sources{State: filepath.Join(cache, "sluice"), Offline: offline, Fetch: command.FetchRanges("sluice-controller"), Warn: func(text string) {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+text)
	}}, nil
}

// readFleet reads the fleet of a repository as it is there.
func readFleet(cmd *cobra.Command) (*classes.Fleet, error) {
	from, err := sources(cmd)
	if err != nil {
		return nil, err
	}
	inv, err := readInventory(cmd)
	if err != nil {
		return nil, err
	}
	files, err := bundle.Open(repository(cmd), nil)
	if err != nil {
		return nil, err
	}
	return classes.Read(repository(cmd), files, inv, from)
}

// reading is a fleet whose hosts are in classes.
type reading struct {
	*classes.Fleet
	classes []*classes.Class
	found   []classes.Found // what is wrong with the rest
}

// classify reads the fleet of a repository, and parts its hosts into classes.
func classify(ctx context.Context, cmd *cobra.Command) (*reading, error) {
	f, err := readFleet(cmd)
	if err != nil {
		return nil, err
	}
	list, found, err := f.Classes(ctx)
	return &reading{f, list, found}, err
}

// classed reads the fleet in a folder as it would be with other hosts.
func classed(ctx context.Context, dir string, inv *inventory.Inventory, from *engine.Sources) (*reading, error) {
	files, err := bundle.Open(dir, nil)
	if err != nil {
		return nil, err
	}
	f, err := classes.Read(dir, files, inv, from)
	if err != nil {
		return nil, err
	}
	list, found, err := f.Classes(ctx)
	if err != nil {
		return nil, err
	}
	r := &reading{f, list, found}
	return r, r.sound()
}

// sound is the error of hosts that have no policy, where there are any.
func (r *reading) sound() error {
	var wrong []check.Finding
	for _, f := range classes.Join(r.found) {
		wrong = append(wrong, f.Finding)
	}
	withRemedies(wrong)
	return check.Errors(wrong)
}

// withRemedies words what findings say would fix them.
func withRemedies(findings []check.Finding) {
	for i := range findings {
		judge.Remedy(&findings[i])
	}
}

// counting draws how many of some classes are done, where somebody waits for it; it is
// called for each.
func counting(cmd *cobra.Command, what string, total int) (done func(*classes.Class)) {
	w := cmd.ErrOrStderr()
	if !command.IsTerminal(w) {
		return func(*classes.Class) {}
	}
	bar := progressbar.NewOptions(total, progressbar.OptionSetWriter(command.Bare(w)), progressbar.OptionSetWidth(30), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false), progressbar.OptionClearOnFinish())
	var mutex sync.Mutex
	return func(*classes.Class) {
		mutex.Lock()
		defer mutex.Unlock()
		_ = bar.Add(1)
	}
}

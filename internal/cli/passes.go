package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
)

// passesHelp is for the commands that compile.
const passesHelp = `
--passes=-NAME,-NAME skips passes of the optimizer, by the names that "sluice compile --explain"
shows; --passes=-all skips all optional ones. The rules mean the same without them.`

// passesForgotten is for the commands that load.
const passesForgotten = ` Unlike
--profile it applies once: the next apply runs all passes again, and only "sluice refresh" skips
what the last apply skipped.`

func addPasses(cmd *cobra.Command) {
	cmd.Flags().StringArray("passes", nil, "skip passes of the optimizer: `-NAME,-NAME`")
	command.Must(cmd.RegisterFlagCompletionFunc("passes", completePasses))
}

func completePasses(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	out := []string{"-" + allPasses}
	for _, name := range optimize.Optional() {
		out = append(out, "-"+name+"\t"+optimize.Named(name).Promises)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// allPasses is all that can be left out.
const allPasses = "all"

// passesLeftOut reads --passes, which may be given again.
func passesLeftOut(cmd *cobra.Command) ([]string, error) {
	given, _ := cmd.Flags().GetStringArray("passes")
	var out []string
	for item := range strings.SplitSeq(strings.Join(given, ","), ",") {
		item = strings.TrimSpace(item)
		name, isOut := strings.CutPrefix(item, "-")
		switch {
		case item == "":
			continue
		case name == allPasses && isOut:
			out = append(out, optimize.Optional()...)
			continue
		case name == allPasses:
			return nil, fmt.Errorf("--passes %s: every pass runs unless skipped\nhint: omit --passes, or give --passes=-all to skip all optional ones", item)
		}
		if err := optimize.CheckWithout([]string{name}); err != nil {
			return nil, fmt.Errorf("--passes: %w", err)
		}
		if !isOut {
			return nil, fmt.Errorf("--passes %s: every pass runs unless skipped\nhint: write --passes=-%s to skip it", item, name)
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// dumper writes the program after each pass into a directory.
type dumper struct {
	dir string
	n   int
	err error
}

func newDumper(dir string) (*dumper, error) {
	return &dumper{dir: dir}, emptied(dir, "[0-9][0-9]-*.txt")
}

// emptied makes a directory and removes what an earlier run wrote.
func emptied(dir, pattern string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, pattern))
	for _, file := range old {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

func (d *dumper) write(pass string, p *program.Program) {
	name := filepath.Join(d.dir, fmt.Sprintf("%02d-%s.txt", d.n, pass))
	d.n++
	if err := renameio.WriteFile(name, []byte(p.Text()), 0o644); err != nil && d.err == nil {
		d.err = fmt.Errorf("write %s: %w", name, err)
	}
}

// What --profile may say beside the name of a file.
const (
	profileRunning = "running"
	profileNone    = "none"
)

// profileHelp is for the commands that work on what runs.
const profileHelp = `
--profile puts rules that were hit often before those that were hit less, where the order does
not change the meaning, by the counters of the running firewall; --profile=FILE by those that
"sluice status --json" wrote. Later applies keep that order until you give --profile again, or
--profile=none.`

// policyAndProfile takes one policy at most. The file of --profile is behind
// "=": else it would be taken for the policy.
func policyAndProfile(cmd *cobra.Command, args []string) error {
	if from, _ := cmd.Flags().GetString("profile"); from == profileRunning && len(args) > 0 {
		at := slices.IndexFunc(args, func(file string) bool {
			_, err := readProfile(file)
			return err == nil
		})
		if at < 0 && len(args) > 1 {
			at = max(0, slices.IndexFunc(args, func(file string) bool { return filepath.Ext(file) == ".json" }))
		}
		if at >= 0 {
			return fmt.Errorf("%s is taken as the policy\nhint: join the file of --profile with \"=\": --profile=%s", args[at], args[at])
		}
	}
	return cobra.MaximumNArgs(1)(cmd, args)
}

func addProfile(cmd *cobra.Command) {
	cmd.Flags().String("profile", "", "order rules by the counters of the running policy, of a `FILE`, or none")
	cmd.Flags().Lookup("profile").NoOptDefVal = profileRunning
	command.Must(cmd.RegisterFlagCompletionFunc("profile", command.Words(profileRunning, profileNone)))
}

// countersError says that a file holds no counters.
type countersError struct{ file string }

func (e *countersError) Error() string { return e.file + ": no counters" }

// Hint is for words.Hinted.
func (e *countersError) Hint(here string) string {
	return "write them there with sluice status" + here + " --json"
}

// readProfile reads how often rules were hit from a file: what "sluice status
// --json" printed, or one object of packets by counter.
func readProfile(file string) (map[string]uint64, error) {
	data, err := command.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var status struct {
		Counters []struct {
			Name    string `json:"name"`
			Packets uint64 `json:"packets"`
		} `json:"counters"`
	}
	if err := json.Unmarshal(data, &status); err == nil && len(status.Counters) > 0 {
		out := map[string]uint64{}
		for _, c := range status.Counters {
			out[c.Name] = c.Packets
		}
		return out, nil
	}
	var out map[string]uint64
	if err := json.Unmarshal(data, &out); err != nil || len(out) == 0 {
		return nil, &countersError{file}
	}
	return out, nil
}

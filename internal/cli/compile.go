package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"sluice/internal/backend"
	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
)

// backendNames are what --backend takes.
func backendNames() (names []string) {
	for _, b := range engine.Backends() {
		names = append(names, b.Name())
	}
	return names
}

// compiledJSON is what "compile --json" prints.
type compiledJSON struct {
	Backend string         `json:"backend"`
	Text    string         `json:"text"`
	Cost    backend.Cost   `json:"cost"`
	Notes   []program.Note `json:"notes"`
}

func newCompile() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compile [FILE]",
		Short: "Print the ruleset that a policy compiles to",
		Long: `Compiles a policy (/etc/sluice/policy.yaml unless you give FILE) and prints the ruleset as
text that nft reads, with the policy's line on every rule. Nothing is loaded. The same policy,
lists, country data and host give the same bytes, as long as the figures of "sluice-lab bench
calibrate" are the same.

The policy is compiled for this host and its kernel; with --host for the host that "sluice
facts --json" described. That host's kernel cannot be probed, so optional features that only
make it faster are left out, with a note, and layouts are chosen by the figures built into
Sluice.

With -o the text goes to DIR/sluice.nft, and the transactions by which "sluice apply" would
load it on an empty host go to DIR/step-*.nft. With --dump-passes the program after each pass
is written to files, and the text is not printed.

--explain prints instead what each pass of the optimizer did and why, with the number of rules
and the expected cost of a packet in ns before and after, and how each large set is laid out,
among which candidates. The expected mix of 100 packets: 40 of established flows to the host
and 30 from it, 15 that begin a flow that a rule allows, 5 of banned addresses, 10 refused;
with --profile the packets that begin flows are weighted as the rules were hit.
` + costsHelp + `
` + passesHelp + `

Exit status: 0 fine, 2 bad use, a bad policy, or one that the backend cannot load.
Environment: SLUICE_STATE_DIR.
Files: /etc/sluice/policy.yaml, country data, lists and calibration in /var/lib/sluice.`,
		Example: `  sluice compile policy.yaml
  sluice compile policy.yaml --host gateway.json -o build`,
		Args: cobra.MaximumNArgs(1),
		RunE: runCompile,
	}
	names := backendNames()
	cmd.Flags().String("backend", names[0], "compile for `BACKEND`")
	command.Must(cmd.RegisterFlagCompletionFunc("backend", command.Words(names...)))
	cmd.Flags().StringP("output", "o", "", "write files to `DIR` instead of printing")
	cmd.Flags().String("host", "", "compile for the host described in `FACTS.json`")
	addLabels(cmd)
	cmd.Flags().Bool("explain", false, "print what the optimizer did, why, and what that saves")
	cmd.Flags().String("dump-passes", "", "write the program after each pass to `DIR`")
	cmd.Flags().String("profile", "", "order rules by the counters in `FILE`, which \"sluice status --json\" wrote")
	addPasses(cmd)
	return cmd
}

func runCompile(cmd *cobra.Command, args []string) error {
	o := optionsOf(cmd)
	name, _ := cmd.Flags().GetString("backend")
	dir, _ := cmd.Flags().GetString("output")
	described, _ := cmd.Flags().GetString("host")
	names := backendNames()
	at := slices.Index(names, name)
	if at < 0 {
		return fmt.Errorf("unknown backend %q\n  hint: there is %s", name, strings.Join(names, ", "))
	}
	b, estimated := engine.Backends()[at], engine.Costs{Elsewhere: described != ""}
	if described == "" {
		b, estimated = engine.Calibrated(b, o.stateDir, hinted(cmd))
	}
	tellCosts(cmd.ErrOrStderr(), estimated)
	facts, err := readFacts(cmd.Context(), described, o)
	if err != nil {
		return err
	}
	can := backend.Capabilities{}
	if described == "" {
		can = engine.Capabilities(cmd.Context(), o.stateDir, b)
	}
	line := compiling{Options: engine.Options{Sources: sourcesOf(cmd, false), Backend: b, Unchecked: true}}
	if err := line.optimizing(cmd, estimated); err != nil {
		return err
	}
	p, err := loadPolicy(cmd, command.PolicyArgument(args))
	if err != nil {
		return err
	}
	built, err := engine.Build(cmd.Context(), p, facts, can, line.Options)
	if err != nil {
		return err
	}
	if line.dump != nil && line.dump.err != nil {
		return line.dump.err
	}
	artifact := built.Artifact
	if err := textless(artifact); err != nil && line.explain == nil {
		return err
	}
	if dir != "" {
		if err := writeArtifact(dir, b, artifact); err != nil {
			return err
		}
	}
	if line.explain != nil {
		printNotes(cmd.ErrOrStderr(), artifact.Notes())
		line.explain.finish(built.Program, artifact)
		if o.json {
			return command.PrintJSON(cmd.OutOrStdout(), line.explain)
		}
		line.explain.print(cmd.OutOrStdout())
		return nil
	}
	if o.json {
		notes := artifact.Notes()
		if notes == nil {
			notes = []program.Note{}
		}
		return command.PrintJSON(cmd.OutOrStdout(), compiledJSON{b.Name(), artifact.Text(), artifact.Cost(), notes})
	}
	printNotes(cmd.ErrOrStderr(), artifact.Notes())
	if line.dump != nil {
		fmt.Fprintf(cmd.OutOrStdout(), "wrote %s to %s, the program after each pass\n", english.Plural(line.dump.n, "file"), line.dump.dir)
	}
	if dir != "" || line.dump != nil {
		return nil
	}
	_, err = io.WriteString(cmd.OutOrStdout(), artifact.Text())
	return err
}

// compiling is how a policy is compiled, and who looks on.
type compiling struct {
	engine.Options
	explain *explanation
	dump    *dumper
}

// optimizing reads the flags that are about the optimizer.
func (p *compiling) optimizing(cmd *cobra.Command, costs engine.Costs) error {
	var err error
	if p.Without, err = passesLeftOut(cmd); err != nil {
		return err
	}
	if file, _ := cmd.Flags().GetString("profile"); file != "" {
		if p.Profile, err = readProfile(file); err != nil {
			return err
		}
	}
	if dir, _ := cmd.Flags().GetString("dump-passes"); dir != "" {
		if p.dump, err = newDumper(dir); err != nil {
			return err
		}
	}
	if given(cmd, "explain") {
		pricer, _ := p.Backend.(backend.Pricer)
		p.explain = &explanation{pricer: pricer, costs: costs, Costs: costs.View()}
	}
	p.Compiled = p.compiled
	return nil
}

// compiled lets those look that want to see what the optimizer does.
func (p *compiling) compiled(compiled *program.Program, opt *optimize.Options) (*program.Program, error) {
	if p.explain != nil {
		p.explain.explain(compiled, opt)
	}
	if p.dump != nil {
		p.dump.write("compiled", compiled)
		opt.After = p.dump.write
	}
	return compiled, nil
}

// textless refuses to record what would be read as something else.
func textless(a backend.Artifact) error {
	if w, is := a.(backend.Written); is && w.TextError() != nil {
		return fmt.Errorf("%w\nhint: give it a plain name (ip link set dev NAME name OTHER); sluice apply needs no text, and loads the policy as it is", w.TextError())
	}
	return nil
}

// printNotes tells what the backend does otherwise than the policy says.
func printNotes(w io.Writer, notes []program.Note) {
	for _, n := range notes {
		text := n.Text
		if n.Origin.File != "" {
			text = fmt.Sprintf("%s:%d:%d: %s", n.Origin.File, n.Origin.Line, n.Origin.Column, text)
		}
		fmt.Fprintf(w, "%s %s\n", command.Paint(w, "33", "note:"), text)
	}
}

// writeArtifact writes the text and the steps. Steps of an earlier run go.
func writeArtifact(dir string, b backend.Backend, a backend.Artifact) error {
	steps, err := b.Steps(a, nil)
	if err != nil {
		return err
	}
	extension := "txt"
	if w, is := a.(backend.Written); is {
		extension = w.Extension()
	}
	if err := emptied(dir, "step-*."+extension); err != nil {
		return err
	}
	files := map[string]string{"sluice." + extension: a.Text()}
	for i, s := range steps {
		files[fmt.Sprintf("step-%03d-%s.%s", i+1, s.Purpose, extension)] = "# " + s.Name + "\n" + s.Text()
	}
	for name, text := range files {
		if err := renameio.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"sluice"
	"sluice/internal/cli/command"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/report"
	"sluice/internal/system/host"
)

// reportHelp is part of the help of every command that measures.
const reportHelp = `--json prints the report as JSON instead of the table. --save writes it to a file, for "sluice-lab
bench show" and "sluice-lab bench diff"; --html draws it as one page with charts that needs no network.`

// addReport adds the flags of a command that measures.
func addReport(cmd *cobra.Command) {
	addSave(cmd)
	addPage(cmd)
}

// addSave adds --save.
func addSave(cmd *cobra.Command) {
	cmd.Flags().String("save", "", "also write the report as JSON to `FILE`")
	lookAtFiles(cmd)
}

// addPage adds --html.
func addPage(cmd *cobra.Command) {
	cmd.Flags().String("html", "", "write the report as a page with charts to `FILE`")
	lookAtFiles(cmd)
}

// lookAtFiles looks at the files that a command is to write before it measures for an
// hour.
func lookAtFiles(cmd *cobra.Command) {
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		files := map[string]string{}
		for _, name := range []string{"save", "html"} {
			if !cmd.Flags().Changed(name) {
				continue
			}
			file, _ := cmd.Flags().GetString(name)
			if err := canWrite(file); err != nil {
				return fmt.Errorf("--%s: %w", name, err)
			}
			if files[file] != "" {
				return fmt.Errorf("--%s and --%s name the same file", files[file], name)
			}
			files[file] = name
		}
		return nil
	}
}

// canWrite says whether a report can be put into a file, and leaves none behind. A
// report takes its file's place by rename, so it must not be /dev/stdout.
func canWrite(file string) error {
	if file == "" {
		return errors.New("give the name of a file")
	}
	switch info, err := os.Stat(file); {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", file)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := renameio.NewPendingFile(file)
	if err != nil {
		return err
	}
	return f.Cleanup()
}

// startReport begins the report of a command line.
func startReport(cmd *cobra.Command, args []string, title string) *figures.Report {
	return &figures.Report{
		Schema: figures.Schema, Title: title, Command: commandLine(cmd, args), Version: sluice.Version(),
		When: time.Now().Truncate(time.Second), Machine: host.ThisMachine(),
	}
}

// commandLine is the command as it can be given again: flags that were set, in
// the order of their names, then arguments.
func commandLine(cmd *cobra.Command, args []string) string {
	words := []string{cmd.CommandPath()}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == "json" || f.Name == "save" || f.Name == "html" || f.Name == "state-dir":
		case f.Value.Type() == "bool" && f.Value.String() == "true":
			words = append(words, "--"+f.Name)
		default:
			words = append(words, "--"+f.Name+"="+quoted(strings.Trim(f.Value.String(), "[]")))
		}
	})
	for _, a := range args {
		words = append(words, quoted(a))
	}
	return strings.Join(words, " ")
}

// quoted is a word as a shell takes it.
func quoted(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\n'\"\\$`*?[]{}()<>|&;#~!") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// finishReport saves, draws and prints a report. A goal that is not reached makes the
// exit status 1.
func finishReport(cmd *cobra.Command, r *figures.Report) error {
	if r.Took == 0 {
		r.Took = time.Since(r.When).Seconds()
	}
	var failed error
	if file, _ := cmd.Flags().GetString("save"); file != "" {
		failed = r.Save(file)
	}
	failed = errors.Join(failed, writePage(cmd, r))
	w := cmd.OutOrStdout()
	if command.JSON(cmd) {
		failed = errors.Join(failed, r.Write(w))
	} else {
		printFigures(w, r)
	}
	if failed != nil {
		return failed
	}
	if !r.Reached() {
		return command.ErrFound
	}
	return nil
}

func printFigures(w io.Writer, r *figures.Report) {
	r.Print(w, func(s string) string { return command.Paint(w, "1", s) }, func(s string) string { return command.Paint(w, "2", s) })
}

// writePage draws a report for --html.
func writePage(cmd *cobra.Command, r *figures.Report) error {
	if file, _ := cmd.Flags().GetString("html"); file != "" {
		return report.Save(file, r)
	}
	return nil
}

// sayProgress tells on a terminal what a measurement is about, in one line that
// the next one replaces; elsewhere it writes a line at most every ten seconds.
// Done clears the line.
type sayProgress struct {
	w        io.Writer
	terminal bool
	last     time.Time
	shown    bool
}

func newProgress(cmd *cobra.Command) *sayProgress {
	w := command.Bare(cmd.ErrOrStderr())
	f, is := w.(*os.File)
	return &sayProgress{w: w, terminal: is && term.IsTerminal(int(f.Fd())), last: time.Now()}
}

// Say tells what goes on.
func (p *sayProgress) Say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	switch {
	case p.terminal:
		fmt.Fprintf(p.w, "\r\x1b[K%s", text)
		p.shown = true
	case time.Since(p.last) >= 10*time.Second:
		fmt.Fprintln(p.w, text)
		p.last = time.Now()
	}
}

// Done clears what Say left on a terminal.
func (p *sayProgress) Done() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

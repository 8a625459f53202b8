package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/words"
)

func newEdit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "edit [FILE]",
		Short: "Edit a policy: check it, see what opens and closes, apply it on trial",
		Long: `Opens a copy of the policy, the draft, in an editor: of FILE, or else of the file that the
running policy was read from. Then it checks the draft, prints in brief what opens and closes
compared with what runs, and asks what to do. If the running policy includes FILE, it is
checked and applied as part of that policy.

  a  apply it on trial; if that is confirmed, it is kept, as with sluice apply --confirm,
     and only then is FILE written, in one step
  e  edit it again
  k  keep the draft and end; the next sluice edit offers to go on with it
  d  drop it

If the draft has errors, or apply would refuse it, you cannot apply it. However this command
ends, by Ctrl-C or a lost terminal, the running policy and the file are as before unless the
trial was confirmed, and the draft stays as a hidden file next to FILE. If somebody else
changes FILE meanwhile, it is not overwritten. A file can have one edit at a time.

Environment: VISUAL or EDITOR is the editor, else editor, nano or vi. An editor that returns
at once needs its flag to wait, such as "code --wait".
` + policyHelp + `

Exit status: 0 applied and confirmed, or nothing changed; 1 not applied or not confirmed;
2 bad use, or it failed; 130 interrupted.`,
		Example: "  sluice edit\n  EDITOR=nano sluice edit /etc/sluice/policy.yaml --confirm 2m",
		Args:    cobra.MaximumNArgs(1),
		RunE:    runEdit,
	}
	command.AddTime(cmd.Flags(), "confirm", defaultConfirm, "roll back unless confirmed within `TIME`")
	addMessage(cmd)
	addWait(cmd)
	return cmd
}

func runEdit(cmd *cobra.Command, args []string) error {
	if !onTerminal(cmd) {
		file, here := command.ShellWord(command.PolicyArgument(args)), command.HereArguments(cmd)
		return fmt.Errorf("this needs a terminal\nhint: change %s, then sluice plan%s %s, and sluice apply%s %s --confirm 60s", file, here, file, here, file)
	}
	confirm, err := confirmTime(cmd)
	if err != nil {
		return err
	}
	// Ctrl-C is the editor's while that has the terminal.
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)

	here, err := hostOf(cmd)
	if err != nil {
		return err
	}
	said := map[string]bool{}
	tell := here.Warn
	here.Warn = func(text string) {
		if !said[text] {
			said[text] = true
			tell(text)
		}
	}
	h := through(here, command.HereArguments(cmd))
	policy, file, err := fileToEdit(ctx, h, args)
	if err != nil {
		return err
	}
	to, done := terminal(cmd)
	defer done()
	asking, end := signal.NotifyContext(ctx, os.Interrupt)
	defer end()
	d, err := openDraft(file, func(question string) string { return ask(asking, cmd, to, question) })
	if err != nil {
		return err
	}
	defer d.close()
	if asking.Err() != nil {
		return command.ErrInterrupted
	}
	end()
	e := &editing{cmd: cmd, door: h, to: to, policy: policy, draft: d, said: said, options: apply.Options{Confirm: confirm, Verify: true}}
	return e.run(ctx)
}

// fileToEdit is FILE, and the policy that it is of: where it is a part of the one that runs,
// that one, else itself. Without FILE it is that policy.
func fileToEdit(ctx context.Context, h door, args []string) (policy, file string, err error) {
	if len(args) > 0 && args[0] == engine.StandardInput {
		return "", "", errors.New("standard input cannot be edited\nhint: name a FILE")
	}
	s, err := h.Status(ctx, false)
	if err != nil {
		return "", "", err
	}
	g := s.Generation
	runs := s.Condition == apply.Running && g != nil && !g.Closed
	switch {
	case len(args) > 0 && (!runs || g.Policy == engine.StandardInput):
		return args[0], args[0], nil
	case len(args) > 0:
		if part := partOf(g, args[0]); part != "" {
			return nameHere(g, g.Policy), nameHere(g, part), nil
		}
		return args[0], args[0], nil
	case !runs:
		return command.DefaultPolicy, command.DefaultPolicy, nil
	case g.Policy == engine.StandardInput:
		return "", "", fmt.Errorf("generation %d, which runs, was read from standard input and has no file\nhint: name a FILE; sluice history %d prints the policy", g.Number, g.Number)
	}
	policy = nameHere(g, g.Policy)
	return policy, policy, nil
}

// partOf is the name that a generation has of a text that it was made of; "" where it was
// made of no such file.
func partOf(g *apply.Generation, file string) string {
	path, err := filepath.Abs(file)
	if err != nil {
		return ""
	}
	var names []string
	for _, f := range g.Files {
		if f.Blob != "" {
			names = append(names, f.Name)
		}
	}
	for _, f := range g.Broken {
		names = append(names, f.File)
	}
	for _, name := range names {
		if g.In(name) == path {
			return name
		}
	}
	return ""
}

// nameHere is a name of a generation's file that leads to it from here: the same, where it
// does, so that the names of counters stay.
func nameHere(g *apply.Generation, name string) string {
	if at, err := os.Getwd(); filepath.IsAbs(name) || err == nil && at == g.Dir {
		return name
	}
	return g.In(name)
}

// editing is a policy while it is edited.
type editing struct {
	cmd     *cobra.Command
	door    door
	to      io.Writer // where questions go
	policy  string    // that the file is, or is a part of
	draft   *draft
	said    map[string]bool // warnings that the draft was shown with, which its apply does not repeat
	options apply.Options
}

// run goes from the editor to the question, and again, until there is an end.
func (e *editing) run(ctx context.Context) error {
	for {
		edited := edit(ctx, e.draft.name)
		if ctx.Err() != nil {
			return e.keep(command.ErrInterrupted)
		}
		changed, err := e.draft.read()
		if err != nil {
			return e.keep(err)
		}
		if edited == nil && !changed {
			e.draft.drop()
			return answer(e.cmd, editedJSON{File: e.draft.file}, false, func(w io.Writer) {
				fmt.Fprintf(w, "nothing changed: %s is as it was\n", e.draft.file)
			})
		}
		if edited != nil {
			fmt.Fprintf(e.cmd.ErrOrStderr(), "%v\n", edited)
		}
		again, err := e.decide(ctx, edited == nil)
		if !again {
			return err
		}
	}
}

// decide shows what the draft means, and does what the answer is; again is back to the
// editor.
func (e *editing) decide(ctx context.Context, whole bool) (again bool, err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	fits := whole && e.show(ctx)
	for {
		if ctx.Err() != nil {
			return false, e.keep(command.ErrInterrupted)
		}
		question := "edit it again, keep the draft, or drop it? [e/K/d] "
		if fits {
			question = "apply it, edit it again, keep the draft, or drop it? [a/e/K/d] "
		}
		switch a := ask(ctx, e.cmd, e.to, question); {
		case a == "e":
			return true, nil
		case a == "a" && fits:
			done, err := e.apply(ctx)
			if done {
				return false, err
			}
			text, _ := words.Ended(err, command.HereArguments(e.cmd))
			fmt.Fprintln(e.cmd.ErrOrStderr(), command.StyleHints(text))
		case ctx.Err() != nil:
		case a == "d":
			e.draft.drop()
			return false, command.Found("nothing changed, draft dropped")
		case a == "k", a == "":
			return false, e.keep(command.Found("nothing changed"))
		}
	}
}

// ask asks on the terminal; "" where there is no answer any more.
func ask(ctx context.Context, cmd *cobra.Command, to io.Writer, question string) string {
	fmt.Fprint(to, question)
	answers := make(chan string, 1)
	go func() { answers <- readLine(cmd.InOrStdin()) }()
	select {
	case a := <-answers:
		return a
	case <-ctx.Done():
		fmt.Fprintln(to)
		return ""
	}
}

func (e *editing) request() engine.Request {
	r := engine.Request{File: e.policy, Draft: e.draft.name}
	if e.draft.file != e.policy {
		r.DraftOf = e.draft.file
	}
	return r
}

// show says what is wrong with the draft, or what it opens and closes, and whether an
// apply would take it.
func (e *editing) show(ctx context.Context) bool {
	w := e.cmd.ErrOrStderr()
	clear(e.said)
	plan, err := e.door.Plan(ctx, e.request())
	if err != nil {
		text, _ := words.Ended(err, command.HereArguments(e.cmd))
		fmt.Fprintln(w, command.StyleHints(text))
		return false
	}
	switch {
	case plan.Unchanged:
		fmt.Fprintln(w, "no rule changes, only the text")
	case plan.From == 0:
		fmt.Fprintln(w, "no policy runs: this is the first")
	}
	printHeadline(w, plan.Meaning, len(plan.Meaning))
	printEnds(w, plan.Ends)
	plan.Warnings = slices.DeleteFunc(plan.Warnings, func(text string) bool { return e.said[text] })
	printSaid(w, plan)
	for _, text := range plan.Warnings {
		e.said[text] = true
	}
	return plan.Refused == ""
}

// apply tries the draft, and gives its text to the file where it is confirmed. It is not
// done where nothing was applied and there is more to be asked.
func (e *editing) apply(ctx context.Context) (done bool, err error) {
	if err := e.draft.same(); err != nil {
		return true, e.keep(err)
	}
	out, err := e.door.Apply(ctx, e.request(), e.options)
	if err != nil {
		return ctx.Err() != nil, err
	}
	w := e.cmd.OutOrStdout()
	if optionsOf(e.cmd).json {
		w = e.cmd.ErrOrStderr()
	}
	tellOutcome(e.cmd, w, out)
	if out.Pending != nil {
		err = askToKeep(ctx, e.cmd, w, e.door, policyTrial(e.door, out))
	}
	now, unknown := e.door.History()
	switch {
	case unknown != nil:
		return true, e.keep(errors.Join(err, unknown))
	case now.Running != out.Generation || now.Pending != nil:
		return true, e.keep(cmp.Or(err, error(command.Found("it was not kept"))))
	}
	if changed := e.draft.same(); changed != nil {
		return true, e.keep(fmt.Errorf("%s runs, and %w", generationName(out.Generation), changed))
	}
	if err := e.draft.replace(); err != nil {
		return true, e.keep(fmt.Errorf("%s runs, but: %w", generationName(out.Generation), err))
	}
	if err != nil {
		return true, err // it was confirmed anyway
	}
	return true, answer(e.cmd, editedJSON{e.draft.file, out.Generation}, false, func(w io.Writer) {
		fmt.Fprintf(w, "%s has the new text\n", e.draft.file)
	})
}

// keep ends with an error that names the draft.
func (e *editing) keep(err error) error {
	return fmt.Errorf("%w\nthe draft is kept: %s\nhint: sluice edit%s %s goes on with it", err, e.draft.name, command.HereArguments(e.cmd), command.ShellWord(e.draft.file))
}

// editedJSON is what "edit --json" prints where it comes to its end.
type editedJSON struct {
	File       string `json:"file"`
	Generation int    `json:"generation,omitempty"` // that runs with the new text; 0: nothing was changed
}

// confirmTime is --confirm.
func confirmTime(cmd *cobra.Command) (time.Duration, error) {
	d := command.TimeOf(cmd.Flags(), "confirm")
	if cmd.Flags().Changed("confirm") && d < time.Second {
		return d, fmt.Errorf("--confirm %s is too short\nhint: give at least 1s", d)
	}
	return d, nil
}

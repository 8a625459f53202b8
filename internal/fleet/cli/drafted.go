package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/base/tool"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/bundle"
	"sluice/internal/fleet/classes"
	"sluice/internal/fleet/judge"
	"sluice/internal/fleet/trust"
	"sluice/internal/language/policy"
)

// drafted is a repository in which files are read as a draft has them.
type drafted struct {
	*bundle.Folder
	*api.Draft // of which Files are those that are otherwise in the repository
	dir        string
	has        map[string][]byte // what the repository has of them; nil: it has none
}

// draftIn is a draft in a folder. Files that are there as the draft has them are no part of it.
func draftIn(dir string, d *api.Draft) (*drafted, error) {
	folder, err := bundle.Open(dir, nil)
	if err != nil {
		return nil, err
	}
	out := &drafted{Folder: folder, Draft: d, dir: dir, has: map[string][]byte{}}
	var files []api.DraftFile
	for _, f := range d.Files {
		if _, is := d.Texts[f.Name]; !is {
			return nil, fmt.Errorf("draft %s has no text of %q", d.Id, f.Name)
		}
		if err := trust.CheckDraftPath(f.Name); err != nil {
			return nil, fmt.Errorf("draft %s: %w", d.Id, err)
		}
		text, err := folder.Read(filepath.Join(dir, f.Name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil {
			out.has[f.Name] = text
		}
		if string(text) != d.Texts[f.Name] || (err != nil) != (d.Texts[f.Name] == "") {
			files = append(files, f)
		}
	}
	if len(d.Texts) != len(d.Files) {
		return nil, fmt.Errorf("draft %s has texts of other files than it names", d.Id)
	}
	d.Files = files
	return out, nil
}

// text is what the draft says of a file of the repository, and whether it says anything.
func (d *drafted) text(name string) (text string, is bool) {
	within, err := filepath.Rel(d.dir, name)
	if err != nil {
		return "", false
	}
	text, is = d.Texts[filepath.ToSlash(within)]
	return text, is
}

// Open opens a file as the draft has it.
func (d *drafted) Open(name string) (*os.File, error) {
	text, is := d.text(name)
	switch {
	case !is:
		return d.Folder.Open(name)
	case text == "":
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return judge.Files{filepath.Clean(name): judge.Text([]byte(text))}.Open(name)
}

// Real is a name by which a file is told from others.
func (d *drafted) Real(name string) (string, error) {
	text, is := d.text(name)
	switch {
	case !is:
		return d.Folder.Real(name)
	case text == "":
		return "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return filepath.Clean(name), nil
}

// Glob is filepath.Glob.
func (d *drafted) Glob(pattern string) ([]string, error) {
	names, err := d.Folder.Glob(pattern)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { _, is := d.text(name); return is })
	for name, text := range d.Texts {
		name = filepath.Join(d.dir, name)
		if matches, err := filepath.Match(pattern, name); err == nil && matches && text != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// compared says what the draft opens and closes against the repository as it is; nil where that has
// no inventory. The error is of a draft that has errors, or a file that is of no policy.
func (d *drafted) compared(ctx context.Context, cmd *cobra.Command) (*classes.Comparison, error) {
	before, err := policy.Reading{Files: d.Folder, Parts: true}.ReadFleet(filepath.Join(d.dir, classes.FleetFile))
	if err != nil {
		return nil, err
	}
	after, err := policy.Reading{Files: d, Parts: true}.ReadFleet(filepath.Join(d.dir, classes.FleetFile))
	if err != nil {
		return nil, err
	}
	parts := []string{before.File}
	for _, p := range slices.Concat(before.Fleet.Parts, after.Fleet.Parts) {
		parts = append(parts, p.File)
	}
	for _, name := range d.names() {
		if strings.HasPrefix(filepath.Ext(name), ".y") && !slices.Contains(parts, filepath.Join(d.dir, name)) {
			return nil, fmt.Errorf("draft %s has %s, which is not a part of the fleet", d.Id, name)
		}
	}
	inv, err := ownInventory(cmd, inventoryFile(cmd))
	if errors.Is(err, fs.ErrNotExist) && !cmd.Flags().Changed("inventory") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	from, err := sources(cmd)
	if err != nil {
		return nil, err
	}
	var sides [2]*reading
	for i, files := range []policy.Files{d.Folder, d} {
		f, err := classes.Read(d.dir, files, inv, from)
		if err != nil {
			return nil, err
		}
		sides[i] = &reading{Fleet: f}
		if sides[i].classes, sides[i].found, err = f.Classes(ctx); err == nil {
			err = sides[i].sound()
		}
		if err != nil {
			return nil, err
		}
	}
	next := sides[1]
	return next.Compare(ctx, next.classes, sides[0].Fleet, sides[0].classes, counting(cmd, "compare", len(next.classes)))
}

// textDiff is how the files change, as git says it.
func (d *drafted) textDiff(ctx context.Context) (string, error) {
	temp, err := os.MkdirTemp("", "sluice-controller-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	for _, name := range d.names() {
		for side, text := range map[string]string{"a": string(d.has[name]), "b": d.Texts[name]} {
			file := filepath.Join(temp, side, name)
			err := os.MkdirAll(filepath.Dir(file), 0o700)
			if err == nil && text != "" {
				err = os.WriteFile(file, []byte(text), 0o600)
			}
			if err != nil {
				return "", err
			}
		}
	}
	var out bytes.Buffer
	cmd := tool.Command(ctx, "git", "-C", temp, "diff", "--no-index", "--no-ext-diff", "--no-textconv", "--no-color", "--no-prefix", "a", "b")
	cmd.Stdout = &out
	err = tool.Run(cmd)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 { // they differ
		err = nil
	}
	return out.String(), err
}

// write puts the files into the repository; none where one of them is another one than that on which
// the draft was made, unless force says so.
func (d *drafted) write(force bool) error {
	var other []string
	for _, f := range d.Files {
		if text, has := d.has[f.Name]; !force && (has != (f.Before != "") || has && trust.HashOf(text) != f.Before) {
			other = append(other, f.Name)
		}
	}
	if len(other) > 0 {
		return fmt.Errorf("%s: not as in bundle %d, on which draft %s was made\nhint: sluice-controller draft %[3]s --into %s --force overwrites it", english.List(other), d.Bundle, d.Id, command.ShellWord(d.dir))
	}
	root, err := os.OpenRoot(d.dir) // no link leads out of it
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range d.Files {
		if err := put(root, f.Name, d.Texts[f.Name]); err != nil {
			return fmt.Errorf("write draft %s: %w", d.Id, err)
		}
	}
	return nil
}

// undo gives the files of the draft back what they had when it was read.
func (d *drafted) undo() error {
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range d.Files {
		if wrong := put(root, f.Name, string(d.has[f.Name])); wrong != nil && !errors.Is(wrong, fs.ErrNotExist) {
			err = errors.Join(err, wrong)
		}
	}
	return err
}

// put writes a file in one step, or removes it where there is no text.
func put(root *os.Root, name, text string) error {
	if text == "" {
		return root.Remove(name)
	}
	if dir := filepath.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	temp := name + ".new"
	if err := root.WriteFile(temp, []byte(text), 0o644); err != nil {
		return err
	}
	return root.Rename(temp, name)
}

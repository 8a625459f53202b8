package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/regular"
	"sluice/internal/cli/command"
)

// draft is a copy of a file, beside it. Its name begins with a point, so that no include
// takes it, and has a sum of the text that it was begun from.
type draft struct {
	file string
	name string
	was  []byte // the text of the file
	text []byte // of the draft, when it was read last
	lock *os.File
}

// openDraft begins a draft, or goes on with the one that was kept last.
func openDraft(file string, ask func(question string) string) (*draft, error) {
	lock, err := regular.Open(file)
	if err != nil {
		return nil, err
	}
	d := &draft{file: file, lock: lock}
	if err := d.open(ask); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *draft) open(ask func(question string) string) error {
	file := d.file
	err := unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("another sluice edit has %s open\nhint: wait until it has ended", file)
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", file, err)
	}
	if d.was, err = command.ReadFile(file); err != nil {
		return err
	}
	if name, at := lastDraft(file); name != "" {
		of := ""
		if !strings.HasPrefix(filepath.Base(name), draftBegin(file, d.was)) {
			of = ", begun from an older text of the file"
		}
		if a := ask(fmt.Sprintf("continue with the draft of %s, %s%s? [Y/n] ", at.Format(time.DateTime), command.PlainName(name), of)); a == "" || a == "y" || a == "Y" {
			d.name = name
			return nil
		}
	}
	return d.begin()
}

// draftBegin begins the names of drafts of a file that have begun from a text.
func draftBegin(file string, text []byte) string {
	return fmt.Sprintf("%s%.4x.", draftsBegin(file), sha256.Sum256(text))
}

func draftsBegin(file string) string {
	base := filepath.Base(file)
	return "." + strings.TrimSuffix(base, filepath.Ext(base)) + ".draft-"
}

// lastDraft is the draft of a file that was written last; "" where there is none.
func lastDraft(file string) (name string, at time.Time) {
	entries, _ := os.ReadDir(filepath.Dir(file)) // what cannot be listed has no draft to offer
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasPrefix(e.Name(), draftsBegin(file)) || filepath.Ext(e.Name()) != filepath.Ext(file) {
			continue
		}
		if info, err := e.Info(); err == nil && info.ModTime().After(at) {
			name, at = filepath.Join(filepath.Dir(file), e.Name()), info.ModTime()
		}
	}
	return name, at
}

// begin copies the file with its mode and its owner.
func (d *draft) begin() error {
	info, err := d.lock.Stat()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(d.file), draftBegin(d.file, d.was)+"*"+filepath.Ext(d.file))
	if err != nil {
		return err
	}
	d.name = filepath.Clean(f.Name())
	_, err = f.Write(d.was)
	err = errors.Join(err, f.Chmod(info.Mode().Perm()))
	regular.Own(f, info)
	if err = errors.Join(err, f.Close()); err != nil {
		d.drop()
	}
	return err
}

// read reads the draft, and says whether it is another text than the file's.
func (d *draft) read() (changed bool, err error) {
	d.text, err = command.ReadFile(d.name)
	return !bytes.Equal(d.text, d.was), err
}

// same says whether somebody has changed the file since it was read, or the draft since it
// was.
func (d *draft) same() error {
	now, err := command.ReadFile(d.file)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, d.was) {
		return fmt.Errorf("%s was changed by somebody else meanwhile", d.file)
	}
	if now, err = command.ReadFile(d.name); err == nil && !bytes.Equal(now, d.text) {
		err = errors.New("the draft changed after it was shown")
	}
	return err
}

// replace gives the file the text of the draft.
func (d *draft) replace() error {
	if err := regular.Replace(d.file, d.text); err != nil {
		return err
	}
	d.drop()
	return nil
}

// drop deletes the draft; one that stays is offered again.
func (d *draft) drop() { _ = os.Remove(d.name) }

func (d *draft) close() { _ = d.lock.Close() }

// edit opens a file in the editor, and waits for its end.
func edit(ctx context.Context, file string) error {
	editor := editorOf()
	if editor == "" {
		return errors.New("no editor found\nhint: name one in EDITOR")
	}
	c := exec.CommandContext(ctx, "sh", "-c", editor+` "$@"`, editor, file) // as git runs one: the variable may have flags
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGHUP) }
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		defer tty.Close()
		c.Stdin, c.Stdout, c.Stderr = tty, tty, tty
	} else {
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	}
	if err := c.Run(); err != nil {
		return fmt.Errorf("the editor, %s, failed: %w", editor, err)
	}
	return nil
}

func editorOf() string {
	for _, name := range []string{os.Getenv("VISUAL"), os.Getenv("EDITOR")} {
		if name != "" {
			return name
		}
	}
	others := []string{"editor", "nano", "vi"}
	i := slices.IndexFunc(others, func(name string) bool {
		_, err := exec.LookPath(name)
		return err == nil
	})
	if i < 0 {
		return ""
	}
	return others[i]
}

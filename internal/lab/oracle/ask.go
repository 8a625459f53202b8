package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"sluice/internal/base/tool"
	"sluice/internal/lab/testnet"
)

// patience is how long one command may take; it is killed then, which is its answer.
const patience = 10 * time.Minute

// question is a command that both programs are asked.
type question struct {
	args   []string
	inside bool   // in the namespace, since it asks the kernel
	folder string // that it writes files into, "" for none
}

func (q question) String() string {
	text := "sluice " + strings.Join(q.args, " ")
	if q.inside {
		text += "   (in a namespace)"
	}
	return text
}

// answer is all that a command said and wrote.
type answer struct {
	status   int // -1 when it was killed
	out, err string
	files    map[string]string
}

func (a answer) sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "%d %q %q", a.status, a.out, a.err)
	for _, name := range slices.Sorted(maps.Keys(a.files)) {
		fmt.Fprintf(h, " %q %q", name, a.files[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// unlike gives the first part in which two answers differ, "" where they are equal.
func (a answer) unlike(b answer) string {
	if a.status != b.status {
		return fmt.Sprintf("exit status %d before, %d after\nbefore: %s\nafter:  %s", a.status, b.status, short(a.err+a.out), short(b.err+b.out))
	}
	for _, part := range []struct{ name, a, b string }{{"standard output", a.out, b.out}, {"standard error", a.err, b.err}} {
		if part.a != part.b {
			return part.name + ":\n" + firstLines(part.a, part.b)
		}
	}
	names := maps.Clone(a.files)
	maps.Copy(names, b.files)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		one, is := a.files[name]
		other, was := b.files[name]
		switch {
		case !was:
			return "file " + name + " is no longer written"
		case !is:
			return "file " + name + " was not written"
		case one != other:
			return "file " + name + ":\n" + firstLines(one, other)
		}
	}
	return ""
}

// ownFault gives what the program says where it finds itself wrong, "" where it does not.
func (a answer) ownFault() string {
	if strings.Contains(a.out+a.err, "this is a bug in Sluice") {
		return "the newer program calls it a bug in Sluice:\n" + a.err + a.out
	}
	return ""
}

// firstLines are the first lines in which two texts differ, with what is around.
func firstLines(a, b string) string {
	before, after := strings.Split(a, "\n"), strings.Split(b, "\n")
	i := 0
	for i < len(before) && i < len(after) && before[i] == after[i] {
		i++
	}
	if i < len(before) && i < len(after) { // of a long line, what is around the difference
		one, other, at := before[i], after[i], 0
		for at < len(one) && at < len(other) && one[at] == other[at] {
			at++
		}
		at = max(0, at-200)
		before, after = slices.Clone(before), slices.Clone(after)
		before[i], after[i] = one[at:], other[at:]
	}
	var out strings.Builder
	for _, side := range []struct {
		sign  string
		lines []string
	}{{" ", before[max(0, i-3):i]}, {"-", before[i:min(len(before), i+4)]}, {"+", after[i:min(len(after), i+4)]}} {
		for _, line := range side.lines {
			fmt.Fprintf(&out, "  %s %s\n", side.sign, short(line))
		}
	}
	return out.String()
}

func short(text string) string {
	if len(text) > 600 {
		return text[:600] + "…"
	}
	return text
}

// moment is what another run of the same program says otherwise: free memory, and the
// time that it took.
var moment = regexp.MustCompile(`("(?:available|compile|read|total)": )[\d.e-]+|(apply time +)about .*, read [^,]+|, of \d+ [KMG]iB free`)

// ask gives a program's answer. It runs in the folder, whose own name does not
// appear in what it says.
func ask(ctx context.Context, program string, q question, dir string, space *testnet.Namespace) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, q.args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TZ=UTC", "LC_ALL=C.UTF-8", "GOMAXPROCS=1", "GOGC=400"} // as many processes as processors
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	run := func() error { return tool.Run(cmd) } // what watches a trial keeps the outputs open
	var err error
	if q.inside && space != nil {
		err = space.Do(run)
	} else {
		err = run()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return answer{}, fmt.Errorf("%s: %w", q, err)
	}
	clean := func(text string) string {
		return moment.ReplaceAllString(strings.ReplaceAll(text, dir, "HERE"), "$1$2…")
	}
	a := answer{status: cmd.ProcessState.ExitCode(), out: clean(out.String()), err: clean(errs.String())}
	if q.folder == "" {
		return a, nil
	}
	folder := filepath.Join(dir, q.folder)
	if a.files, err = filesOf(folder); err == nil {
		err = os.RemoveAll(folder)
	}
	return a, err
}

// filesOf reads a folder; nothing where there is none.
func filesOf(folder string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(folder, path)
		files[name] = string(text)
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return files, err
}

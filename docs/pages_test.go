// Package docs holds the manual to what it says: each command of each page runs as it is there.
//
// A page is a script. Blocks of these kinds are read, from the first to the last:
//
//	```sh                 run by one shell, as root, on a host of the page's own: testdata/host.sh
//	```sh client          run on another machine, the host's router, which has the clients' addresses
//	```yaml PATH          a file (any language), written before the next block runs
//	```text               what the block before it printed; … stands for the rest of a line,
//	                      and alone in a line for any lines
//	<!-- setup … -->      run like sh, and not shown: what the reader has and a new host lacks
//	<!-- exits N -->      the next block ends with this status, and not with 0
//	<!-- run by FILE -->  the lines of the next block are in this file of the repository, which runs them
//
// Pages that make generate writes have no such blocks of their own. The tests need root; they are
// `make test-long PART=docs`.
package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

type block struct {
	kind  string // sh, client, file, text or setup
	path  string // of a file
	text  string
	line  int // of its first line
	exits int
	by    string // the file that runs it
}

// runs says whether the page's shell runs it.
func (b block) runs() bool {
	return (b.kind == "sh" || b.kind == "client" || b.kind == "setup") && b.by == ""
}

// read returns the blocks of a page.
func read(page string) ([]block, error) {
	var blocks []block
	var next block // what comments said of it
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case strings.HasPrefix(line, "<!-- exits "):
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(line, "<!-- exits "), " -->"))
			if err != nil {
				return nil, fmt.Errorf("%d: %w", i+1, err)
			}
			next.exits = n
		case strings.HasPrefix(line, "<!-- run by "):
			next.by = strings.TrimSuffix(strings.TrimPrefix(line, "<!-- run by "), " -->")
		case line == "<!-- setup":
			end := slices.Index(lines[i:], "-->")
			if end < 0 {
				return nil, fmt.Errorf("%d: a setup without an end", i+1)
			}
			blocks = append(blocks, block{kind: "setup", text: strings.Join(lines[i+1:i+end], "\n"), line: i + 2})
			i += end
		case strings.HasPrefix(line, "```"):
			end := slices.Index(lines[i+1:], "```")
			if end < 0 {
				return nil, fmt.Errorf("%d: a block without an end", i+1)
			}
			b := next
			next = block{}
			b.text, b.line = strings.Join(lines[i+1:i+1+end], "\n"), i+2
			switch words := strings.Fields(strings.TrimPrefix(line, "```")); {
			case len(words) == 1 && (words[0] == "sh" || words[0] == "text"):
				b.kind = words[0]
			case len(words) == 2 && words[0] == "sh" && words[1] == "client":
				b.kind = "client"
			case len(words) == 2 && words[0] != "sh" && words[0] != "text":
				b.kind, b.path = "file", words[1]
			default:
				return nil, fmt.Errorf("%d: %s is no kind of block", i+1, line)
			}
			blocks = append(blocks, b)
			i += end + 1
		case strings.HasPrefix(line, "    ") && i > 0 && lines[i-1] == "" && !listed(lines[:i]):
			return nil, fmt.Errorf("%d: an indented block: say its kind with ```", i+1)
		}
	}
	return blocks, nil
}

// listed says whether an indented line goes on an item of a list.
func listed(before []string) bool {
	for _, line := range slices.Backward(before) {
		if line != "" && !strings.HasPrefix(line, " ") {
			return regexp.MustCompile(`^([-*]|[0-9]+\.) `).MatchString(line)
		}
	}
	return false
}

// pages are those that people write: all but the reference.
func pages(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"*.md", "*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	return slices.DeleteFunc(out, func(name string) bool {
		return strings.HasPrefix(name, "commands/") || strings.HasPrefix(name, "reference/")
	})
}

// TestPages runs each page: one alone is -run 'TestPages/how-to/web-server'.
func TestPages(t *testing.T) {
	for _, name := range append(pages(t), "../README.md") {
		text, err := os.ReadFile(filepath.Clean(name))
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := read(string(text))
		if err != nil {
			t.Errorf("%s:%v", name, err)
			continue
		}
		for _, b := range blocks {
			if b.by != "" {
				held(t, name, b)
			}
		}
		if !slices.ContainsFunc(blocks, block.runs) {
			continue
		}
		t.Run(strings.TrimPrefix(strings.TrimSuffix(name, ".md"), "../"), func(t *testing.T) {
			if testing.Short() {
				t.Skip("a host for each page takes minutes: make test-long PART=docs")
			}
			if os.Getuid() != 0 {
				t.Fatal("a host of its own needs root")
			}
			t.Parallel()
			run(t, name, blocks, installed(t))
		})
	}
}

// held compares a block with the file that runs it.
func held(t *testing.T, page string, b block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", filepath.Clean(b.by)))
	if err != nil {
		t.Errorf("%s:%d: %v", page, b.line, err)
		return
	}
	for line := range strings.Lines(b.text) {
		if line := strings.TrimSpace(line); !strings.Contains(string(text), line) {
			t.Errorf("%s:%d: %s does not run %q", page, b.line, b.by, line)
		}
	}
}

var tree struct {
	path string
	err  error
}

// installed returns a folder with what make install installs.
func installed(t *testing.T) string {
	t.Helper()
	if tree.err != nil {
		t.Fatal(tree.err)
	}
	return tree.path
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if slices.Contains(os.Args, "-test.short=true") || os.Getuid() != 0 {
			return m.Run()
		}
		folder, err := os.MkdirTemp("", "sluice-docs-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(folder)
		tree.path = folder
		for _, words := range [][]string{{"build"}, {"install", "install-controller", "install-lab", "PREFIX=/usr", "DESTDIR=" + folder}} {
			if out, err := exec.CommandContext(context.Background(), "make", append([]string{"-s", "-C", ".."}, words...)...).CombinedOutput(); err != nil {
				tree.err = fmt.Errorf("make %s: %w\n%s", strings.Join(words, " "), err, out)
			}
		}
		// The source, as a clone has it, for pages that build.
		source := exec.CommandContext(context.Background(), "sh", "-c", `mkdir -p "$1/usr/src/sluice" && cd .. && git ls-files -z | tar -c --null -T - | tar -x -C "$1/usr/src/sluice"`, "sh", folder)
		if out, err := source.CombinedOutput(); err != nil {
			tree.err = errors.Join(tree.err, fmt.Errorf("copy of the source: %w\n%s", err, out))
		}
		for name, text := range map[string]string{
			"usr/bin/outside": "#!/bin/sh\nexec nsenter --net=/run/outside \"$@\"\n",
			"etc/hostname":    "web\n",
			"etc/resolv.conf": "",
		} {
			path := filepath.Join(folder, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				tree.err = err
			} else {
				tree.err = errors.Join(tree.err, os.WriteFile(path, []byte(text), 0o755))
			}
		}
		return m.Run()
	}())
}

// script is what one shell runs of a page. What a block prints goes to a file of its number; the
// status of each block, and where it ended, goes to standard output.
func script(blocks []block) string {
	var s strings.Builder
	s.WriteString("cd /root\nexport HOME=/root LANG=C.UTF-8\n")
	for i, b := range blocks {
		if !b.runs() && b.kind != "file" {
			continue
		}
		if b.kind == "file" {
			fmt.Fprintf(&s, "mkdir -p \"$(dirname %s)\"\ncp /page/%d %s\n", b.path, i, b.path)
			continue
		}
		text := fmt.Sprintf("eval \"$(cat /page/%d)\"", i)
		if b.kind == "client" {
			text = fmt.Sprintf("outside bash -eu /page/%d", i)
		}
		trap := fmt.Sprintf("trap 'echo BLOCK %d ended with $? >/page/ended; exit 1' ERR; set -E", i)
		if b.exits != 0 {
			trap = "trap - ERR"
		}
		fmt.Fprintf(&s, "%s\n{ %s; } >/page/%d.out 2>&1 </dev/null\nstatus=$?\ntrap - ERR\n", trap, text, i)
		fmt.Fprintf(&s, "[ $status = %d ] || { echo BLOCK %d ended with $status >/page/ended; exit 1; }\n", b.exits, i)
	}
	s.WriteString("echo all >/page/ended\n")
	return s.String()
}

func run(t *testing.T, name string, blocks []block, files string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	folder := t.TempDir()
	group := "sluice-page-" + strconv.Itoa(os.Getpid()) + "-" + regexp.MustCompile(`[^a-z]`).ReplaceAllString(name, "")
	host := exec.CommandContext(ctx, "unshare", "-m", "-n", "-u", "sh", "testdata/host.sh", folder, files, group)
	var said strings.Builder
	host.Stdout, host.Stderr = &said, &said
	host.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // no host outlives a test that is killed
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = host.Wait(); close(ended) }()
	var inside []string // what enters the host
	t.Cleanup(func() {
		if inside != nil { // unshare ends when all of its processes have
			_ = exec.CommandContext(context.Background(), "kill", "-9", inside[2]).Run()
		} else {
			_ = host.Process.Kill()
		}
		<-ended
		// A control group stays busy a moment after its last process has ended.
		for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
			path := filepath.Join(root, group)
			for range 100 {
				if _, err := os.Stat(path); err != nil {
					break
				}
				_ = exec.CommandContext(context.Background(), "find", path, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+").Run()
				time.Sleep(50 * time.Millisecond)
			}
		}
	})
	for {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", host.Process.Pid, host.Process.Pid))
		if pid := strings.TrimSpace(string(children)); pid != "" && !strings.Contains(pid, " ") {
			enter := []string{"nsenter", "-t", pid, "-a", "-r", "-w"}
			state, _ := exec.CommandContext(ctx, enter[0], append(enter[1:], "systemctl", "is-system-running")...).Output()
			if s := strings.TrimSpace(string(state)); s == "running" || s == "degraded" {
				inside = enter
				break
			}
		}
		select {
		case <-ended:
			t.Fatalf("the host ended: %s", said.String())
		case <-ctx.Done():
			t.Fatalf("the host does not come up: %s", said.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
	in := func(stdin string, words ...string) (string, error) {
		cmd := exec.CommandContext(ctx, inside[0], append(slices.Clone(inside[1:]), words...)...)
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TERM=dumb"}
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for i, b := range blocks {
		if out, err := in(b.text+"\n", "sh", "-c", fmt.Sprintf("mkdir -p /page && cat >/page/%d", i)); err != nil {
			t.Fatal(err, out)
		}
	}
	out, err := in(script(blocks), "bash", "-u")
	printed := func(i int) string {
		text, _ := in("", "cat", fmt.Sprintf("/page/%d.out", i))
		return text
	}
	how, _ := in("", "cat", "/page/ended")
	if m := regexp.MustCompile(`BLOCK (\d+) ended with (\d+)`).FindStringSubmatch(how); m != nil {
		i, _ := strconv.Atoi(m[1])
		t.Errorf("%s:%d: this block ended with %s, wanted %d:\n%s\nit printed\n%s", name, blocks[i].line, m[2], blocks[i].exits, blocks[i].text, printed(i))
	} else if how != "all\n" {
		t.Errorf("%s: %v\n%s", name, err, out)
	}
	last := -1
	for i, b := range blocks {
		if b.runs() {
			last = i
		}
		if b.kind != "text" || last < 0 {
			continue
		}
		if got := printed(last); !is(b.text, got) {
			t.Errorf("%s:%d: the page shows\n%s\nand the command printed\n%s", name, b.line, b.text, got)
		}
	}
}

// is says whether a block shows what was printed.
func is(shown, printed string) bool {
	var want strings.Builder
	for line := range strings.Lines(strings.TrimSpace(shown) + "\n") {
		if strings.TrimSpace(line) == "…" {
			want.WriteString(`(?:[^\n]*\n)*?`)
			continue
		}
		want.WriteString(strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " \n")), "…", `[^\n]*`) + ` *\n`)
	}
	return regexp.MustCompile(`\A\s*` + want.String() + `\s*\z`).MatchString(strings.TrimRight(printed, "\n ") + "\n")
}

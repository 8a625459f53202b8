package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// testers are the packages whose tests can see a fault in a package: itself, then
// those that depend on it, those first whose tests took the least time.
func testers(ctx context.Context, pkg string, took map[string]time.Duration, longest time.Duration) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-test", "-f", `{{if .ForTest}}{{.ForTest}}{{range .Deps}} {{.}}{{end}}{{end}}`, "./internal/...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	found := []string{pkg}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || took[fields[0]] > longest || slices.Contains(found, fields[0]) || strings.Contains(fields[0], "internal/lab/mutation") {
			continue
		}
		if slices.ContainsFunc(fields[1:], func(dep string) bool { return dep == pkg || strings.HasPrefix(dep, pkg+" ") }) {
			found = append(found, fields[0])
		}
	}
	slices.SortStableFunc(found[1:], func(a, b string) int {
		return cmp.Or(cmp.Compare(took[a], took[b]), strings.Compare(a, b))
	})
	return found, nil
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// outcome is what the tests of one package say of a fault.
type outcome struct {
	seen  bool
	by    string // the test that failed first, or "build", "time"
	build bool   // the fault does not compile
}

// test runs the tests of one package over the fault, in a network of its own: what the
// fault does to namespaces it does not do to the machine's.
func test(ctx context.Context, pkg, overlay string, bound time.Duration) (outcome, error) {
	ctx, stop := context.WithTimeout(ctx, bound+5*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", `ip link set lo up && exec "$@"`, "sh",
		"go", "test", "-json", "-short", "-failfast", "-vet=off", "-overlay", overlay, "-timeout", bound.String(), pkg)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{}, err
	}
	if err := cmd.Start(); err != nil {
		return outcome{}, err
	}
	var o outcome
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		switch {
		case e.Action == "build-fail":
			o.build = true
		case e.Action == "fail" && e.Test != "" && (o.by == "" || strings.HasPrefix(e.Test, o.by+"/")):
			o.by = e.Test
		case e.Action == "output" && strings.HasPrefix(e.Output, "panic: test timed out"):
			o.by = "time"
		}
	}
	if err := lines.Err(); err != nil {
		return o, err
	}
	if err := cmd.Wait(); err != nil {
		o.seen = true
		if o.by == "" {
			o.by = "the package" // a panic, TestMain, an exit
		}
	}
	return o, ctx.Err()
}

// overlay writes what go's -overlay asks for: the file with the fault in place of
// the one in the tree.
func overlay(dir string, s site) (string, error) {
	planted := filepath.Join(dir, "planted.go")
	if err := os.WriteFile(planted, s.text, 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{s.File: planted}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}

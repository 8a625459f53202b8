package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sluice/internal/lab/drafts"
)

// The hosts that policies are read for. yard is that of package kerneltest, street
// has containers, foreign chains, and people who are logged in.
var (
	//go:embed testdata/yard.json
	yard string
	//go:embed testdata/street.json
	street string
)

// policyCase is a policy with its files and the host that it is read for.
type policyCase struct {
	name   string // what it came from
	random *rand.Rand
	files  map[string]string
}

// String is the case for a report.
func (c *policyCase) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		if name != hostFile && name != "after.yaml" {
			fmt.Fprintf(&b, "--- %s\n%s\n", name, short(c.files[name]))
		}
	}
	return b.String()
}

const hostFile = "host.json"

// setFile is a file that a policy names.
var setFile = regexp.MustCompile(`\bfile: ([\w-]+\.txt)`)

// newCase makes one policy by the seed and its number alone.
func (w *worker) newCase(ctx context.Context, seed uint64, number int) (*policyCase, error) {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	c := &policyCase{random: r, files: map[string]string{}}
	text := func() string { return w.texts[r.IntN(len(w.texts))] }
	host := []string{yard, yard, street}
	kind := r.IntN(20)
	switch {
	case kind < 11:
		d := drafts.New(r, scale(r))
		c.name, c.files = "random words", d.Texts()
		expect(r, d)
		if kind < 9 {
			c.name = "random rules"
			if err := w.repair(ctx, c, d); err != nil {
				return nil, err
			}
		}
		if kind == 8 {
			c.name, c.files[drafts.Main] = "mutated rules", mutated(r, c.files[drafts.Main])
		}
	case kind < 14:
		c.name, c.files[drafts.Main] = "a text of the sources", text()
		host = append(host, street, street, `{"known": false}`)
	default:
		c.name, c.files[drafts.Main] = "a mutated text of the sources", mutated(r, text())
		host = append(host, street, street, `{"known": false}`)
	}
	for _, name := range setFile.FindAllStringSubmatch(c.files[drafts.Main], -1) {
		if c.files[name[1]] == "" {
			c.files[name[1]] = "192.0.2.1\n# remark\n192.0.2.64/27\n203.0.113.5-203.0.113.9\n2001:db8:7::/64\n" + []string{"", "", "192.0.2.1/33\n"}[r.IntN(3)]
		}
	}
	for name, text := range c.files { // nothing is asked of the network
		c.files[name] = strings.ReplaceAll(text, "https://lists.example.net/", "http://127.0.0.1:9/")
	}
	c.files["after.yaml"] = mutated(r, c.files[drafts.Main])
	c.files[hostFile] = host[r.IntN(len(host))]
	return c, nil
}

// scale is how large a random policy is: mostly small.
func scale(r *rand.Rand) drafts.Scale {
	switch n := r.IntN(100); {
	case n == 0:
		return drafts.Scale{Rules: 60 + r.IntN(200)}
	case n == 1:
		return drafts.Scale{Rules: 1 + r.IntN(30), Elements: 2000 + r.IntN(20_000)}
	case n < 8:
		return drafts.Scale{Rules: 1 + r.IntN(20), Elements: 50 + r.IntN(1500)}
	case n < 20:
		return drafts.Scale{Rules: 12 + r.IntN(50)}
	}
	return drafts.Scale{Rules: 1 + r.IntN(12)}
}

// expect has the policy expect what one of its rules says, at times.
func expect(r *rand.Rand, d *drafts.Draft) {
	for _, s := range d.Sections {
		if rule := s.Rules[r.IntN(len(s.Rules))]; r.IntN(6) == 0 && !strings.ContainsAny(rule, `'"`) {
			rule, _, _ = strings.Cut(rule, " limit ")
			d.Head = append(d.Head, "expect: ['"+rule+"']")
			return
		}
	}
}

// repair takes out of the draft what the older program refuses, until it takes it or
// nothing is left to do.
func (w *worker) repair(ctx context.Context, c *policyCase, d *drafts.Draft) error {
	for range 8 {
		c.files = d.Texts()
		c.files[hostFile] = yard
		if err := w.write(w.dirs[0], c.files); err != nil {
			return err
		}
		a, err := ask(ctx, w.before, question{args: []string{"check", drafts.Main, "--json", "--offline", "--host", hostFile}}, w.dirs[0], nil)
		if err != nil || a.status != 2 {
			return err
		}
		var said struct {
			Findings []struct {
				Severity, File string
				Line           int
			}
		}
		if err := json.Unmarshal([]byte(a.out), &said); err != nil {
			return fmt.Errorf("%w in what the older program says of\n%s", err, c)
		}
		var lines []int
		included := false
		for _, f := range said.Findings {
			if f.Severity == "error" && f.File == drafts.Main {
				lines = append(lines, f.Line)
			} else if f.Severity == "error" {
				included = true
			}
		}
		if !d.Drop(lines, included) {
			return nil
		}
	}
	return nil
}

// write makes a folder hold these files alone, beside the state.
func (w *worker) write(dir string, files map[string]string) error {
	old, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range old {
		if _, is := files[entry.Name()]; !is && entry.Name() != "state" {
			if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

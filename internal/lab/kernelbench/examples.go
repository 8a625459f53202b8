package kernelbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/packetbench"
	"sluice/internal/lab/packetbench/against"
)

// byHand are the peers that an administrator would otherwise write.
var byHand = []string{"nftables-set", "ipset (iptables-nft)"}

// Examples is the section, and where its policies are under the directory that [Run] works in.
const Examples = "examples"

// storyName is what the policy of the second story is called among the examples.
const storyName = "story 2"

// ExampleNames are the policies of the section, in a directory that has the examples; each is a
// section by itself too, "examples/" and its name.
func ExampleNames(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "policy.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("no examples are here")
	}
	names := make([]string, len(files), len(files)+1)
	for i, f := range files {
		names[i] = filepath.Base(filepath.Dir(f))
	}
	return append(names, storyName), nil
}

// examples measures every kind of packet of the source tree's examples and of story 2,
// beside the same meaning by hand: a row a way to have it, a table a kind.
func (b *bench) examples() error {
	names, err := ExampleNames(Examples)
	if err != nil {
		return err
	}
	s := figures.Section{Name: Examples, Title: "Every kind of packet of the examples, beside the same by hand"}
	for _, name := range names {
		if !b.wants(Examples) && !slices.Contains(b.Sections, path.Join(Examples, name)) {
			continue
		}
		file := filepath.Join(Examples, name, "policy.yaml")
		if name == storyName {
			if err := b.banList(); err != nil {
				return err
			}
			if file, err = b.file("story-2.yaml", storyTwo()); err != nil {
				return err
			}
		}
		if err := b.example(&s, file, name); err != nil {
			return err
		}
	}
	b.report.Sections = append(b.report.Sections, s)
	return nil
}

// Of an example's measurement. A source sends a whole number of times from each address
// and of each connection in a round, so that rounds differ by what else the kernel does.
const (
	exampleLabs    = 4
	exampleRounds  = 3
	exampleSources = packets
	exampleFlows   = packets / 2
)

func (b *bench) example(s *figures.Section, file, name string) error {
	o := b.options(file, name)
	o.Labs, o.Rounds, o.Sources, o.Flows = exampleLabs, exampleRounds, exampleSources, exampleFlows
	if b.Plant != "" {
		o.Loaded = func(l *measure.Lab) error {
			return l.Nft(fmt.Sprintf("insert rule inet sluice input %[1]s\ninsert rule inet sluice forward %[1]s\n", b.Plant))
		}
	}
	if !b.Alone {
		sides, err := against.Choose(byHand, against.Patience)
		if err != nil {
			return err
		}
		sides.Into(&o)
		o.Subjects = append(o.Subjects, packetbench.Subject{Name: uncounted, Load: b.uncounted(file)})
	}
	r, err := packetbench.Run(b, o)
	if err != nil {
		return err
	}
	b.bySubject(s, r, name+": ")
	for _, w := range r.Warnings {
		b.report.Warnings = append(b.report.Warnings, name+": "+w)
	}
	return nil
}

// uncounted is Sluice without the counters of its rules, which no rule by hand has.
const uncounted = "sluice, not counting"

func (b *bench) uncounted(file string) func(context.Context, *measure.Lab) error {
	return func(ctx context.Context, l *measure.Lab) error {
		included, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		uncounted, err := b.file("uncounted.yaml", fmt.Sprintf("version: 1\ncounters: false\ninclude: [%q]\n", included))
		if err != nil {
			return err
		}
		if _, err := l.Namespace.RunContext(ctx, "", b.Binary, "compile", uncounted, "-o", b.dir, "--state-dir", b.StateDir); err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(b.dir, "sluice.nft"))
		if err != nil {
			return err
		}
		return l.Nft(string(text))
	}
}

// storyTwo is the load balancer of the second story: 650 bans, and a hundred services
// without connection state, ten ports on each of ten addresses.
func storyTwo() string {
	var listeners []string
	for i := range 100 {
		listeners = append(listeners, fmt.Sprintf("198.51.100.%d tcp/%d", 201+i/10, 8000+i%10), fmt.Sprintf("\"[2001:db8:0:1::%d] tcp/%d\"", 201+i/10, 8000+i%10))
	}
	return fmt.Sprintf(`version: 1
sets:
  banned: {file: banned.txt, counters: true}
  listeners: {endpoints: [%s]}
services: {web: tcp/8000-8009}
ban: [banned]
tracking: {bypass: [web to listeners]}
input:
  default: drop
  rules: [allow web]
output: {default: allow}
`, strings.Join(listeners, ", "))
}

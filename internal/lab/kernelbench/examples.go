package kernelbench

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/packetbench"
	"sluice/internal/lab/packetbench/against"
)

// byHand are the peers that an administrator would otherwise write.
var byHand = []string{"nftables-set", "ipset (iptables-nft)"}

// Examples is where the policies of the section are, under the directory that [Run] works in.
const Examples = "examples"

// examples measures every kind of packet of the source tree's examples and of story 2,
// beside the same meaning by hand: a row a way to have it, a table a kind.
func (b *bench) examples() error {
	files, err := filepath.Glob(filepath.Join(Examples, "*", "policy.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("no examples are here")
	}
	s := figures.Section{Name: "examples", Title: "Every kind of packet of the examples, beside the same by hand"}
	for _, file := range files {
		if err := b.example(&s, file, filepath.Base(filepath.Dir(file))); err != nil {
			return err
		}
	}
	if err := b.banList(); err != nil {
		return err
	}
	file, err := b.file("story-2.yaml", storyTwo())
	if err != nil {
		return err
	}
	if err := b.example(&s, file, "story 2"); err != nil {
		return err
	}
	b.report.Sections = append(b.report.Sections, s)
	return nil
}

func (b *bench) example(s *figures.Section, file, name string) error {
	o := b.options(file, name)
	if !b.Alone {
		sides, err := against.Choose(byHand, against.Patience)
		if err != nil {
			return err
		}
		sides.Into(&o)
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

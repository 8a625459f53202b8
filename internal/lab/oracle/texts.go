package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Names that rules may use, before a rule that is in a test alone.
const heading = `version: 1
zones:
  wan: {interfaces: [eth0]}
  vms: {interfaces: ["wg*"], networks: [10.20.0.0/16, "fd00:20::/64"]}
  lan: {networks: [10.30.0.0/16]}
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
  served: {union: [office]}
  listeners: {endpoints: ["198.51.100.1 tcp/80"]}
services:
  web: [tcp/80, tcp/443, udp/443]
`

// caret marks the place of an error in the texts of tests.
const caret = "‸"

// aRule begins the texts that are one rule.
var aRule = regexp.MustCompile(`^‸?(allow|drop|reject|deny|masquerade|redirect|map|clamp)\b`)

// texts gives the policies and rules, good and bad, that the sources hold: examples,
// test data, the strings of tests and those of the manual.
func texts(tree string) (list []string, err error) {
	add := func(text string) {
		switch {
		case len(text) > 20_000:
			return
		case aRule.MatchString(text) && !strings.Contains(text, "\n"):
			section := "input:\n  default: drop\n  rules:\n    - "
			switch strings.Trim(strings.Fields(text)[0], caret) {
			case "clamp":
				section = strings.Replace(section, "input", "forward", 1)
			case "masquerade", "redirect", "map":
				section = "nat:\n  - "
			}
			text = heading + section + text + "\n"
		case !strings.Contains(text, "\n"), !strings.Contains(text, ": ") && !strings.Contains(text, caret):
			return
		case !strings.Contains(text, "version:"):
			text = "version: 1\n" + strings.TrimPrefix(text, "\n")
		}
		list = append(list, strings.Replace(text, caret, "", 1))
	}
	err = filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir():
			if path != tree && (strings.HasPrefix(name, ".") || name == "oracle") {
				return fs.SkipDir
			}
			return nil
		case strings.HasSuffix(name, ".yaml"):
			text, err := os.ReadFile(path)
			add(string(text))
			return err
		case strings.HasSuffix(name, ".txtar"):
			text, err := os.ReadFile(path)
			// A section goes to the next line "-- name --".
			for _, part := range regexp.MustCompile(`(?m)^-- .* --\n`).Split(string(text), -1) {
				if strings.HasPrefix(part, "version:") {
					add(part)
				}
			}
			return err
		case strings.HasSuffix(name, ".go"):
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					text, _ := strconv.Unquote(l.Value)
					if aRule.MatchString(text) || strings.Contains(text, caret) || strings.Contains(text, "default: ") {
						add(text)
					}
				}
				return true
			})
		}
		return nil
	})
	slices.Sort(list) // so that a seed means the same wherever a text is kept
	return slices.Compact(list), err
}

// word is what mutations take out and put in.
var word = regexp.MustCompile(`[\w./:*-]+`)

var vocabulary = sync.OnceValue(func() []string {
	return strings.Fields(`allow drop reject deny any tcp udp icmp sctp tcp/80 udp/53 tcp/1-65535 tcp/0 tcp/70000 proto/47 proto/300
		from to in out not by user limit burst per source then ban max connections log published ipv4 ipv6 masquerade redirect map on
		stateless clamp mss as wan lan office served default-route 10.0.0.0/8 10.0.0.1/8 0.0.0.0/0 ::/0 2001:db8::1 fe80::1 127.0.0.1
		224.0.0.1 255.255.255.255 203.0.113.5-203.0.113.1 10/minute 0/second 5/fortnight 1h 0s 10 -1 1e3 true yes ~ null [] {} input: output: forward: nat: rules: default:
		accelerate: sets: zones: ban: never-ban: tracking: bypass: expect: include: version: 2 # & * ! | > ' " @ %`)
})

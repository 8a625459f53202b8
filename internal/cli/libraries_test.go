package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// textsWithCommands are files of libraries whose texts may name commands and flags,
// with the reason. Elsewhere an error, a note or a finding says what would fix it by
// its type or a remedy, which words.Hinted turns into words.
var textsWithCommands = map[string]string{
	"backend/nftables/artifact.go":  "the head of the file that is written for nft, which is read without Sluice",
	"language/policy/language.go":   "the reference of the language, a page of the manual",
	"language/policy/reference.go":  "the reference of the language, a page of the manual",
	"language/starter/starter.go":   "the head of the policy that is written",
	"program/compile/ban.go":        "the origin of a rule: the command that bans",
	"program/optimize/reference.go": "the reference of the passes, a page of the manual",
	"program/program.go":            "the command of a note, to which who prints it adds flags",
	"prove/check/explain.go":        "the reference of findings, a page of the manual",
	"system/host/route.go":          "part of a sentence of explain, behind a colon",
}

// TestLibrariesNameNoCommand holds the packages below the commands to types: who calls
// them may be no command.
func TestLibrariesNameNoCommand(t *testing.T) {
	names := namesCommand(Root())
	for text, want := range map[string]bool{
		"sluice apply loads it": true, "see `sluice geo list`": true, "run sluice-lab bench again": true, "x\nhint: give --no-confirm": true, "it stays (--force bans it)": true,
		"sluice": false, "made by sluice for nftables": false, "this sluice reads up to 3": false, "--quiet": false, "conntrack --dump of it": false, "sluice-calibration/1": false,
	} {
		if names(text) != want {
			t.Errorf("%q names a command or a flag: %v, want %v", text, !want, want)
		}
	}
	files, found := 0, map[string]bool{}
	for _, room := range []string{"base", "language", "program", "backend", "prove", "system", "engine"} {
		err := filepath.WalkDir(filepath.Join("..", room), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
			ast.Inspect(file, func(n ast.Node) bool {
				literal, is := n.(*ast.BasicLit)
				if !is || literal.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil || !names(text) {
					return true
				}
				found[name] = true
				if textsWithCommands[name] == "" {
					t.Errorf("%s names a command or a flag, which who calls may not have: %s", set.Position(literal.Pos()), literal.Value)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 300 {
		t.Errorf("%d files of libraries are read", files)
	}
	for name := range textsWithCommands {
		if !found[name] {
			t.Errorf("%s names no command any more", name)
		}
	}
}

// namesCommand says whether a text names a command below root, or a flag of one among
// other words; one alone is an argument for another program.
func namesCommand(root *cobra.Command) func(text string) bool {
	var commands, flags []string
	flag := func(f *pflag.Flag) { flags = append(flags, f.Name) }
	root.PersistentFlags().VisitAll(flag)
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		c.Flags().VisitAll(flag)
		for _, sub := range c.Commands() {
			commands = append(commands, sub.Name())
			visit(sub)
		}
	}
	visit(root)
	slices.Sort(flags)
	flags = slices.Compact(flags)
	command := regexp.MustCompile(`\bsluice (?:` + strings.Join(commands, "|") + `)\b|\bsluice-lab [a-z]`)
	among := regexp.MustCompile(`(?:^|[ (\n])--(?:` + strings.Join(flags, "|") + `)\b`)
	return func(text string) bool {
		return command.MatchString(text) || strings.Contains(text, " ") && among.MatchString(text)
	}
}

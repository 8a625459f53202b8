package command

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/internal/base/nearest"
	"sluice/internal/language/source"
	"sluice/internal/words"
)

// failureJSON is what every command prints with --json when it fails before it
// has printed what was asked for.
type failureJSON struct {
	Error string `json:"error"` // as on standard error, hints too
	Exit  int    `json:"exit-status"`
}

// counted knows whether a command has printed anything.
type counted struct {
	io.Writer
	bytes int
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.bytes += n
	return n, err
}

// fail reports what a command ended with and returns the exit status.
func fail(cmd *cobra.Command, args []string, err error, out *counted, errOut io.Writer) int {
	text, status := words.Ended(err, HereArguments(cmd))
	if errors.Is(err, ErrInterrupted) {
		status = 130
	}
	text = strings.TrimRight(badUse(cmd, plainWords(text)), "\n")
	text += rightsHint(text)
	text = StyleHints(text)
	if wantsJSON(cmd, args) && out.bytes == 0 && text != "" {
		// Standard output that is closed leaves standard error.
		_ = PrintJSON(out, failureJSON{text, status})
	}
	switch {
	case text == "":
	case status != 2:
		fmt.Fprintln(errOut, text)
	default:
		fmt.Fprintf(errOut, "%s %s\n", Paint(errOut, "31", "error:"), text)
	}
	return status
}

// wantsJSON looks at the arguments too, since a bad flag ends the reading of
// flags.
func wantsJSON(cmd *cobra.Command, args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return JSON(cmd) || slices.Contains(args, "--json")
}

var exclusiveFlags = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^if any flags in the group \[\S+ \S+\] are set none of the others can be; \[(\S+) (\S+)\] were all set$`)
})

var badValue = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^invalid argument ("[^"]*") for "(?:-\w, )?(--[\w-]+)" flag: `)
})

// What the flags say of a value comes from strconv.
var (
	badNumber = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`strconv\.Parse(?:Uint|Int): parsing "(?:[^"\\]|\\.)*": invalid syntax`)
	})
	badParse = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`strconv\.Parse\w+: parsing "(?:[^"\\]|\\.)*": `) })
)

// plainWords says in plain words what the library of flags says in its own.
func plainWords(text string) string {
	text = badValue().ReplaceAllString(text, "$2 $1: ")
	text = badNumber().ReplaceAllString(text, "not a whole number")
	text = badParse().ReplaceAllString(text, "")
	return exclusiveFlags().ReplaceAllString(text, "--$1 and --$2 exclude each other")
}

var (
	argumentCount = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:accepts|requires) .*arg\(s\),.* received (\d+)$`)
	})
	unknownCommand = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^unknown command ("(?:[^"\\]|\\.)*") for "([^"]*)"`) })
	unknownFlag    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^unknown flag: --(\S+)$`) })
	missingFlag    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^required flag\(s\) "([^"]*)".* not set$`) })
	badArgument    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^invalid argument "(?:[^"\\]|\\.)*" for "[^"]*"$`) })
	unknownLetter  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^unknown shorthand flag: '.' in -([^\s=]+)\S*$`) })
)

// badUse adds to what the library of commands says of arguments and flags what the
// command takes instead.
func badUse(cmd *cobra.Command, text string) string {
	if found := unknownCommand().FindStringSubmatch(text); found != nil {
		return fmt.Sprintf("unknown command %s for %q\nhint: %s", found[1], found[2], meantCommand(cmd, found[1]))
	}
	if found := argumentCount().FindStringSubmatch(text); found != nil {
		return "wrong number of arguments: " + found[1] + "\nhint: " + cmd.UseLine()
	}
	if found := unknownFlag().FindStringSubmatch(text); found != nil {
		if r := source.RenamedOf(cmd.CommandPath(), "", "--"+found[1]); r != nil {
			return r.String() + "\nhint: write " + r.New
		}
		return text + "\nhint: " + meantFlag(cmd, found[1])
	}
	if found := unknownLetter().FindStringSubmatch(text); found != nil {
		return "unknown flag: -" + found[1] + "\nhint: " + meantFlag(cmd, found[1])
	}
	if found := missingFlag().FindStringSubmatch(text); found != nil {
		return "--" + found[1] + " is missing\nhint: " + cmd.CommandPath() + " --help shows what it takes"
	}
	if badArgument().MatchString(text) {
		return text + "\nhint: " + cmd.UseLine()
	}
	if strings.HasPrefix(text, "flag needs an argument") {
		return text + "\nhint: " + cmd.CommandPath() + " --help shows what it takes"
	}
	return text
}

// otherCommands are words that people try for a command, as other tools have them.
var otherCommands = map[string]string{
	"reload": "apply", "start": "apply", "enable": "apply", "restart": "apply", "up": "apply", "install": "apply", "commit": "apply",
	"logs": "log", "list": "status", "show": "status", "ls": "status", "info": "status", "state": "status",
	"stop": "remove", "disable": "remove", "down": "remove", "flush": "remove", "uninstall": "remove", "reset": "rollback or remove", "save": "confirm",
	"delete": "unban or remove", "del": "unban or remove", "rm": "unban or remove",
	"block": "ban", "unblock": "unban", "undo": "rollback", "revert": "rollback",
	"validate": "check", "preview": "plan", "dry-run": "plan", "new": "init", "trace": "explain",
}

// inPolicy are words that people try for a command, of what the policy file says.
var inPolicy = []string{"deny", "accept", "drop", "reject", "rule", "add", "insert", "port", "limit", "zone"}

// meantCommand is a hint which command was probably meant by another name: by what the
// word means first, then by its letters.
func meantCommand(cmd *cobra.Command, quoted string) string {
	word, err := strconv.Unquote(quoted)
	if err != nil {
		word = quoted
	}
	if other, known := otherCommands[strings.ToLower(word)]; known && !cmd.HasParent() {
		return "did you mean " + other + "?"
	}
	if slices.Contains(inPolicy, strings.ToLower(word)) && !cmd.HasParent() {
		return "rules are in the policy file; sluice edit changes and loads it"
	}
	if !cmd.HasAvailableSubCommands() {
		return cmd.CommandPath() + " takes no arguments; see its --help"
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if name := nearest.Of(strings.ToLower(word), names); name != "" {
		return "did you mean " + name + "?"
	}
	return cmd.CommandPath() + " --help lists them"
}

// sameFlags are names that commands and other tools have for one thing.
var sameFlags = [][]string{
	{"from", "src", "source", "saddr"},
	{"to", "dst", "dest", "destination", "daddr"},
	{"service", "dport", "port", "destination-port"},
	{"service", "proto", "protocol"},
	{"sport", "source-port"},
	{"in", "iif", "iifname", "interface", "in-interface"},
	{"out", "oif", "oifname", "out-interface"},
	{"user", "uid", "owner"},
	{"host", "facts"},
	{"netns", "namespace"},
	{"for", "watch", "since", "confirm", "duration", "time", "timeout", "ttl", "window"},
	{"count", "most", "lines", "limit", "n"},
	{"message", "comment", "reason"},
	{"follow", "watch", "tail", "f", "w"},
	{"no-confirm", "yes", "y"},
	{"output", "out-file", "o"},
}

// otherWays are flags that people try where there is another way.
var otherWays = map[string]string{
	"dry-run": "sluice plan shows what an apply would change", "diff": "sluice diff shows what opens and closes",
	"file": "give the file without a flag", "f": "give a file without a flag", "policy": "give the file without a flag",
}

// meantFlag is a hint which flag of a command was probably meant by another name.
func meantFlag(cmd *cobra.Command, word string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	name := word
	for _, same := range sameFlags {
		if !slices.Contains(names, name) && slices.Contains(same, word) {
			if i := slices.IndexFunc(same, func(s string) bool { return slices.Contains(names, s) }); i >= 0 {
				name = same[i]
			}
		}
	}
	if !slices.Contains(names, name) {
		name = nearest.Of(word, names)
	}
	if other, known := otherWays[word]; known && name == "" && cmd.Root().Name() == "sluice" {
		return other
	}
	if name == "" {
		return cmd.CommandPath() + " --help lists them"
	}
	return "did you mean --" + name + "?"
}

// StyleHints begins every hint at the margin, as check does.
func StyleHints(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if hint := strings.TrimLeft(line, " "); i > 0 && strings.HasPrefix(hint, "hint:") {
			lines[i] = hint
		}
	}
	return strings.Join(lines, "\n")
}

// HereArguments are the flags with which another command works on the same
// namespace and state: "" or such as " --netns customer7".
func HereArguments(cmd *cobra.Command) string { return HereIn(cmd, Netns(cmd)) }

// HereIn is HereArguments for another namespace.
func HereIn(cmd *cobra.Command, name string) string {
	text := ""
	if name != "" {
		text += " --netns " + ShellWord(name)
	}
	state := StateDir(cmd)
	if dir, err := filepath.Abs(state); err == nil && state != "" && dir != DefaultStateDir {
		text += " --state-dir " + ShellWord(dir)
	}
	return text
}

// ShellWord quotes a word where a shell would not take it for one.
func ShellWord(word string) string {
	plain := func(r rune) bool {
		return r == '/' || r == '.' || r == '-' || r == '_' || r == '@' || r == '+' || r == ':' || r == ',' ||
			r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

package live

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"sluice/internal/system/kernel/nft"
)

// rulePlace is one rule of the host's ruleset.
type rulePlace struct {
	family, table, chain string
	handle               uint64
}

// ruleText is a rule as nft prints it, and what its comment says.
type ruleText struct {
	text, comment string
	number        int // in its chain, from 1
}

// listing is what nft says of the host's rules.
type listing struct {
	rules map[rulePlace]ruleText
	// counters are the comments of named counters, by family, table and name: rules that many
	// lines of a policy share have none of their own.
	counters map[[3]string]string
}

// readTexts reads the rules of the calling thread's namespace.
func readTexts(ctx context.Context) (*listing, error) {
	out, err := nft.ListHandles(ctx, "ruleset")
	if err != nil {
		return nil, err
	}
	return parseTexts(string(out)), nil
}

var (
	tableLine  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^table (\S+) (\S+) \{`) })
	chainLine  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\tchain (\S+) \{`) })
	handleEnd  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(` # handle ([0-9]+)$`) })
	commentEnd = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(` comment "([^"]*)"$`) })

	counterLine    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\tcounter (\S+) \{`) })
	counterComment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\t\tcomment "([^"]*)"$`) })
	counterName    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bcounter name "([^"]+)"`) })
)

// parseTexts reads what "nft -a list ruleset" prints.
func parseTexts(text string) *listing {
	l := &listing{map[rulePlace]ruleText{}, map[[3]string]string{}}
	var at rulePlace
	number, rule := 0, ""
	counter := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := tableLine().FindStringSubmatch(line); m != nil {
			at = rulePlace{family: m[1], table: m[2]}
			continue
		}
		if m := chainLine().FindStringSubmatch(line); m != nil && at.table != "" {
			at.chain, number, rule = m[1], 0, ""
			continue
		}
		if m := counterLine().FindStringSubmatch(line); m != nil {
			counter = m[1]
			continue
		}
		if line == "\t}" {
			at.chain, counter = "", ""
		}
		if m := counterComment().FindStringSubmatch(line); m != nil && counter != "" {
			l.counters[[3]string{at.family, at.table, counter}] = m[1]
		}
		if at.chain == "" {
			continue
		}
		// A long list of values goes over several lines.
		rule = strings.TrimSpace(rule + " " + strings.TrimSpace(line))
		m := handleEnd().FindStringSubmatchIndex(rule)
		if m == nil {
			if strings.HasPrefix(rule, "type ") || strings.HasPrefix(rule, "comment ") {
				rule = "" // of the chain
			}
			continue
		}
		text := rule
		rule = ""
		handle, err := strconv.ParseUint(text[m[2]:m[3]], 10, 64)
		if err != nil {
			continue
		}
		number++
		r := ruleText{text: text[:m[0]], number: number}
		if c := commentEnd().FindStringSubmatchIndex(r.text); c != nil {
			r.comment, r.text = r.text[c[2]:c[3]], r.text[:c[0]]
		}
		p := at
		p.handle = handle
		l.rules[p] = r
	}
	return l
}

// line is the line of the policy that a rule stands for, such as "policy.yaml:12 allow
// ssh": its own comment, or that of a counter.
func (l *listing) line(family, table string, r ruleText) (text, counter string) {
	if isLine(r.comment) {
		return r.comment, ""
	}
	if m := counterName().FindStringSubmatch(r.text); m != nil {
		if c := l.counters[[3]string{family, table, m[1]}]; isLine(c) {
			return c, m[1]
		}
	}
	return "", ""
}

// isLine says of a comment that it begins with a file and a line.
func isLine(comment string) bool {
	file, rest, found := strings.Cut(comment, " ")
	i := strings.LastIndexByte(file, ':')
	return found && i > 0 && rest != "" && file[i+1:] != "" && strings.Trim(file[i+1:], "0123456789") == ""
}

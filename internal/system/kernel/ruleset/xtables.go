package ruleset

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/tool"
)

// legacies are the two halves of legacy iptables, and where the kernel names their tables
// in this namespace.
var legacies = []struct{ family, program, names string }{
	{"ip", "iptables", "ip_tables_names"},
	{"ip6", "ip6tables", "ip6_tables_names"},
}

// legacyTables says whether there are any. The kernel is asked before the programs are
// run: they would load its modules otherwise.
func legacyTables(names string) (bool, error) {
	text, err := os.ReadFile("/proc/thread-self/net/" + names)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("list tables of legacy iptables: %w", err)
	}
	return len(bytes.TrimSpace(text)) > 0, nil
}

// LegacyLogs says whether legacy iptables of a family (4 or 6) would write to a log which of
// its rules a packet meets that is marked for a trace (trace_packet of ip_tables.c): there
// are tables, and a logger. That to the kernel's log serves the first network namespace
// alone, unless nf_log_all_netns says otherwise, which can be read there alone: where the
// process is not in it, this says yes.
func LegacyLogs(family int) (bool, error) {
	there, err := legacyTables(legacies[family/2-2].names)
	if !there || err != nil {
		return false, err
	}
	name := map[int]string{4: "2", 6: "10"}[family] // NFPROTO_*
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_log/" + name)
	logger := strings.TrimSpace(string(text))
	if errors.Is(err, fs.ErrNotExist) || logger == "NONE" {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("read which logger there is: %w", err)
	}
	const everywhere = "/proc/sys/net/netfilter/nf_log_all_netns"
	if _, err := os.Stat(everywhere); err == nil || !strings.HasPrefix(logger, "nf_log_") {
		return true, nil
	}
	others := make(chan bool)
	go func() { // on a thread that has entered no namespace
		text, err := os.ReadFile(everywhere)
		others <- err != nil || strings.TrimSpace(string(text)) != "0"
	}()
	return <-others, nil
}

// Legacy returns the tables of legacy iptables and ip6tables.
func Legacy(ctx context.Context) ([]Table, error) {
	var all []Table
	for _, l := range legacies {
		there, err := legacyTables(l.names)
		if err != nil {
			return nil, err
		}
		if !there {
			continue
		}
		tables, err := save(ctx, l.family, saveProgram(ctx, l.program, "legacy"))
		if err != nil {
			return nil, err
		}
		for i := range tables {
			tables[i].Legacy = true
		}
		all = append(all, tables...)
	}
	return all, nil
}

// saveProgram is the save program that speaks to a kernel interface, "legacy" or "nft".
// Before iptables 1.8 there was the legacy one alone, and it bore the plain name; since
// then the plain name may stand for either, and says which.
func saveProgram(ctx context.Context, program, flavour string) string {
	own, plain := program+"-"+flavour+"-save", program+"-save"
	if installed(own) || !installed(plain) {
		return own
	}
	version, err := printed(ctx, plain, "--version")
	if err != nil || bytes.Contains(version, []byte("nf_tables")) != (flavour == "nft") {
		return own
	}
	return plain
}

// printed is what a program prints.
func printed(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := tool.Command(ctx, program, args...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := tool.Run(cmd); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(problems.Bytes()))
	}
	return out.Bytes(), nil
}

func save(ctx context.Context, family, program string) ([]Table, error) {
	out, err := printed(ctx, program)
	if err != nil {
		return nil, err
	}
	return ParseSave(bytes.NewReader(out), family)
}

// needsExtensions says whether a rule rewrites by an extension that nft lists
// by name only.
func (t Table) needsExtensions() bool {
	if t.Family != "ip" && t.Family != "ip6" {
		return false
	}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			if r.extension {
				return true
			}
		}
	}
	return false
}

// readExtensions replaces the rules by those that iptables over nftables says.
// Without that program the extensions stay unread, which only hides what they
// publish.
func (t *Table) readExtensions(ctx context.Context) error {
	program := map[string]string{"ip": "iptables-nft-save", "ip6": "ip6tables-nft-save"}[t.Family]
	if !installed(program) {
		return nil
	}
	tables, err := save(ctx, t.Family, program)
	if err != nil {
		return err
	}
	for _, found := range tables {
		if found.Name != t.Name {
			continue
		}
		for _, c := range t.Chains {
			for _, f := range found.Chains {
				if f.Name == c.Name {
					c.Rules = f.Rules
				}
			}
		}
	}
	return nil
}

func installed(program string) bool {
	_, err := tool.Path(program)
	return err == nil
}

// builtin is where the built-in chains of xtables stand; priorities as in
// include/uapi/linux/netfilter_ipv4.h.
var builtin = map[string]struct {
	table    string
	priority map[string]int
}{
	"raw":      {"filter", map[string]int{"PREROUTING": -300, "OUTPUT": -300}},
	"mangle":   {"filter", map[string]int{"PREROUTING": -150, "INPUT": -150, "FORWARD": -150, "OUTPUT": -150, "POSTROUTING": -150}},
	"nat":      {"nat", map[string]int{"PREROUTING": -100, "INPUT": 100, "OUTPUT": -100, "POSTROUTING": 100}},
	"filter":   {"filter", map[string]int{"INPUT": 0, "FORWARD": 0, "OUTPUT": 0}},
	"security": {"filter", map[string]int{"INPUT": 50, "FORWARD": 50, "OUTPUT": 50}},
}

// ParseSave reads what iptables-save prints (iptables-save(8)).
func ParseSave(in io.Reader, family string) ([]Table, error) {
	var tables []Table
	chains := map[string]*Chain{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || line[0] == '#' || line == "COMMIT":
		case line[0] == '*':
			tables = append(tables, Table{Family: family, Name: line[1:]})
			chains = map[string]*Chain{}
		case len(tables) == 0:
			return nil, fmt.Errorf("line %d of the saved rules: no table before %q", n, line)
		case line[0] == ':':
			t := &tables[len(tables)-1]
			c := savedChain(t.Name, line[1:])
			chains[c.Name] = c
			t.Chains = append(t.Chains, c)
		default:
			words, err := split(line)
			if err != nil {
				return nil, fmt.Errorf("line %d of the saved rules: %w", n, err)
			}
			if len(words) > 0 && strings.HasPrefix(words[0], "[") {
				words = words[1:] // counters
			}
			if len(words) < 2 || words[0] != "-A" || chains[words[1]] == nil {
				return nil, fmt.Errorf("line %d of the saved rules: not a rule of a chain: %q", n, line)
			}
			c := chains[words[1]]
			c.Rules = append(c.Rules, savedRule(words[2:]))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the saved rules: %w", err)
	}
	return tables, nil
}

func savedChain(table, line string) *Chain {
	name, rest, _ := strings.Cut(line, " ")
	policy, _, _ := strings.Cut(rest, " ")
	c := &Chain{Name: name}
	if policy == "-" || policy == "" {
		return c
	}
	c.Policy = strings.ToLower(policy)
	if place, ok := builtin[table]; ok {
		if priority, ok := place.priority[name]; ok {
			c.Type, c.Hook, c.Priority = place.table, strings.ToLower(name), priority
			if table == "mangle" && name == "OUTPUT" {
				c.Type = "route"
			}
		}
	}
	return c
}

// split takes a line apart at blanks; double quotes keep words together and a
// backslash takes the next character as it is.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inside, quoted, escaped := false, false, false
	for _, c := range line {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\':
			inside, escaped = true, true
		case c == '"':
			inside, quoted = true, !quoted
		case (c == ' ' || c == '\t') && !quoted:
			if inside {
				words = append(words, word.String())
				word.Reset()
			}
			inside = false
		default:
			inside = true
			word.WriteRune(c)
		}
	}
	if quoted || escaped {
		return nil, errors.New("quote without its end")
	}
	if inside {
		words = append(words, word.String())
	}
	return words, nil
}

func savedRule(words []string) Rule {
	var r Rule
	negated, tracks := false, false
	for i := 0; i < len(words); i++ {
		word := words[i]
		if word == "!" {
			negated = true
			continue
		}
		value := ""
		if i+1 < len(words) {
			value = words[i+1]
		}
		switch word {
		case "-p", "-d", "--dport", "--dports":
			if !negated {
				r.Match = cross(r.Match, savedMatch(word, value))
			}
			i++
		case "-j", "-g":
			r.savedTarget(value)
			tracks = value == "CT"
			i++
		case "--helper", "--timeout":
			if tracks { // CT's own; the match "helper" has such an option as well
				r.More = append(r.More, map[string]Effect{"--helper": Helps, "--timeout": Times}[word])
			}
			i++
		case "--to-destination":
			r.NAT = []Rewrite{{To: savedAddress(value)}}
			i++
		}
		negated = false
	}
	return r
}

func (r *Rule) savedTarget(name string) {
	switch name {
	case "ACCEPT", "RETURN":
	case "DNAT", "REDIRECT":
		r.NAT, r.Rewrites = []Rewrite{{}}, true
	case "DROP", "REJECT", "TARPIT", "DELUDE":
		r.Drops = true
	case "NFQUEUE", "QUEUE", "SYNPROXY":
		r.Drops, r.Rewrites = true, true
	case "TEE":
		r.More = append(r.More, Copies)
	default:
		r.Rewrites = slices.Contains(rewritingTargets, name)
		// A chain or an extension; a jump to no chain leads nowhere.
		r.Jumps = append(r.Jumps, Jump{Chain: name})
	}
}

func savedMatch(option, value string) []Match {
	switch option {
	case "-p":
		if value == "all" {
			return nil
		}
		return []Match{{Protocol: value}}
	case "-d":
		p, err := netip.ParsePrefix(value)
		if err == nil && p.IsSingleIP() {
			return []Match{{Destination: p.Addr()}}
		}
		return nil
	}
	var all []Match
	for part := range strings.SplitSeq(value, ",") {
		first, last, isRange := strings.Cut(part, ":")
		if !isRange {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil || from > to || to == 0 {
			return nil
		}
		all = append(all, Match{From: uint16(from), To: uint16(to)})
	}
	return all
}

// savedAddress reads the first address of ADDRESS[-ADDRESS][:PORT[-PORT]], with
// brackets round IPv6 before a port.
func savedAddress(text string) netip.AddrPort {
	port := uint16(0)
	host := text
	if rest, ok := strings.CutPrefix(text, "["); ok {
		var tail string
		host, tail, _ = strings.Cut(rest, "]")
		port = firstPort(strings.TrimPrefix(tail, ":"))
	} else if strings.Count(text, ":") == 1 {
		var tail string
		host, tail, _ = strings.Cut(text, ":")
		port = firstPort(tail)
	}
	host, _, _ = strings.Cut(host, "-")
	return target(host, port)
}

func firstPort(text string) uint16 {
	text, _, _ = strings.Cut(text, "-")
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

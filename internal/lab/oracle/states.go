package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"sluice/internal/lab/testnet"
)

// house is a host in a namespace, with the state of sluice on it and a web server that
// has a list.
type house struct {
	options
	root    string // policies, and the state in folder "state"
	byName  bool   // it is named by --netns, else the program is started inside
	net     *testnet.Net
	space   *testnet.Namespace
	serving *http.Server
	list    atomic.Value // string
}

// compareStates gives the number of scenarios in which the newer program goes on in
// another way than the older one does.
func compareStates(ctx context.Context, o options, work string) (found int, err error) {
	for i, s := range scenarios {
		for _, byName := range []bool{false, true} {
			difference, err := s.compare(ctx, o, filepath.Join(work, fmt.Sprintf("state-%d-%t", i, byName)), byName)
			if err != nil {
				return found, fmt.Errorf("%s: %w", s.name, err)
			}
			how := map[bool]string{false: "inside the namespace", true: "by --netns"}[byName]
			if difference != "" {
				found++
				fmt.Fprintf(o.out, "DIFFERENCE in the state of %q, %s\n%s\n", s.name, how, difference)
			} else {
				fmt.Fprintf(o.out, "state: %s, %s: equal\n", s.name, how)
			}
		}
	}
	return found, nil
}

// compare plays the scenario on two houses: on both the older program prepares, then
// it goes on in the first, and the newer one in the second.
func (s scenario) compare(ctx context.Context, o options, work string, byName bool) (difference string, err error) {
	var houses [2]*house
	for i := range houses {
		h := &house{options: o, byName: byName, root: filepath.Join(work, fmt.Sprint(i))}
		defer func() { err = errors.Join(err, h.close()) }()
		if err := h.build(); err != nil {
			return "", err
		}
		houses[i] = h
	}
	for _, line := range lines(s.before) {
		a, err := houses[0].take(ctx, o.before, line)
		if err != nil {
			return "", err
		}
		b, err := houses[1].take(ctx, o.before, line)
		if err != nil {
			return "", err
		}
		if text := a.unlike(b); text != "" {
			return "", fmt.Errorf("the older program alone does not do the same twice: %s\n%s", line, text)
		}
		if a.status == 2 {
			return "", fmt.Errorf("%s: %s", line, a.err)
		}
	}
	said := ""
	for _, line := range lines(s.after) {
		a, err := houses[0].take(ctx, o.before, line)
		if err != nil {
			return "", err
		}
		b, err := houses[1].take(ctx, o.after, line)
		if err != nil {
			return "", err
		}
		if text := a.unlike(b); text != "" {
			return said + line + "\n" + text, nil
		}
		said += line + "\n"
	}
	a, err := houses[0].left(ctx)
	if err != nil {
		return "", err
	}
	b, err := houses[1].left(ctx)
	if text := a.unlike(b); text != "" {
		return said + "what is left:\n" + text, err
	}
	return "", err
}

func lines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

func (h *house) build() error {
	if err := os.MkdirAll(filepath.Join(h.root, "state"), 0o755); err != nil {
		return err
	}
	for name, text := range hostPolicies {
		if err := os.WriteFile(filepath.Join(h.root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	h.list.Store("")
	return h.boot()
}

// boot makes the namespace, in place of the one before.
func (h *house) boot() (err error) {
	if err := h.close(); err != nil {
		return err
	}
	if h.net, err = testnet.Create("oracle"); err != nil {
		return err
	}
	if err := h.net.Try(func() { h.space = newYard(h.net, "host") }); err != nil {
		return err
	}
	var listener net.Listener
	if err := h.space.Do(func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:8000")
		return err
	}); err != nil {
		return err
	}
	h.serving = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, h.list.Load())
	})}
	go h.serving.Serve(listener) //nolint:errcheck // it ends with the house
	return nil
}

func (h *house) close() error {
	if h.net == nil {
		return nil
	}
	return errors.Join(h.serving.Close(), h.net.Close())
}

// words of a line; what is in double quotes is one.
var words = regexp.MustCompile(`"[^"]*"|\S+`)

// take does what a line says.
func (h *house) take(ctx context.Context, program, line string) (answer, error) {
	args := words.FindAllString(line, -1)
	for i := range args {
		args[i] = strings.Trim(args[i], `"`)
	}
	switch args[0] {
	case "!flush":
		h.space.MustRun("nft", "flush", "ruleset")
	case "!boot":
		return answer{}, h.boot()
	case "!list":
		h.list.Store(strings.Join(args[1:], "\n") + "\n")
	case "!address":
		h.space.MustRun("ip", "address", "add", args[1], "dev", "wan0")
	case "!damage":
		return answer{}, os.WriteFile(filepath.Join(h.state(), args[1]), []byte("{"), 0o600)
	case "!wait":
		for end := time.Now().Add(patience); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			a, err := h.take(ctx, h.before, "status --json")
			if err != nil || !strings.Contains(a.out, `"pending"`) && !strings.Contains(a.out, `"busy"`) {
				return answer{}, err
			}
		}
		return answer{}, errors.New("a trial does not run out")
	default:
		args = append(args, "--state-dir", filepath.Join(h.root, "state"))
		if h.byName {
			args = append(args, "--netns", h.space.Name())
		}
		a, err := ask(ctx, program, question{args: args, inside: !h.byName}, h.root, h.space)
		a.out, a.err = h.plain(a.out), h.plain(a.err)
		return a, err
	}
	return answer{}, nil
}

// state is the folder of this host's state.
func (h *house) state() string {
	if h.byName {
		return filepath.Join(h.root, "state", "netns", h.space.Name())
	}
	return filepath.Join(h.root, "state")
}

// What another run of the same program writes otherwise: times, the sums of lines with
// times, random marks, what the kernel calls a namespace, and the sum of where files are;
// whom it waits for, and the steps of a change, from the one at which it takes long.
var (
	moments = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?|\b(\d+[dhms])*\d+(\.\d+)?([dhms]|ms|µs)\b`)
	numbers = regexp.MustCompile(`(?m)("(?:seconds|took)": )[\d.e-]+|(generation_\d+_)[0-9a-f]{12}|^[0-9a-f]{8} (\{)|("cookie )\d+(?:","number":\d+)?|("version": ?)"[^"]*"|("inputs":)"[0-9a-f]{64}"|("bans":)\{"journal":"[0-9a-f]{64}","clock":-?\d+\}`)
	sums    = regexp.MustCompile(`[0-9a-f]{64}`)
	waited  = regexp.MustCompile(`(?m)^(note: waiting at most .*|.* \(step \d+ of \d+\))\n`)
	blanks  = regexp.MustCompile(` {2,}|-{3,}`)
)

// plain is a text without what is another each time. Sums are, where the name of the
// namespace is part of what they are of.
func (h *house) plain(text string) string {
	text = waited.ReplaceAllString(strings.ReplaceAll(text, h.space.Name(), "SPACE"), "")
	text = numbers.ReplaceAllString(text, "$1$2$3$4$5$6$7…")
	if h.byName {
		text = sums.ReplaceAllString(text, "SUM")
	}
	return blanks.ReplaceAllString(moments.ReplaceAllString(text, "TIME"), "  ")
}

// left is what is in the kernel and on the disk, except for the lock and for what watchers
// say: whether they or the next command were first to take a policy back is chance.
func (h *house) left(ctx context.Context) (answer, error) {
	rules, err := h.space.RunContext(ctx, "", "nft", "list", "ruleset")
	if err != nil {
		return answer{}, err
	}
	written, err := filesOf(h.state())
	files := map[string]string{"nft list ruleset": h.plain(rules)}
	for name, text := range written {
		// what is stored of a program is judged by whoever reads it: rollback, verify, bans
		if name != "lock" && name != "watcher.log" && !strings.HasPrefix(name, "blobs/") {
			files[name] = h.plain(strings.ReplaceAll(text, h.root, "HERE"))
		}
	}
	return answer{files: files}, err
}

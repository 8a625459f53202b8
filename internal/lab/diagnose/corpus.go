// Package diagnose holds "sluice doctor" to rulesets that others wrote, and its estimates to
// what rules cost ([Measure]). The command doctor of sluice-lab calls it.
//
// [Corpus]: each file of a folder that a tool loads is loaded in a network namespace of its own, on a
// host with addresses and routes of both families and a program that listens, and diagnosed
// there by the real program.
package diagnose

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/internal/base/regular"
	"sluice/internal/base/sorting"
	"sluice/internal/doctor"
	"sluice/internal/lab/product"
	"sluice/internal/lab/testnet"
)

// Options say what is diagnosed.
type Options struct {
	Binary   string             // the program sluice
	Dir      string             // folder of the rulesets, with all below it
	Window   time.Duration      // of each diagnosis, a second or more
	Progress func(done, of int) // nil: nobody is told
}

// File is one file, and what came of it.
type File struct {
	Name string `json:"file"` // below the folder
	Tool string `json:"tool"` // that loaded it; of one that none loads, that was asked last
	// NotLoaded is what the tool said against it, one line; then there is nothing else.
	NotLoaded string           `json:"not-loaded,omitempty"`
	Seconds   float64          `json:"seconds,omitempty"` // that the diagnosis took, its window too
	Findings  []doctor.Finding `json:"findings,omitempty"`
	Unread    []string         `json:"unread,omitempty"`
	// Failed is how the doctor ended where it gave no report.
	Failed string `json:"failed,omitempty"`
}

// Fires is how often a check found something.
type Fires struct {
	Check    string `json:"check"`
	Files    int    `json:"files"`
	Findings int    `json:"findings"`
}

// Result is what came of all.
type Result struct {
	Files []File  `json:"files"` // by name
	Fires []Fires `json:"fires"` // most files first
}

// Picked is one finding.
type Picked struct {
	File    string         `json:"file"`
	Finding doctor.Finding `json:"finding"`
}

// workers diagnose beside each other: a diagnosis is mostly its window.
const workers = 2

// Corpus diagnoses each ruleset of a folder. Files that are none are left out.
func Corpus(ctx context.Context, o Options) (*Result, error) {
	r := &Result{Files: []File{}, Fires: []Fires{}}
	texts := map[string]string{}
	err := filepath.WalkDir(o.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := regular.Read(path, largest)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(o.Dir, path)
		if tools := toolsFor(string(text)); len(tools) > 0 {
			texts[name] = string(text)
			r.Files = append(r.Files, File{Name: name})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	state, err := os.MkdirTemp("", "sluice-corpus-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(state) }()
	sluice := product.Sluice{Binary: o.Binary, State: state}
	group, inside := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	done := make(chan struct{}, len(r.Files))
	for i := range r.Files {
		group.Go(func() error {
			f := &r.Files[i]
			err := f.diagnose(inside, sluice, texts[f.Name], o.Window)
			done <- struct{}{}
			if o.Progress != nil {
				o.Progress(len(done), len(r.Files))
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	r.count()
	return r, nil
}

const largest = 64 << 20 // bytes of a file

var (
	xtablesText = regexp.MustCompile(`(?m)^\*(filter|nat|mangle|raw|security)\r?$`)
	ipsetText   = regexp.MustCompile(`\A(create|add|-N|-A) \S+ `)
	nftText     = regexp.MustCompile(`(?m)^\s*(table|flush ruleset|add (table|rule|chain|set)|define|include)\b`)
	ipv6Text    = regexp.MustCompile(`(?m)^-A .*(-[sd] [0-9a-f]*:|icmp6|ipv6-icmp)`)
)

// toolsFor are the commands that may load a text, in the order to be tried; none of what is not
// a ruleset.
func toolsFor(text string) [][]string {
	switch {
	case xtablesText.MatchString(text) && ipv6Text.MatchString(text):
		return [][]string{{"ip6tables-legacy-restore"}, {"ip6tables-nft-restore"}}
	case xtablesText.MatchString(text):
		return [][]string{{"iptables-legacy-restore"}, {"iptables-nft-restore"}}
	case ipsetText.MatchString(text):
		return [][]string{{"ipset", "restore"}}
	case nftText.MatchString(text):
		return [][]string{{"nft", "-f", "-"}}
	}
	return nil
}

// diagnose loads a text and diagnoses it. Its error ends all: the host could not be made.
func (f *File) diagnose(ctx context.Context, sluice product.Sluice, text string, window time.Duration) error {
	for _, tool := range toolsFor(text) {
		// Of what does not load a part may be there: each tool has a host of its own.
		err := testnet.Within("corpus", func(net *testnet.Net) error {
			host, err := aHost(net)
			if err != nil {
				return err
			}
			f.Tool, f.NotLoaded = tool[0], ""
			if said, err := host.RunContext(ctx, text, tool[0], tool[1:]...); err != nil {
				said, _, _ = strings.Cut(strings.TrimSpace(said), "\n")
				f.NotLoaded = cmp.Or(said, err.Error())
				return ctx.Err()
			}
			return f.examine(ctx, sluice, host, window)
		})
		if err != nil || f.NotLoaded == "" {
			return err
		}
	}
	return nil
}

func (f *File) examine(ctx context.Context, sluice product.Sluice, host *testnet.Namespace, window time.Duration) error {
	begun := time.Now()
	out, status, err := sluice.Run(ctx, host, nil, "doctor", "--json", "--watch", window.String())
	f.Seconds = time.Since(begun).Seconds()
	if err != nil {
		return err
	}
	var report doctor.Report
	if err := json.NewDecoder(bytes.NewReader([]byte(out))).Decode(&report); err != nil || status > 1 {
		f.Failed = fmt.Sprintf("exit status %d: %s", status, strings.TrimSpace(out))
		return nil //nolint:nilerr // it is in the result
	}
	f.Findings, f.Unread = report.Findings, report.Unread
	return nil
}

// aHost is one that is connected as usual hosts are.
func aHost(net *testnet.Net) (host *testnet.Namespace, err error) {
	return host, errors.Join(err, net.Try(func() {
		host = net.Namespace("host")
		net.Join(testnet.End{In: host, Device: "eth0", Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}},
			testnet.End{In: net.Unnamed("gateway"), Device: "eth0", Addresses: []string{"192.0.2.2/24", "2001:db8::2/64"}})
		host.Route("default4", "192.0.2.2")
		host.Route("default6", "2001:db8::2")
		host.Forward() // as what has rules for others does
		host.ServeTCP("[::]:8080")
	}))
}

func (r *Result) count() {
	at := map[string]int{}
	for _, f := range r.Files {
		seen := map[string]bool{}
		for _, found := range f.Findings {
			i, known := at[found.Check]
			if !known {
				i = len(r.Fires)
				at[found.Check] = i
				r.Fires = append(r.Fires, Fires{Check: found.Check})
			}
			r.Fires[i].Findings++
			if !seen[found.Check] {
				seen[found.Check] = true
				r.Fires[i].Files++
			}
		}
	}
	sorting.By(r.Fires, func(a, b Fires) int { return cmp.Or(cmp.Compare(b.Files, a.Files), cmp.Compare(a.Check, b.Check)) })
}

// Pick draws so many findings, each as likely as another, of different seeds other ones.
func (r *Result) Pick(n int, seed uint64) (out []Picked) {
	for _, f := range r.Files {
		for _, found := range f.Findings {
			out = append(out, Picked{f.Name, found})
		}
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return slices.Clip(out[:min(n, len(out))])
}

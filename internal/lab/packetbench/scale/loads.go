package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"sluice/internal/backend/nftables/calibration"
	"sluice/internal/engine/apply"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/packetbench"
	"sluice/internal/lab/peers"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
	"sluice/internal/lab/timed"
	"sluice/internal/system/kernel/memgroup"
)

// loads are what loads of one side took.
type loads struct {
	seconds stats.Series
	cpu     stats.Series // seconds of processors; empty: not known
	tool    int64        // most bytes of the programs at one time
	kernel  int64        // bytes that the kernel keeps for it; 0: not known
}

// small is up to how many a load is short: it is made some times, and the memory,
// whose samples take time, is looked at in others than those that are timed.
const small = 10_000

func (s *series) load(side side, file string, m peers.Meaning, n int) (loads, error) {
	out, err := s.once(side, file, m, true)
	if err != nil || n > small {
		return out, err
	}
	out.seconds, out.cpu = nil, nil
	for range 3 {
		one, err := s.once(side, file, m, false)
		if err != nil {
			return out, err
		}
		out.seconds, out.cpu = append(out.seconds, one.seconds...), append(out.cpu, one.cpu...)
	}
	again, err := s.once(side, file, m, true) // the samples of a load of milliseconds are few
	out.tool, out.kernel = max(out.tool, again.tool), max(out.kernel, again.kernel)
	return out, err
}

// once loads into a namespace that is gone afterwards.
func (s *series) once(side side, file string, m peers.Meaning, watch bool) (out loads, err error) {
	within, cancel := context.WithTimeout(s, s.Patience)
	defer cancel()
	net, err := testnet.Create("scale")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, net.Close()) }()
	var n *testnet.Namespace
	if err := net.Try(func() { n = net.Namespace("load") }); err != nil {
		return out, err
	}
	var group *memgroup.Group
	if watch {
		if group, err = memgroup.New("scale"); err != nil {
			group = nil
			s.warn("what the kernel keeps is not known: " + err.Error())
		} else {
			defer func() { // when the namespace has gone with what is charged to the group
				err = errors.Join(err, net.Close(), group.Remove())
			}()
		}
	}
	took, busy := 0.0, 0.0
	run := func(ctx context.Context, n *testnet.Namespace, input, name string, args ...string) error {
		p := timed.Program{Name: name, Args: args, In: n.Do, Watch: watch, Group: group}
		if input != "" {
			p.Stdin = []byte(input)
		}
		cost, err := timed.Run(ctx, p)
		took += cost.Wall.Seconds()
		busy += cost.CPU.Seconds()
		out.tool = max(out.tool, cost.Resident)
		return err
	}
	if side.peer == nil {
		err = s.apply(within, n, file, run)
	} else {
		begin := time.Now()
		err = side.peer.LoadBy(within, n, m, run)
		if side.peer.Private {
			took = time.Since(begin).Seconds()
		}
	}
	switch {
	case err != nil && s.Err() == nil && errors.Is(within.Err(), context.DeadlineExceeded):
		return out, fmt.Errorf("it takes more than %s to load", s.Patience)
	case err != nil:
		return out, errors.New(brief(err))
	}
	out.seconds = stats.Series{took}
	if side.peer == nil || !side.peer.Private { // a service works in processes that nobody waits for
		out.cpu = stats.Series{busy}
	}
	if group != nil && (side.peer == nil || !side.peer.Private) {
		if out.kernel, err = group.Kernel(); err != nil {
			return out, err
		}
		out.kernel = max(out.kernel, ipsets(n))
	}
	return out, nil
}

func brief(err error) string {
	const most = 300 // of a complaint that quotes a whole rule
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text[:min(len(text), most)]
}

func (s *series) warn(text string) {
	for _, w := range s.report.Warnings {
		if w == text {
			return
		}
	}
	s.report.Warnings = append(s.report.Warnings, text)
}

// apply loads the policy as a user does. The namespace is where its own program
// starts from the outside, since the command enters it by itself.
func (s *series) apply(ctx context.Context, n *testnet.Namespace, file string, run peers.Runner) error {
	state, err := os.MkdirTemp("", "sluice-scale-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(state) }()
	if err := calibration.Copy(s.StateDir, state); err != nil {
		return err
	}
	return run(ctx, n, "", s.Binary, "apply", file, "--no-confirm", "--no-verify", "--no-expect", "--force",
		"--netns", n.Name(), "--state-dir", state)
}

// ipsets is what the kernel says that the ipsets of a namespace take: not all of it
// is charged to whoever loads them (GFP_ATOMIC in
// net/netfilter/ipset/ip_set_hash_gen.h).
func ipsets(n *testnet.Namespace) (sum int64) {
	text, err := n.Run("ipset", "list", "-terse")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(text) {
		if number, is := strings.CutPrefix(strings.TrimSpace(line), "Size in memory: "); is {
			bytes, err := strconv.ParseInt(number, 10, 64)
			if err == nil {
				sum += bytes
			}
		}
	}
	return sum
}

// tooLong says why a side would take too long, or too much memory, with n: by what it
// took with the last step, which grows at the least as the number does.
func (s *series) tooLong(name string, n int) string {
	if len(s.steps) == 0 {
		return ""
	}
	last := s.steps[len(s.steps)-1]
	l, there := last.loads[name]
	if !there {
		return ""
	}
	times := float64(n) / float64(last.n)
	if t := l.seconds.Estimate().Median * times; t > s.Patience.Seconds() {
		return fmt.Sprintf("a load would take about %s s, by what %s took", figures.Number(t), figures.Number(float64(last.n)))
	}
	if free := apply.FreeMemory(); free > 0 && float64(l.tool)*times > float64(free)/2 {
		return fmt.Sprintf("a load would take about %.0f MiB, by what %s took", float64(l.tool)*times/(1<<20), figures.Number(float64(last.n)))
	}
	if name == packetbench.Sluice {
		return ""
	}
	sources := 1 << 16
	if s.sources != 0 {
		sources = s.sources
	}
	for _, f := range last.packets.Figures {
		if f.Subject != name || f.Quantity != packetbench.Added || len(f.Samples) == 0 {
			continue
		}
		if t := f.Estimate.Median * times * float64(sources) / 1e9; t > s.Patience.Seconds() {
			return fmt.Sprintf("a packet would pay about %s µs (%s), and all %s of them %s s",
				figures.Number(f.Estimate.Median*times/1e3), f.Case, figures.Number(float64(sources)), figures.Number(t))
		}
	}
	return ""
}

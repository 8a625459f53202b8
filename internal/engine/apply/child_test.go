package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/addrset"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
	"sluice/internal/system/host"
)

// The test binary is also the command under test: started with childVariable in
// its environment it runs one command in the namespace that it is in, and may
// be killed at any point of it.
const childVariable = "SLUICE_APPLY_CHILD"

// command is one run of the child.
type command struct {
	Op        string // "apply", "confirm", "rollback", "remove", "restore", "status", "settle", "watch", "flush"
	Dir       string
	Policy    string // of apply: see policyOf
	Expected  string // of apply: what Policy should mean, where that is another one
	N         int    // of rollback
	Confirm   time.Duration
	KillAt    string // "n": SIGKILL at the n-th point; "": none
	Trace     string // file that gets the points' names
	Cut       bool
	Waiting   bool // of restore
	Force     bool
	SSHClient string // ssh peer at 10.0.0.1:22
	// Described: peers are those that the host's description names; bans spare them.
	Described bool
	Wait      time.Duration
	Systemd   string // folder with systemd-run and systemctl
	Hold      string // touch this file and wait for its removal, at the first point or
	HoldAt    string // at this one, or at each of several between bars
	What      string // of ban and unban: ranges with a space between
	For       time.Duration
	Dear      bool          // of apply: lookups in interval sets cost much, so that large sets are laid out
	Grace     time.Duration // of apply: that the policy gives
	Tuning    Tuning        // of tune, and For of untune
	Etc       string
}

func TestMain(m *testing.M) {
	text := os.Getenv(childVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	var c command
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	token := ""
	if len(os.Args) > 1 {
		c.Op, token = "watch", os.Args[1]
		c.KillAt, c.Trace, c.Hold = "", "", ""
	}
	if err := c.run(token); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (c command) host() *Host {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	h := &Host{
		Dir: c.Dir, Backend: nftables.New(), Version: "test", Wait: c.Wait, Watcher: []string{exe},
		Note:  func(text string) { fmt.Fprintln(os.Stderr, "note:", text) },
		Shout: func(text string) { fmt.Fprintln(os.Stderr, "sluice:", text) },
	}
	h.etc = c.Etc
	if c.Systemd != "" {
		h.systemd, h.Namespace = c.Systemd, "lab"
		_ = os.Setenv("PATH", c.Systemd+":"+os.Getenv("PATH"))
	}
	points := 0
	h.at = func(point string) {
		points++
		if c.Trace != "" {
			f, err := os.OpenFile(c.Trace, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				panic(err)
			}
			fmt.Fprintln(f, point)
			_ = f.Close()
		}
		if c.KillAt == fmt.Sprint(points) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Minute)
		}
		if c.Hold != "" && (c.HoldAt == "" && points == 1 || slices.Contains(strings.Split(c.HoldAt, "|"), point)) {
			_ = os.WriteFile(c.Hold, nil, 0o600)
			for {
				if _, err := os.Stat(c.Hold); err != nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	return h
}

func (c command) run(token string) error {
	ctx := context.Background()
	h := c.host()
	var err error
	switch c.Op {
	case "apply":
		var out *Outcome
		if out, err = h.Apply(ctx, c.input(), Options{Confirm: c.Confirm, Keep: true, Verify: true, Cut: c.Cut, Force: c.Force}); err == nil {
			fmt.Printf("generation %d unchanged %v cut %d\n", out.Generation, out.Unchanged, out.Cut)
			if out.Adopted != nil {
				fmt.Printf("entries %d grace %v own %v\n", out.Adopted.Entries, out.Adopted.Grace, out.Adopted.Own)
			}
		}
	case "tunnel":
		err = openTunnel(c.What)
	case "confirm":
		_, err = h.Confirm(ctx)
	case "rollback":
		_, err = h.Rollback(ctx, c.N, Options{Verify: true}, nil)
	case "remove":
		_, err = h.Remove(ctx)
	case "restore":
		_, err = h.Restore(ctx, Restoring{Waiting: c.Waiting})
	case "sync":
		_, err = h.Sync(ctx)
	case "tune":
		_, err = h.Tune(ctx, c.Tuning)
	case "untune":
		_, err = h.Untune(ctx, Untuning{For: c.Tuning.For})
	case "untry":
		_, err = h.Untune(ctx, Untuning{Trial: true})
	case "flush":
		err = nftables.Script("flush ruleset\n").Take(ctx)
	case "settle":
		var s *session
		if s, _, err = h.open(ctx); err == nil {
			s.close()
		}
	case "status":
		var s *Status
		if s, err = h.Status(ctx, true); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(s)
		}
	case "verify":
		var v *Verified
		if v, err = h.Verify(ctx, "", nil); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(v)
		}
	case "watch":
		StandAlone()
		err = h.Watch(ctx, token)
	case "ban":
		var out *Banned
		if out, err = h.Ban(ctx, c.banning()); err == nil {
			fmt.Printf("banned %d refused %v\n", out.Banned, out.Refused)
		}
	case "keep":
		err = c.keep(ctx, h)
	case "unban":
		var out *Banned
		if out, err = h.Unban(ctx, c.banning().List); err == nil {
			fmt.Printf("lifted %d not there %v\n", out.Lifted, out.NotThere)
		}
	case "bans":
		var list []BanEntry
		if list, err = h.Bans(ctx); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(list)
		}
	default:
		err = errors.New("no such op")
	}
	return err
}

func (c command) input() Input {
	p := policyOf(c.Policy)
	p.Grace = uint64(c.Grace.Milliseconds()) //nolint:gosec // not negative
	costs := nftables.DefaultCosts()
	if c.Dear {
		costs.Sets.Map.Element = 1 << 20
	}
	a, err := nftables.New(nftables.Costs(costs)).Lower(p, nil)
	if err != nil {
		panic(err)
	}
	in := Input{
		Policy: c.Policy + ".yaml", Program: p, Artifact: a,
		Files: []Source{SourceOf(c.Policy+".yaml", []byte("policy "+c.Policy))},
	}
	if c.Expected != "" {
		in.Expected = policyOf(c.Expected)
	}
	if strings.HasPrefix(c.Policy, "timeout") {
		in.Program.Sysctls = []program.Sysctl{{Name: "net.netfilter.nf_conntrack_generic_timeout", Value: "77", Origin: program.Origin{File: c.Policy + ".yaml", Line: 3, Text: "table"}}}
		in.Sysctls = []Setting{{"net.netfilter.nf_conntrack_generic_timeout", strings.TrimPrefix(c.Policy, "timeout")}}
	}
	if c.SSHClient != "" {
		in.SSHClients = []SSHClient{{Remote: netip.MustParseAddrPort(c.SSHClient), Local: netip.MustParseAddrPort("10.0.0.1:22")}}
	}
	if c.Described {
		facts, err := host.Describe(context.Background(), host.OwnSession())
		if err != nil {
			panic(err)
		}
		in.SSHClients = SSHClients(facts)
	}
	return in
}

// policyOf makes a policy that lets port 7000 in, and a port of its own: "a"
// 7001, "b" 7002, and so on. "a early" has a chain at ingress of lo and vm0, "a
// deep" jumps deeper than the kernel goes. Each has a set of its own, that of "a
// large" 1,000 ranges, that of "a wide" and "a wide early" 50,000, that of "a huge" 300,000. "a with
// ADDRESS ADDRESS" drops these, which are in a set that is edited in place; "a route" lets
// in what comes by a default route's interface, which is in such a set too.
func policyOf(name string) *program.Program {
	name, dropped, drops := strings.Cut(name, " with ")
	port := uint64(7001 + int(name[0]-'a'))
	number := func(f program.Field, n uint64) program.Condition {
		return program.Condition{Field: f, Numbers: []program.NumberRange{{From: n, To: n}}}
	}
	set := program.Set{ID: "served", Key: []program.Field{program.Source}, Life: program.Static}
	var all addrset.Builder
	all.AddRange(addrset.Range{From: netip.MustParseAddr("10.0.0.1"), To: netip.MustParseAddr("10.0.0.254")})
	ranges := 50
	if strings.HasSuffix(name, "large") {
		ranges = 1000
	}
	several := 0
	switch {
	case strings.Contains(name, "wide"):
		ranges, several = 0, 50_000
	case strings.HasSuffix(name, "huge"):
		ranges, several = 0, 300_000
	}
	for i := range several {
		a := netip.AddrFrom4([4]byte{byte(30 + i>>14), byte(i >> 6), byte(i << 2), name[0]})
		all.AddRange(addrset.Range{From: a, To: a.Next()})
	}
	for i := range ranges {
		a := netip.AddrFrom4([4]byte{20, name[0], byte(i), byte(i>>8<<2) + 1})
		all.AddRange(addrset.Range{From: a, To: a.Next()})
	}
	set.Addresses = all.Set()
	accept := func(text string, match ...program.Condition) program.Rule {
		return program.Rule{Match: match, Actions: []program.Action{program.Accept}, Origin: program.Origin{File: name + ".yaml", Line: 1, Text: text}}
	}
	served := program.Condition{Field: program.Source, Set: "served"}
	p := &program.Program{
		Owner: "sluice", Sets: []program.Set{set},
		Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
		Chains: []program.Chain{{Name: "input", Rules: []program.Rule{
			accept("loopback", program.Condition{Field: program.InInterface, Names: []string{"lo"}}),
			accept("established", program.Condition{Field: program.State, Names: []string{"established"}}),
			accept("allow tcp/7000", number(program.Protocol, 6), number(program.Port, 7000), served),
			accept("allow udp/7000", number(program.Protocol, 17), number(program.Port, 7000), served),
			accept(fmt.Sprintf("allow tcp/%d", port), number(program.Protocol, 6), number(program.Port, port), served),
		}}},
	}
	if drops {
		var b addrset.Builder
		for text := range strings.FieldsSeq(dropped) {
			b.AddRange(addrset.Range{From: netip.MustParseAddr(text), To: netip.MustParseAddr(text)})
		}
		p.Sets = append(p.Sets, program.Set{ID: "dropped", Key: []program.Field{program.Source}, Life: program.Living, Addresses: b.Set()})
		drop := accept("drop", program.Condition{Field: program.Source, Set: "dropped"})
		drop.Actions = []program.Action{program.Drop}
		p.Chains[0].Rules = append([]program.Rule{drop}, p.Chains[0].Rules...)
	}
	if strings.HasSuffix(name, "deep") {
		p.Chains[0].Rules = append(p.Chains[0].Rules, program.Rule{Actions: []program.Action{program.Jump{Chain: "level1"}}})
		for i := range 20 {
			c := program.Chain{Name: fmt.Sprintf("level%d", i+1), Rules: []program.Rule{accept("nothing", number(program.Protocol, 250))}}
			if i < 19 {
				c.Rules = append(c.Rules, program.Rule{Actions: []program.Action{program.Jump{Chain: fmt.Sprintf("level%d", i+2)}}})
			}
			p.Chains = append(p.Chains, c)
		}
	}
	if strings.HasSuffix(name, "route") {
		p.Sets = append(p.Sets, program.Set{
			ID: program.DefaultRouteSet, Key: []program.Field{program.InInterface}, Life: program.Followed,
			Follow: &program.Following{Interfaces: []string{program.DefaultRoute}},
		})
		p.Chains[0].Rules = append(p.Chains[0].Rules, accept("wan", program.Condition{Field: program.InInterface, Names: []string{program.DefaultRoute}}))
	}
	if strings.HasSuffix(name, "bans") {
		never := "10.66.0.0/16"
		if strings.Contains(name, "sparing") {
			never = "192.0.2.0/24"
		}
		commandBans(p, never)
	}
	if strings.HasSuffix(name, "banned") {
		banClient(p)
	}
	p.Chains[0].Rules = append(p.Chains[0].Rules, tunnelRules(strings.Fields(name)[1:])...)
	if strings.HasSuffix(name, "router") || strings.HasSuffix(name, "bypass") {
		neighbours := accept("neighbours", number(program.Protocol, 58))
		p.Chains[0].Rules = append(p.Chains[0].Rules, neighbours)
		p.Hooks = append(p.Hooks, program.Hook{Kind: program.Forward, Phase: program.Filter, Default: program.Drop, Chain: "forward"})
		p.Chains = append(p.Chains, program.Chain{Name: "forward", Rules: []program.Rule{
			accept("established", program.Condition{Field: program.State, Names: []string{"established"}}),
			accept("allow udp/7000", number(program.Protocol, 17), number(program.Port, 7000)),
		}})
	}
	if strings.HasSuffix(name, "bypass") { // of tcp/5000 of this host
		untracked := func(f program.Field) []program.Rule {
			return []program.Rule{{Stage: program.StageTrack, Match: []program.Condition{number(program.Protocol, 6), number(f, 5000)}, Actions: []program.Action{program.NoTrack{}}}}
		}
		p.Hooks = append(p.Hooks, program.Hook{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "prerouting_raw"},
			program.Hook{Kind: program.Output, Phase: program.Raw, Default: program.Accept, Chain: "output_raw"})
		p.Chains = append(p.Chains, program.Chain{Name: "prerouting_raw", Rules: untracked(program.Port)}, program.Chain{Name: "output_raw", Rules: untracked(program.SourcePort)})
		p.Chains[0].Rules = append(p.Chains[0].Rules, accept("untracked", program.Condition{Field: program.State, Names: []string{"untracked"}}))
	}
	if strings.HasSuffix(name, "early") {
		p.Hooks = append(p.Hooks, program.Hook{Kind: program.Ingress, Phase: program.Early, Devices: []string{"lo", "vm0"}, Default: program.Accept, Chain: "early"})
		p.Chains = append(p.Chains, program.Chain{Name: "early", Rules: []program.Rule{accept("neighbours", number(program.Protocol, 58))}})
	}
	return p
}

// place is a namespace with a state directory, and the child to run in it.
type lab struct {
	t   testing.TB
	ns  *testnet.Namespace
	dir string
}

func newLab(t testing.TB) *lab {
	t.Helper()
	testnet.Require(t, testnet.Nftables)
	return &lab{t, testnet.New(t).Unnamed("host"), t.TempDir()}
}

// run runs the child to its end.
func (l *lab) run(c command) (string, error) {
	l.t.Helper()
	return l.ns.Run("/usr/bin/env", l.childArgs(c)...)
}

func (l *lab) childArgs(c command) []string {
	c.Dir = l.dir
	text, err := json.Marshal(c)
	if err != nil {
		l.t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	return []string{childVariable + "=" + string(text), exe}
}

func (l *lab) must(c command) string {
	l.t.Helper()
	out, err := l.run(c)
	if err != nil {
		l.t.Fatalf("%s: %v", c.Op, err)
	}
	return out
}

// status reads the state as the child sees it.
func (l *lab) status() *Status { return l.statusWithin(time.Minute) }

// statusWithin waits so long for a command that holds the lock.
func (l *lab) statusWithin(wait time.Duration) *Status {
	l.t.Helper()
	out := l.must(command{Op: "status", Wait: wait})
	var s Status
	// Notes of the child stand on standard error, before the JSON.
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &s); err != nil {
		l.t.Fatalf("status: %v: %s", err, out)
	}
	return &s
}

// holds says which policy the kernel holds, by reading its rules and sets:
// "", "a", "b" …, or what is wrong with it.
func (l *lab) holds(candidates ...string) string {
	l.t.Helper()
	answer := ""
	err := l.ns.Do(func() error {
		have, err := nftables.New().Read(context.Background(), true)
		if err != nil {
			return err
		}
		mark, _, err := nftables.New().Mark(context.Background())
		if err != nil {
			return err
		}
		if have.Empty() && mark == "" {
			return nil
		}
		answer = "neither: mark " + mark
		for _, name := range append(candidates, "a", "b", "c", "timeout77", "a large", "b large") {
			if name == "" {
				continue
			}
			a, err := nftables.New().Lower(policyOf(name), nil)
			if err != nil {
				return err
			}
			diffs, err := nftables.New().Compare(a, have)
			if err != nil {
				return err
			}
			for _, before := range append(candidates, "a", "b", "c", "timeout77", "a large", "b large") {
				if len(diffs) == 0 || before == "" || before == name {
					continue
				}
				// On trial, with the sets of what was before beside it.
				older, err := nftables.New().Lower(policyOf(before), nil)
				if err != nil {
					return err
				}
				if beside, err := nftables.New().Compare(a.(backend.Kept).Beside(older), have); err != nil || len(beside) == 0 {
					answer = name
					return err
				}
			}
			if len(diffs) == 0 {
				answer = name
				return nil
			}
			answer += fmt.Sprintf("; %s: %d differences, %s", name, len(diffs), DescribeDifference(diffs[0]))
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return answer
}

func (l *lab) wantHolds(want string) {
	l.t.Helper()
	if got := l.holds(); got != want {
		l.t.Fatalf("the kernel holds %q, want %q", got, want)
	}
}

package shadow_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/testseed"
	"sluice/internal/engine/shadow"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
	"sluice/internal/system/host"
)

const tried = `
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
  banned: [192.0.2.0/24, "2001:db8:bad::/48"]
  counted: { file: counted.txt, counters: true }
services:
  web: [tcp/80, udp/443]
ban: [banned]
never-ban: [192.0.2.77]
tracking:
  bypass: [web]
input:
  default: drop log "in"
  rules:
    - allow web
    - allow ssh from office
    - allow udp/5000 limit 3/day
    - allow udp/6000 limit 2/day per source
    - allow udp/7000 limit 2/day per source then ban 1d
    - reject tcp/25 from 203.0.113.0/28
    - drop tcp/25 log "mail"
    - allow udp/9000-9010
forward:
  default: drop
  rules:
    - allow tcp/5432 from office to 10.20.0.5
    - reject udp from office
`

// overLimit is how many packets come first that bring a source over the limit that
// bans. No others do: what comes before a ban and what behind it would not be certain,
// since packets overtake each other on several processors.
const overLimit = 5

// boundaryPackets are of flows of one packet each, with sources and ports at the
// boundaries of the policy tried.
func boundaryPackets(t *testing.T, n int) [][]byte {
	r := testseed.Rand(t)
	sources := []string{
		"203.0.113.0", "203.0.113.15", "203.0.113.16", "203.0.113.255", "203.0.112.255", "203.0.114.0",
		"192.0.2.0", "192.0.2.77", "192.0.2.255", "192.0.3.0", "198.51.100.2", "198.51.100.9",
		"2001:db8:77::", "2001:db8:77:ffff:ffff:ffff:ffff:ffff", "2001:db8:78::", "2001:db8:bad::1", "2001:db8:1::2",
	}
	ports := []uint16{22, 25, 80, 443, 5000, 5432, 6000, 8999, 9000, 9010, 9011}
	var out [][]byte
	for i := range overLimit {
		out = append(out, testnet.UDP(netip.AddrPortFrom(netip.MustParseAddr("203.0.113.15"), uint16(10000+i)), netip.MustParseAddrPort("198.51.100.1:7000"), 'x'))
	}
	for i := range n - len(out) {
		from := netip.AddrPortFrom(netip.MustParseAddr(one(r, sources)), uint16(20000+i))
		there := []string{"198.51.100.1", "198.51.100.1", "10.20.0.5"}
		if from.Addr().Is6() {
			there = []string{"2001:db8:1::1", "2001:db8:1::1", "2001:db8:20::5"}
		}
		to := netip.AddrPortFrom(netip.MustParseAddr(one(r, there)), one(r, ports))
		if r.IntN(2) == 0 {
			out = append(out, testnet.TCP(from, to, one(r, []string{"S", "S", "S", "A", "R"})))
		} else {
			out = append(out, testnet.UDP(from, to, 'x'))
		}
	}
	return out
}

// The counts of a shadow are what the candidate does when it is enforced: of the same
// packets, as many are dropped there as are counted here, on each line.
func TestCountsAreWhatEnforcementDoes(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	policy := strings.Replace(tried, "  counted: { file: counted.txt, counters: true }\n", "", 1)
	here, there := newLab(t), newLab(t)
	running, legend := here.shadowed(policy)
	there.enforced(policy)
	packets := boundaryPackets(t, 900)
	for _, l := range []*lab{here, there} {
		l.send(packets[:overLimit])
		l.send(packets[overLimit:])
	}

	report, counts := here.report(running, legend)
	var state backend.State
	there.do(func() (err error) { state, err = nftables.New().Read(context.Background(), true); return err })
	enforced := state.Counters()
	compared := 0
	for _, line := range legend.Lines {
		name, _ := strings.CutPrefix(line.Counter, string(line.Hook)+".")
		is, counted := enforced[name]
		if !counted {
			continue
		}
		sum := counts.Counters["input."+name].Packets + counts.Counters["forward."+name].Packets
		if sum != is.Packets {
			t.Errorf("%s:%d %s (%s): counted %d, enforced %d", line.Origin.File, line.Origin.Line, line.Text, name, sum, is.Packets)
		}
		if sum > 0 && line.Hook != program.Output {
			compared++
		}
	}
	if compared < 12 {
		t.Errorf("only %d lines had packets", compared)
	}
	input, forward := there.settled()
	sums := map[program.HookKind]shadow.Sums{}
	for _, h := range report.Hooks {
		if got := h.Allowed + h.Refused() + h.Unjudged; got != h.Seen {
			t.Errorf("%s: %d seen, %d with a verdict", h.Hook, h.Seen, got)
		}
		for _, line := range report.Lines {
			// What neighbours and the host itself had to say was not sent by this test, of
			// which rules of the policy alone let anything pass.
			if line.Hook == h.Hook && line.Line == 0 && line.Verdict == shadow.Allow {
				h.Seen, h.Allowed = h.Seen-line.Packets, h.Allowed-line.Packets
			}
		}
		sums[h.Hook] = h.Sums
	}
	if in, through := sums[program.Input], sums[program.Forward]; in.Seen+through.Seen != uint64(len(packets)) ||
		in.Allowed != uint64(len(input)) || through.Allowed != uint64(len(forward)) || in.Unjudged+through.Unjudged != 0 {
		t.Errorf("%d packets: counted %+v and %+v, enforced let %d and %d pass", len(packets), in, through, len(input), len(forward))
	}
	over := counts.Counters["input.over.limit-"+limitOf(legend)]
	if over.Packets == 0 || counts.Counters["input.ban_by_limit"].Packets == 0 {
		t.Errorf("nobody was over the limit that bans (%d), or banned (%d)", over.Packets, counts.Counters["input.ban_by_limit"].Packets)
	}
	compareTops(t, report, packets, sums)

	// Nothing of it was enforced: all of it came in and went through.
	all, through := here.settled()
	if len(all)+len(through) != len(packets) {
		t.Errorf("with a shadow alone, %d and %d of %d packets were delivered", len(all), len(through), len(packets))
	}
}

// TestHandshakeLimitsCountBeginnings: limits that count completed handshakes where they
// are enforced count the packets that begin connections, at both hooks and of both
// families, and who would be banned is counted as such.
func TestHandshakeLimitsCountBeginnings(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	l := newLab(t)
	running, legend := l.shadowed(`
input: { default: drop, rules: [allow ssh limit 2/day per source then ban 1d, allow tcp/80 limit 3/day per source] }
forward: { default: drop, rules: [allow tcp/443 limit 4/day per source] }
`)
	const each = 6
	syns := func(from string, to ...string) (out [][]byte) {
		for i := range each {
			for _, at := range to {
				out = append(out, testnet.TCP(netip.AddrPortFrom(netip.MustParseAddr(from), uint16(20000+i)), netip.MustParseAddrPort(at), "S"))
			}
		}
		return out
	}
	others, banned := [][]byte{}, [][]byte{}
	others = append(others, syns("203.0.113.1", "198.51.100.1:80", "10.20.0.5:443")...)
	others = append(others, syns("2001:db8:77::1", "[2001:db8:1::1]:80", "[2001:db8:20::5]:443")...)
	banned = append(banned, syns("203.0.113.2", "198.51.100.1:22")...)
	banned = append(banned, syns("2001:db8:78::2", "[2001:db8:1::1]:22")...)
	l.send(others)
	l.send(banned[:each])
	l.send(banned[each:])

	_, counts := l.report(running, legend)
	allowed := map[string]uint64{}
	for _, line := range legend.Lines {
		if line.Verdict == shadow.Allow && line.Origin.Line > 0 {
			allowed[string(line.Hook)+" "+line.Text] += counts.Counters[line.Counter].Packets
		}
	}
	for text, want := range map[string]uint64{
		"input allow ssh limit 2/day per source then ban 1d": 2 * 2,
		"input allow tcp/80 limit 3/day per source":          2 * 3,
		"forward allow tcp/443 limit 4/day per source":       2 * 4,
	} {
		if allowed[text] != want {
			t.Errorf("%s: %d connections, not %d; all: %v", text, allowed[text], want, allowed)
		}
	}
	over, ban := counts.Counters["input.over.limit-"+limitOf(legend)].Packets, counts.Counters["input.ban_by_limit"].Packets
	if over == 0 || ban == 0 || over+ban != 2*(each-2) {
		t.Errorf("%d over the limit that bans, %d banned", over, ban)
	}
	dropped := map[program.HookKind]uint64{}
	for _, line := range legend.Lines {
		if line.Verdict == shadow.Drop {
			dropped[line.Hook] += counts.Counters[line.Counter].Packets
		}
	}
	if dropped[program.Input] < 2*(each-2)+2*(each-3) || dropped[program.Forward] < 2*(each-4) {
		t.Errorf("dropped: %v", dropped)
	}
}

// limitOf is the rule whose limit bans.
func limitOf(l *shadow.Legend) string {
	for _, line := range l.Lines {
		if name, is := strings.CutPrefix(line.Counter, "input.over.limit-"); is {
			return name
		}
	}
	return ""
}

// compareTops holds the lists of sources and services to the sums.
func compareTops(t *testing.T, r *shadow.Report, packets [][]byte, sums map[program.HookKind]shadow.Sums) {
	t.Helper()
	for _, hook := range []program.HookKind{program.Input, program.Forward} {
		var sources, services uint64
		for _, s := range r.Sources {
			if s.Hook == hook {
				sources += s.Packets
			}
		}
		for _, s := range r.Services {
			if s.Hook == hook {
				services += s.Packets
			}
		}
		if want := sums[hook].Refused(); sources != want || services != want {
			t.Errorf("%s: %d would be dropped; sources have %d of them, services %d", hook, want, sources, services)
		}
	}
	var banned, sent uint64
	for _, s := range r.Sources {
		if s.Address == "192.0.2.255" && s.Hook != program.Output {
			banned += s.Packets
		}
	}
	for _, b := range packets {
		if p, err := testnet.Parse(b); err == nil && p.Source == netip.MustParseAddr("192.0.2.255") {
			sent++
		}
	}
	if banned != sent || sent == 0 {
		t.Errorf("a banned source sent %d packets and is listed with %d", sent, banned)
	}
}

// What a firewall does is the same with a shadow beside it: the packets that come out,
// byte for byte, the connections that are tracked, with their marks, and its counters.
func TestShadowChangesNothing(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	running := `table inet running {
		counter dropped { }
		chain pre { type filter hook prerouting priority -300; udp dport 9011 notrack; udp dport 9000 meta mark set 0x5; }
		chain marks { type filter hook prerouting priority -100; meta mark 0x5 ct mark set 0x7; }
		chain in { type filter hook input priority 0; policy accept; tcp dport 80 counter name dropped drop; udp dport 6000 counter name dropped drop; }
		chain through { type filter hook forward priority 0; policy drop; ct state established accept; udp dport { 443, 5432, 9000 } ip dscp set cs1 accept; }
	}
	table ip rewriting {
		chain pre { type nat hook prerouting priority -100; udp dport 9010 dnat to 10.20.0.5:443; }
		chain post { type nat hook postrouting priority 100; oifname "eth1" masquerade; }
	}`
	// Everything that a policy can do to a packet, so that something would show.
	candidate := tried + `
  accelerate: true
output:
  default: reject
nat:
  - redirect tcp/22 on 198.51.100.1 to 10.20.0.5:22
  - map 203.0.113.0/28 to 10.20.1.0/28 stateless
  - masquerade from 10.20.0.0/24
`
	candidate = strings.Replace(candidate, "file: counted.txt, counters: true", "countries: [SE]", 1)
	candidate = strings.Replace(candidate, "  accelerate: true\n", "", 1)
	candidate = strings.Replace(candidate, "forward:\n  default: drop\n", "forward:\n  default: drop\n  accelerate: true\n", 1)
	candidate = strings.Replace(candidate, "  - masquerade from 10.20.0.0/24\n", "", 1)
	bare, beside := newLab(t), newLab(t)
	bare.host.Nft(running)
	beside.host.Nft(running)
	shadowing, legend := beside.shadowed(candidate)
	packets := boundaryPackets(t, 500)
	bare.send(packets)
	beside.send(packets)

	bareIn, bareThrough := bare.settled()
	besideIn, besideThrough := beside.settled()
	if !slices.Equal(bareIn, besideIn) || !slices.Equal(bareThrough, besideThrough) {
		t.Errorf("other packets came out: %d and %d without a shadow, %d and %d with one", len(bareIn), len(bareThrough), len(besideIn), len(besideThrough))
	}
	if len(bareIn) == 0 || len(bareThrough) == 0 {
		t.Errorf("%d and %d packets came out at all", len(bareIn), len(bareThrough))
	}
	if a, b := bare.tracked(), beside.tracked(); !slices.Equal(a, b) || len(a) == 0 {
		t.Errorf("%d connections are tracked without a shadow, %d with one", len(a), len(b))
	}
	a, b := bare.host.MustRun("nft", "list", "table", "inet", "running"), beside.host.MustRun("nft", "list", "table", "inet", "running")
	if a != b {
		t.Errorf("the running firewall without a shadow\n%s\nwith one\n%s", a, b)
	}
	report, _ := beside.report(shadowing, legend)
	if report.Total.Refused() == 0 || report.Total.Unjudged == 0 || report.Total.Stopped == 0 {
		t.Errorf("the shadow counted %+v", report.Total)
	}

	// Closed, it is gone, and alone.
	if err := shadowing.Close(); err != nil {
		t.Error(err)
	}
	if tables := beside.host.MustRun("nft", "list", "tables"); strings.Contains(tables, shadow.Owner) || !strings.Contains(tables, "running") {
		t.Errorf("after the end there are\n%s", tables)
	}
}

// A second shadow is refused, and the first goes on.
func TestOneShadowAtATime(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	l := newLab(t)
	running, legend := l.shadowed("input: { default: drop }\n")
	p, again := counting(t, l.program("input: { default: allow }\n"))
	l.do(func() error {
		b := nftables.Of(shadow.Owner)
		artifact, err := b.Lower(p, capabilities())
		if err != nil {
			return err
		}
		_, err = shadow.Start(context.Background(), b, artifact, again, time.Minute, func(int, int, string) {})
		if !errors.Is(err, shadow.ErrRuns) {
			t.Errorf("a second shadow: %v", err)
		}
		return nil
	})
	l.send([][]byte{testnet.UDP(netip.MustParseAddrPort("198.51.100.2:1000"), netip.MustParseAddrPort("198.51.100.1:1000"))})
	if r, _ := l.report(running, legend); r.Total.Dropped != 1 {
		t.Errorf("the first shadow counted %+v", r.Total)
	}
	if err := l.host.Do(running.There); err != nil {
		t.Error(err)
	}
	// Whoever takes the table away is told of.
	l.host.MustRun("nft", "delete", "table", "inet", shadow.Owner)
	if err := l.host.Do(running.There); !errors.Is(err, shadow.ErrGone) {
		t.Errorf("the shadow was removed: %v", err)
	}
	l.do(func() error {
		if _, err := running.Read(context.Background()); !errors.Is(err, shadow.ErrGone) {
			t.Errorf("reading what is gone: %v", err)
		}
		return nil
	})
}

// TestShadowChild is a process with a shadow that waits to be killed.
func TestShadowChild(t *testing.T) {
	if os.Getenv("SLUICE_SHADOW_CHILD") == "" {
		t.Skip("a part of TestKilledShadowIsGone")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte("version: 1\ninput: { default: drop }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	compiled, _ := compiled(t, dir, host.Facts{Known: true})
	p, legend := counting(t, compiled)
	b := nftables.Of(shadow.Owner)
	artifact, err := b.Lower(p, capabilities())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shadow.Start(context.Background(), b, artifact, legend, time.Hour, func(int, int, string) {}); err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	time.Sleep(time.Hour)
}

// kill -9 leaves nothing; and what is left where the guard is killed as well does not
// keep the next shadow from its work.
func TestKilledShadowIsGone(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	l := newLab(t)
	child := func() *exec.Cmd {
		cmd := exec.Command("ip", "netns", "exec", l.host.Name(), os.Args[0], "-test.run", "^TestShadowChild$")
		cmd.Env = append(os.Environ(), "SLUICE_SHADOW_CHILD=1")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		said := make([]byte, 6)
		if err == nil {
			_, err = out.Read(said)
		}
		if err != nil || string(said) != "ready\n" {
			t.Fatalf("the process that is to be killed says %q, %v", said, err)
		}
		return cmd
	}
	there := func() bool { return strings.Contains(l.host.MustRun("nft", "list", "tables"), shadow.Owner) }
	first := child()
	if !there() {
		t.Fatal("there is no shadow")
	}
	_ = first.Process.Kill()
	_ = first.Wait()
	for try := 0; there(); try++ {
		if try == 6000 {
			t.Fatal("a killed process leaves its shadow behind")
		}
		time.Sleep(10 * time.Millisecond)
	}

	second := child()
	_ = second.Process.Signal(unix.SIGSTOP)
	for _, guard := range childrenOf(t, second.Process.Pid) {
		_ = unix.Kill(-guard, unix.SIGKILL)
	}
	_ = second.Process.Kill()
	_ = second.Wait()
	if !there() {
		t.Fatal("what is to be left behind is not there")
	}
	running, legend := l.shadowed("input: { default: drop }\n")
	l.send([][]byte{testnet.UDP(netip.MustParseAddrPort("198.51.100.2:1000"), netip.MustParseAddrPort("198.51.100.1:1000"))})
	if r, _ := l.report(running, legend); r.Total.Dropped != 1 {
		t.Errorf("behind what was left, a shadow counted %+v", r.Total)
	}
}

// childrenOf gives the processes that a process has started.
func childrenOf(t *testing.T, pid int) (out []int) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, _ := os.ReadFile(file) // it may have ended
		head, rest, _ := strings.Cut(string(data), " (")
		fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:])
		child, err := strconv.Atoi(head)
		if err == nil && len(fields) > 1 && fields[1] == fmt.Sprint(pid) {
			out = append(out, child)
		}
	}
	if len(out) == 0 {
		t.Fatalf("process %d has started none", pid)
	}
	return out
}

// After its time nothing is counted, whoever is still there.
func TestTimeEndsInTheKernel(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	l := newLab(t)
	running, legend := l.shadowed("input: { default: drop }\n")
	one := [][]byte{testnet.UDP(netip.MustParseAddrPort("198.51.100.2:1000"), netip.MustParseAddrPort("198.51.100.1:1000"))}
	l.send(one)
	l.host.MustRun("nft", "flush", "set", "inet", shadow.Owner, shadow.InTime) // as if it were over
	l.send(one)
	if r, _ := l.report(running, legend); r.Total.Dropped != 1 {
		t.Errorf("of one packet in time and one behind it, %d were counted", r.Total.Dropped)
	}
}

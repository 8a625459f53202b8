package stress

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/memgroup"
)

// standing is what has to stay as it is when an apply fails.
type standing struct {
	generation int
	rules      string // of Sluice's tables, without counters and what packets put into sets
	objects    footprint
	timeout    string // a sysctl that policies set
}

func (p *place) standing(t *testing.T) standing {
	t.Helper()
	a, err := p.hand.do(order{Do: "status"})
	if err != nil {
		t.Fatal(err)
	}
	if a.Status.Generation == nil || !a.Status.Fine() {
		t.Fatalf("status is not fine: %+v", a.Status)
	}
	s := standing{generation: a.Status.Generation.Number, objects: footprint{}}
	for _, table := range []string{"sluice", "sluice_generation"} {
		text, err := p.host.Run("nft", "-s", "-t", "list", "table", "inet", table)
		if err != nil {
			t.Fatal(err)
		}
		s.rules += text
	}
	if s.timeout, err = p.host.GetSysctl("net.netfilter.nf_conntrack_udp_timeout"); err != nil {
		t.Fatal(err)
	}
	if err := p.objects(s.objects); err != nil {
		t.Fatal(err)
	}
	return s
}

// stands compares what stands with what stood.
func (p *place) stands(t *testing.T, before standing) {
	t.Helper()
	after := p.standing(t)
	if after.generation != before.generation {
		t.Errorf("generation %d runs, not %d", after.generation, before.generation)
	}
	if after.timeout != before.timeout {
		t.Errorf("the sysctl is %s, and was %s", after.timeout, before.timeout)
	}
	if after.rules != before.rules {
		t.Errorf("the rules are not those of before:\n%s", cmp.Diff(strings.Split(before.rules, "\n"), strings.Split(after.rules, "\n")))
	}
	for _, g := range grown(before.objects, after.objects) {
		if g.Before != g.After {
			t.Errorf("%s: %d, and %d before", g.What, g.After, g.Before)
		}
	}
}

// loses acts under traffic, of which nothing may become what it should not.
func (p *place) loses(t *testing.T, act func() error) {
	t.Helper()
	counted, err := p.during(act)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range counted.wrong() {
		t.Error(w)
	}
}

// refuse applies a policy under traffic, which has to fail with an error that
// has all the words; the old one has to stand, unharmed, and the next apply to
// work.
func (p *place) refuse(t *testing.T, o order, next string, words ...string) {
	t.Helper()
	before := p.standing(t)
	p.loses(t, func() error {
		_, err := p.hand.do(o)
		if err == nil {
			t.Error("the apply did not fail")
			return nil
		}
		t.Logf("error: %v", err)
		for _, w := range append(words, "nothing changed: the kernel holds generation") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("the error does not say %q", w)
			}
		}
		return nil
	})
	p.stands(t, before)
	p.works(t, next)
}

// works applies a policy that has to come into the kernel.
func (p *place) works(t *testing.T, file string) {
	t.Helper()
	a, err := p.hand.apply(file)
	if err != nil {
		t.Fatalf("the next apply: %v", err)
	}
	if s := p.standing(t); a.Outcome.Unchanged || s.generation != a.Outcome.Generation {
		t.Errorf("the next apply: generation %d runs: %+v", s.generation, a.Outcome)
	}
}

// plain is a policy with a few words, and no chain for what leaves the host. It gives
// no grace to connections that ran before: what is left of one that is over goes with
// the next change, also with one that fails, and is not what has to stay.
const plain = `version: 1
tracking: { grace: none }
zones:
  wan: { interfaces: [wan0] }
  lan: { interfaces: [lan0] }
sets:
  served: { countries: [MT, SM] }
  banned: [198.51.100.0/24]
input:
  default: drop
  rules:
    - allow [tcp/7000, udp/7000] from served
    - allow tcp/7100-7299
forward:
  default: drop
  rules:
    - allow [tcp/7000, udp/7000] from served to lan
    - allow [tcp/7105, tcp/7205] to lan
    - allow published [tcp/7106, tcp/7206]
`

var plainPolicy = plain + strings.ReplaceAll(redirects, "%[3]s", "wan")

// newFailing makes a place with the plain policy, by which alone all packets are
// judged: what else comes into the kernel shows as lost or leaked.
func newFailing(t *testing.T, variables ...string) *place {
	t.Helper()
	r := newRun(t)
	n := testnet.New(t)
	p, err := r.newPlace(n, setting{geography: fewCountries, untracked: sameBypass, variables: variables, only: plainPolicy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *place) write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(filepath.Dir(p.pair.files[0]), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// other is a policy that does not run.
func (p *place) other() string { return filepath.Join(filepath.Dir(p.pair.files[0]), "first.yaml") }

// closed is a policy that refuses what the others allow.
const closed = `version: 1
zones:
  wan: { interfaces: [wan0] }
sets:
  large: { file: large.txt }
input: { default: drop, rules: [allow tcp/1 from large] }
output: { default: drop, rules: [allow tcp/1] }
forward: { default: drop, rules: [allow tcp/1 in wan] }
`

// ranges is the text of a set of so many ranges.
func ranges(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "20.%d.%d.%d-20.%d.%d.%d\n", i>>14, i>>6&255, i&63*4, i>>14, i>>6&255, i&63*4+1)
	}
	return b.String()
}

// memoryGroups is the feature that memory of the kernel can be bounded.
var memoryGroups = testnet.Probed("control groups for memory", func() error {
	g, err := memgroup.New("ask")
	if err != nil {
		return err
	}
	return g.Remove()
})

// TestMemoryRefused has the kernel refuse memory for the contents of a set.
func TestMemoryRefused(t *testing.T) {
	long(t)
	testnet.Require(t, testnet.Namespaces, memoryGroups)
	p := newFailing(t)
	file := p.write(t, "closed.yaml", closed)
	p.write(t, "large.txt", ranges(150_000))
	g, err := memgroup.New("tight")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}()
	if g.V2 {
		t.Skip("control groups of version 2 hold a process to its limit by killing it: see TestKilledForMemory")
	}
	if err := g.Limit(14 << 20); err != nil {
		t.Fatal(err)
	}
	p.refuse(t, order{Do: "apply", File: file, Group: g.Dir}, p.other(), "the kernel has no memory for it")
}

// TestKilledForMemory has the kernel kill the process that applies, for the
// memory that rules and sets take.
func TestKilledForMemory(t *testing.T) {
	long(t)
	testnet.Require(t, testnet.Namespaces, memoryGroups)
	p := newFailing(t)
	file := p.write(t, "closed.yaml", closed)
	p.write(t, "large.txt", ranges(150_000))
	before := p.standing(t)
	p.loses(t, func() error {
		_, err := p.hand.do(order{Do: "apply", File: file, Squeeze: 4 << 20, Within: p.hand.group.Dir})
		if err == nil {
			t.Error("the apply did not fail")
		}
		t.Logf("error: %v", err)
		return nil
	})
	_ = p.hand.stop() // killed, or not
	var err error
	if p.hand, err = startHand(p.host, p.hand.state, p.hand.data); err != nil {
		t.Fatal(err)
	}
	p.stands(t, before)
	p.works(t, p.other())
}

// TestHookFull has the kernel refuse a chain behind the sets that were filled
// for it: it takes 1,024 at a hook (MAX_HOOK_COUNT in net/netfilter/core.c).
func TestHookFull(t *testing.T) {
	long(t)
	p := newFailing(t)
	var b strings.Builder
	b.WriteString("table inet full {\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "chain c%d { type filter hook output priority %d; }\n", i, 1000+i)
	}
	p.host.Nft(b.String() + "}\n")
	for i := 0; ; i++ {
		if _, err := p.host.Run("nft", "add", "chain", "inet", "full", fmt.Sprintf("d%d", i), "{ type filter hook output priority 900; }"); err != nil {
			break
		}
		if i == 30 {
			t.Fatal("the kernel takes more chains at a hook than was known")
		}
	}
	p.refuse(t, order{Do: "apply", File: p.write(t, "closed.yaml", closedSmall)}, p.write(t, "next.yaml", next), "Argument list too long")
}

// next is a policy that needs no chain more than the plain one has.
var next = strings.Replace(plainPolicy, "tcp/7100-7299", "tcp/7100-7300", 1)

// closedSmall is the closed policy with a set that needs no file.
var closedSmall = strings.Replace(closed, "file: large.txt", "countries: [MT, IS]", 1)

// killingNft is an nft that is killed at the transaction that the file beside it
// names by its number: before the kernel has it, or behind.
const killingNft = `#!/bin/sh
dir=${0%%/*}
if [ "$*" = "-f -" ] && [ -e "$dir/when" ]; then
	read -r side left <"$dir/when"
	if [ "$left" = 1 ]; then
		rm "$dir/when"
		[ "$side" = before ] || %[1]s -f -
		kill -9 $$
	fi
	echo "$side $((left - 1))" >"$dir/when"
fi
exec %[1]s "$@"
`

// TestNftKilled kills nft itself at each transaction of an apply, before and
// behind it, under traffic that both policies let through.
func TestNftKilled(t *testing.T) {
	long(t)
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "nft"), fmt.Appendf(nil, killingNft, nftPath(t)), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	p := newFailing(t, "PATH="+bin+":"+os.Getenv("PATH"))
	more := p.write(t, "more.yaml", more)
	when := filepath.Join(bin, "when")
	before := p.standing(t)
	p.loses(t, func() error {
		for n := 1; ; n++ {
			for _, side := range []string{"before", "behind"} {
				if err := os.WriteFile(when, fmt.Appendf(nil, "%s %d\n", side, n), 0o600); err != nil {
					return err
				}
				_, err := p.hand.apply(more)
				if err == nil {
					if n < 4 {
						t.Errorf("the apply was through before transaction %d", n)
					}
					return os.Remove(when)
				}
				if step, _, _ := strings.Cut(err.Error(), ":"); !strings.Contains(err.Error(), "was killed") || !strings.Contains(err.Error(), "nothing changed") {
					t.Errorf("%s transaction %d: %v", side, n, err)
				} else {
					t.Logf("%s transaction %d: %s", side, n, step)
				}
				p.stands(t, before)
			}
		}
	})
	p.works(t, p.other())
}

// more allows what the plain policy allows, and has chains, sets and a default of
// its own beside.
var more = strings.NewReplacer(
	"tracking: { grace: none }", "tracking: { grace: none, table: { timeouts: { udp: 78s } } }",
	"input:\n  default: drop", "ban: [banned]\noutput:\n  default: allow\n  rules: [drop tcp/25]\ninput:\n  default: allow",
	"    - allow tcp/7100-7299\n", "    - allow tcp/7100-7299\n    - drop [tcp/7000, udp/7000]\n    - allow ssh limit 6/30s per source then ban 10m\n",
).Replace(plainPolicy)

func nftPath(t *testing.T) string {
	t.Helper()
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		if st, err := os.Stat(filepath.Join(dir, "nft")); err == nil && st.Mode()&0o111 != 0 {
			return filepath.Join(dir, "nft")
		}
	}
	t.Fatal("no nft")
	return ""
}

// TestSmallBuffers applies where the process may not have larger buffers than the
// machine gives to all (a user namespace), first what fits when it is cut, then what
// has to be one transaction and does not fit.
func TestSmallBuffers(t *testing.T) {
	long(t)
	testnet.Require(t, testnet.Nftables)
	dir := t.TempDir()
	attributes := processAttributes()
	attributes.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET
	attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	h, err := launchHand(filepath.Join(dir, "state"), dir, func(f func() error) error { return f() }, attributes, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.stop(); err != nil {
			t.Error(err)
		}
	}()
	var many strings.Builder
	many.WriteString("version: 1\ninput:\n  default: drop\n  rules:\n")
	for i := range 3000 {
		fmt.Fprintf(&many, "    - allow tcp/%d from 20.0.%d.%d log \"number %d\"\n", 1000+i, i>>8, i&255, i)
	}
	for name, text := range map[string]string{"closed.yaml": closed, "large.txt": ranges(50_000), "many.yaml": many.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.apply(filepath.Join(dir, "closed.yaml")); err != nil {
		t.Fatalf("a large set in small buffers: %v", err)
	}
	if _, err := h.apply(filepath.Join(dir, "many.yaml")); err != nil {
		t.Logf("error: %v", err)
		for _, w := range []string{"net.core.wmem_max", "nothing changed"} {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("the error does not say %q", w)
			}
		}
	} else {
		t.Error("a transaction larger than the send buffer was taken")
	}
	a, err := h.do(order{Do: "status"})
	if err != nil {
		t.Fatal(err)
	}
	if a.Status.Generation.Number != 1 || !a.Status.Fine() {
		t.Errorf("status: %+v", a.Status)
	}
}

// TestRestlessRuleset applies while another tool changes the ruleset all the
// time.
func TestRestlessRuleset(t *testing.T) {
	long(t)
	p := newFailing(t)
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		for n := 0; ; n++ {
			if _, err := p.host.RunInput("add table inet restless\nadd chain inet restless c\ndelete table inet restless\n", "nft", "-f", "-"); err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				done <- n
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	for i := range 4 {
		file := []string{p.other(), p.pair.files[0]}[i%2]
		before := p.standing(t)
		if _, err := p.hand.apply(file); err != nil {
			t.Errorf("apply %d: %v", i, err)
			p.stands(t, before)
		}
	}
	close(stop)
	t.Logf("%d changes by the other tool", <-done)
}

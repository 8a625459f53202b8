package calibrate

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/addrset"
	"sluice/internal/lab/calibrate/account"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
)

// loads measures what rules, sets and elements take of kernel memory, and how long
// they load: some of each, and more of each.
func (m *Measured) loads(ctx context.Context, net *testnet.Net, o Options) (err error) {
	l := loading{net: net, account: account.Open(), found: map[string][]float64{}}
	defer func() {
		if failed := l.account.Close(); err == nil {
			err = failed
		}
	}()
	for round := range o.Loads {
		o.Say("what is loaded: round %d of %d", round+1, o.Loads)
		if err := l.round(ctx); err != nil {
			return err
		}
	}
	for name, found := range l.found {
		m.take(name, found)
	}
	return nil
}

// loading is one series of loads. Each goes into a namespace of its own, so that
// nothing has to be freed while memory is counted.
type loading struct {
	net     *testnet.Net
	account *account.Account
	found   map[string][]float64
	hosts   int
}

func (l *loading) add(name string, value float64) {
	l.found[name] = append(l.found[name], max(0, value))
}

// last is what this round found.
func (l *loading) last(name string) float64 { return l.found[name][len(l.found[name])-1] }

// size is what something took: bytes, and ns of the processor.
type size struct{ bytes, ns float64 }

func (s size) minus(o size) size { return size{s.bytes - o.bytes, s.ns - o.ns} }
func (s size) by(n float64) size { return size{s.bytes / n, s.ns / n} }

func (l *loading) take(ctx context.Context, in *testnet.Namespace, steps ...backend.Step) (size, error) {
	bytes, cpu, err := l.account.Take(in, func() error {
		for _, s := range steps {
			if err := s.Take(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return size{float64(bytes), float64(cpu)}, err
}

// host is a namespace with a table.
func (l *loading) host(ctx context.Context) (*testnet.Namespace, error) {
	var h *testnet.Namespace
	l.hosts++
	if err := l.net.Try(func() { h = l.net.Unnamed(fmt.Sprintf("m%d", l.hosts)) }); err != nil {
		return nil, err
	}
	text := "add table inet m\nadd chain inet m c { type filter hook input priority 0; }\nadd set inet m s { typeof @nh,96,8; }\n"
	for i := range leads {
		text += fmt.Sprintf("add chain inet m c%d\n", i)
	}
	_, err := l.take(ctx, h, backend.Step{Transaction: nftables.Script(text)})
	return h, err
}

// leads is to how many chains verdict maps lead.
const leads = 64

func (l *loading) round(ctx context.Context) error {
	if err := l.texts(ctx); err != nil {
		return err
	}
	if err := l.pairs(ctx); err != nil {
		return err
	}
	for _, k := range kinds {
		if err := l.kind(ctx, k); err != nil {
			return fmt.Errorf("measure %s: %w", k.name, err)
		}
	}
	return l.special(ctx)
}

// texts measures what nft loads by text.
func (l *loading) texts(ctx context.Context) error {
	for _, what := range []struct {
		name, alone string // of the constants; the second in bytes alone
		line        func(i int) string
	}{
		{"rule", "", func(i int) string {
			return fmt.Sprintf("add rule inet m c ip saddr 192.0.2.%d tcp dport %d accept comment \"policy.yaml:12 allow web from served\"\n", i%256, i+1)
		}},
		{"chain", "", func(i int) string { return fmt.Sprintf("add chain inet m served4_%d_0123abcd\n", i) }},
		{"set", "", func(i int) string {
			return fmt.Sprintf("add set inet m served4_%d_0123abcd { type ipv4_addr; flags interval; }\n", i)
		}},
		{"object", "bytes", func(i int) string {
			return fmt.Sprintf("add counter inet m input_%d_0123abcd { comment \"policy.yaml:12 allow web\"; }\n", i)
		}},
		{"dynamic-element", "bytes", func(i int) string {
			set := ""
			if i == 0 {
				set = "add set inet m sources { type ipv4_addr; flags dynamic; size 65536; }\n"
			}
			return set + fmt.Sprintf("add element inet m sources { %s limit rate over 10/second burst 5 packets }\n", address(10<<24+uint32(i)))
		}},
	} {
		one, err := l.difference(ctx, 500, 2500, func(h *testnet.Namespace, n int) (size, error) {
			var b strings.Builder
			for i := range n {
				b.WriteString(what.line(i))
			}
			return l.take(ctx, h, backend.Step{Transaction: nftables.Script(b.String())})
		})
		if err != nil {
			return err
		}
		if l.add("memory."+what.name+"-bytes", one.bytes); what.alone == "" {
			l.add("load."+what.name+"-ns", one.ns)
		}
	}
	return l.base(ctx)
}

// difference is what one more takes: of many against few.
func (l *loading) difference(ctx context.Context, few, many int, load func(*testnet.Namespace, int) (size, error)) (size, error) {
	var took [2]size
	for i, n := range []int{few, many} {
		h, err := l.host(ctx)
		if err != nil {
			return size{}, err
		}
		if took[i], err = load(h, n); err != nil {
			return size{}, err
		}
	}
	return took[1].minus(took[0]).by(float64(many - few)), nil
}

// base is the load of a policy with next to no rules.
func (l *loading) base(ctx context.Context) error {
	p := &program.Program{
		Hooks:  []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "input"}},
		Chains: []program.Chain{{Name: "input"}},
	}
	b := nftables.New()
	a, err := b.Lower(p, nil)
	if err != nil {
		return err
	}
	steps, err := b.Steps(a, nil)
	if err != nil {
		return err
	}
	h, err := l.host(ctx)
	if err != nil {
		return err
	}
	took, err := l.take(ctx, h, steps...)
	l.add("load.base-ns", took.ns)
	return err
}

// kind is a way in which the kernel keeps sets.
type kind struct {
	name      string // as the constants have it
	set       nftables.Set
	fill      func(*nftables.Set, int)
	few, many int // elements
	sets      int // of each size
	listed    bool
}

var kinds = []kind{
	{"hash", nftables.Set{Types: []string{"ipv4_addr"}}, singles, 16384, 49152, 1, false},
	{"verdict-map", nftables.Set{Types: []string{"@nh,96,16"}, Verdicts: true}, numbers, 16384, 49152, 1, false},
	{"bitmap-1-byte", nftables.Set{Types: []string{"@nh,96,8"}}, numbers, 4, 128, 64, false},
	{"bitmap-2-bytes", nftables.Set{Types: []string{"@nh,96,16"}}, numbers, 32, 512, 64, false},
	{"interval", nftables.Set{Types: []string{"ipv4_addr"}, Interval: true}, ranges4, 64, 512, 16, true},
	{"concatenation", nftables.Set{Types: []string{"ipv4_addr", "mark"}, Interval: true}, tuples, 4096, 16384, 1, false},
}

// kind measures an element, and what a set of few takes beside them.
func (l *loading) kind(ctx context.Context, k kind) error {
	each, err := l.difference(ctx, k.few, k.many, func(h *testnet.Namespace, n int) (size, error) {
		defined, took, err := l.fill(ctx, h, k.set, k.fill, n, k.sets)
		took.bytes += defined.bytes // a hash table is made as large as the set may be
		return took, err
	})
	if err != nil {
		return err
	}
	each = each.by(float64(k.sets))
	if strings.HasPrefix(k.name, "bitmap-") {
		each.ns = max(0, each.ns-l.last("load.bitmap-pair-ns")*float64(k.few+k.many))
	}
	l.add("sets."+k.name+".element-bytes", each.bytes)
	l.add("sets."+k.name+".element-ns", each.ns)
	const few, sets = 4, 64
	h, err := l.host(ctx)
	if err != nil {
		return err
	}
	defined, took, err := l.fill(ctx, h, k.set, k.fill, few, sets)
	if err != nil {
		return err
	}
	empty := (defined.bytes+took.bytes)/sets - few*each.bytes - l.last("memory.set-bytes")
	if k.listed {
		empty -= float64(nftables.ListBytes(few))
	}
	l.add("sets."+k.name+".empty-bytes", empty)
	return nil
}

// fill defines and fills sets.
func (l *loading) fill(ctx context.Context, h *testnet.Namespace, set nftables.Set, fill func(*nftables.Set, int), n, sets int) (defined, took size, err error) {
	var text strings.Builder
	var all []*nftables.Set
	for i := range sets {
		s := set
		s.Name = fmt.Sprintf("s%d", i)
		fill(&s, n)
		text.WriteString(s.Definition("m"))
		all = append(all, &s)
	}
	if defined, err = l.take(ctx, h, backend.Step{Transaction: nftables.Script(text.String())}); err != nil {
		return defined, took, err
	}
	took, err = l.take(ctx, h, nftables.Filling("m", all...))
	return defined, took, err
}

// filled is what the elements of one set take.
func (l *loading) filled(ctx context.Context, set nftables.Set, fill func(*nftables.Set, int), n int) (size, error) {
	h, err := l.host(ctx)
	if err != nil {
		return size{}, err
	}
	_, took, err := l.fill(ctx, h, set, fill, n, 1)
	return took, err
}

// pairs measures how long elements of a bitmap are compared with one another: all
// else of an element is the same in a small set and in a large one.
func (l *loading) pairs(ctx context.Context) error {
	const few, many = 2048, 8192
	var each [2]float64
	for i, n := range []int{few, many} {
		took, err := l.filled(ctx, nftables.Set{Types: []string{"@nh,96,16"}}, numbers, n)
		if err != nil {
			return fmt.Errorf("measure load.bitmap-pair-ns: %w", err)
		}
		each[i] = took.ns / float64(n)
	}
	l.add("load.bitmap-pair-ns", (each[1]-each[0])/(many-few))
	return nil
}

// special measures what large sets cost more to fill, and what counting adds.
func (l *loading) special(ctx context.Context) error {
	for _, f := range []struct {
		name string
		set  nftables.Set
		fill func(*nftables.Set, int)
		n    int
	}{
		{"interval-doubled-ipv4-ns", nftables.Set{Types: []string{"ipv4_addr"}, Interval: true}, ranges4, 49152},
		{"interval-doubled-ipv6-ns", nftables.Set{Types: []string{"ipv6_addr"}, Interval: true}, ranges6, 98304},
	} {
		took, err := l.filled(ctx, f.set, f.fill, f.n)
		if err != nil {
			return fmt.Errorf("measure load.%s: %w", f.name, err)
		}
		l.add("load."+f.name, (took.ns-float64(f.n)*l.last("sets.interval.element-ns"))/longer(float64(f.n)))
	}
	const n = 16384
	var bytes []float64
	for _, how := range []func(*nftables.Set){
		func(*nftables.Set) {},
		func(s *nftables.Set) { s.Counted = true },
		func(s *nftables.Set) {
			s.Counted, s.Elements.Counters = true, map[string]string{}
			for r := range s.Elements.Addresses.Each() {
				s.Elements.Counters[r.From.String()] = "input_0123abcd"
			}
		},
	} {
		took, err := l.filled(ctx, nftables.Set{Types: []string{"ipv4_addr"}}, func(s *nftables.Set, n int) { singles(s, n); how(s) }, n)
		if err != nil {
			return fmt.Errorf("measure counters of elements: %w", err)
		}
		bytes = append(bytes, took.bytes)
	}
	l.add("memory.element-counter-bytes", (bytes[1]-bytes[0])/n)
	l.add("memory.element-comment-bytes", (bytes[2]-bytes[1])/n)
	return nil
}

// longer is by what the time of a large interval set grows, see LoadCosts.
func longer(n float64) float64 { return n * math.Log2(n/1024) }

func single4(i int) netip.Addr { return address(10<<24 + uint32(i)<<2) } //nolint:gosec // less than 2^17

func single6(i int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff))
}

func singles(s *nftables.Set, n int) {
	var b addrset.Builder
	for i := range n {
		b.AddRange(addrset.Range{From: single4(i), To: single4(i)})
	}
	s.Size, s.Elements.Addresses = n, b.Set()
}

func ranges4(s *nftables.Set, n int) { wide(s, n, single4) }

func ranges6(s *nftables.Set, n int) { wide(s, n, single6) }

func wide(s *nftables.Set, n int, at func(int) netip.Addr) {
	var b addrset.Builder
	for i := range n {
		b.AddRange(addrset.Range{From: at(i), To: at(i).Next()})
	}
	s.Elements.Addresses = b.Set()
}

func numbers(s *nftables.Set, n int) {
	for i := range n {
		s.Elements.Tuples = append(s.Elements.Tuples, fmt.Sprint(i))
		if s.Verdicts {
			s.Elements.Verdicts = append(s.Elements.Verdicts, fmt.Sprintf("jump c%d", i%leads))
		}
	}
	s.Size = n
}

func tuples(s *nftables.Set, n int) {
	for i := range n {
		s.Elements.Tuples = append(s.Elements.Tuples, fmt.Sprintf("%s/31 . 80", single4(i)))
	}
}

package stories

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
)

var four = Story{
	Number: 4,
	Title:  "Ten machines behind one host, and a database among them",
	Incident: "Virtual machines in network namespaces behind one host, with rules for each in the forward hook. A flowtable, seven lines, cut the " +
		"time of a query from 0.127 to 0.118 ms.",
	Needs: []testnet.Feature{
		testnet.Program("setpriv"), testnet.Program("conntrack"),
		testnet.Probed("PostgreSQL", func() error { _, err := postgresDir(); return err }),
	},
	Programs: append(postgresPrograms(), "setpriv", "conntrack"),
	Files:    postgresFiles(),
	Run:      playFour,
}

const (
	machines     = 10
	databasePort = 5432
)

// machine is the address of machine i, 1 to 10; machine 1 has the database, and
// machine 2 asks it.
func machine(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 20, byte(i), 2}) }

// Subjects of the story.
const (
	vmRules       = "rules by hand"
	vmFlowtable   = "rules by hand, with a flowtable"
	sluiceClassic = "sluice, without a flowtable"
	sluiceFlow    = "sluice, accelerate"
)

// machineRules is what one writes by hand: per machine, what it may and what may
// reach it.
func machineRules(flowtable bool) string {
	var b strings.Builder
	b.WriteString("table inet machines {\n")
	if flowtable {
		b.WriteString("\tflowtable fast {\n\t\thook ingress priority 0; devices = { ")
		for i := 1; i <= machines; i++ {
			fmt.Fprintf(&b, "vm%d, ", i)
		}
		b.WriteString("};\n\t}\n")
	}
	b.WriteString("\tchain forward {\n\t\ttype filter hook forward priority 0; policy drop;\n")
	if flowtable {
		b.WriteString("\t\tmeta l4proto { tcp, udp } flow add @fast\n")
	}
	b.WriteString("\t\tct state established,related accept\n\t\tct state invalid drop\n")
	for i := 1; i <= machines; i++ {
		fmt.Fprintf(&b, "\t\tiifname \"vm%d\" ip saddr != %s drop\n", i, machine(i))
		if i > 1 {
			fmt.Fprintf(&b, "\t\tiifname \"vm%d\" ip daddr %s tcp dport %d accept\n", i, machine(1), databasePort)
			fmt.Fprintf(&b, "\t\tiifname \"vm1\" oifname \"vm%d\" tcp dport { 22, 80, 443 } accept\n", i)
		}
	}
	b.WriteString("\t}\n}\n")
	return b.String()
}

// machinesPolicy is the answer.
func machinesPolicy(accelerate bool) string {
	var b strings.Builder
	b.WriteString("version: 1\nzones:\n")
	for i := 1; i <= machines; i++ {
		fmt.Fprintf(&b, "  vm%d: { interfaces: [vm%d], networks: [%s/32] }\n", i, i, machine(i))
	}
	fmt.Fprintf(&b, "input:\n  default: drop\n  rules:\n    - allow ping\nforward:\n  default: drop\n  accelerate: %v\n  rules:\n", accelerate)
	for i := 2; i <= machines; i++ {
		fmt.Fprintf(&b, "    - allow tcp/%d from vm%d to vm1\n    - allow [ssh, http, https] from vm1 to vm%d\n", databasePort, i, i)
	}
	return b.String()
}

// hosted is one ruleset of the host.
type hosted struct {
	subject   string
	flowtable bool
	load      func(host *testnet.Namespace) error
}

func (w hosted) again() hosted {
	w.subject += again
	return w
}

type hosting struct {
	*Stage
	host   *testnet.Namespace
	vm     map[int]*testnet.Namespace
	client *testnet.Namespace
}

func playFour(ctx context.Context, s *Stage) error {
	h := &hosting{Stage: s, vm: map[int]*testnet.Namespace{}}
	h.build()
	database, err := startPostgres(ctx, s, h.vm[1], machine(1))
	if err != nil {
		return err
	}
	s.Say("PostgreSQL answers")
	answer, err := s.Answer("machines.yaml", "Sluice's answer", machinesPolicy(true))
	if err != nil {
		return err
	}
	classic, err := s.write("machines-classic.yaml", machinesPolicy(false))
	if err != nil {
		return err
	}
	byHand := func(flowtable bool) func(*testnet.Namespace) error {
		return func(host *testnet.Namespace) error { return nftRules(host, machineRules(flowtable)) }
	}
	apply := func(file string) func(*testnet.Namespace) error {
		return func(host *testnet.Namespace) error { _, err := s.Apply(ctx, host, file); return err }
	}
	ways := []hosted{
		{noRules, false, func(*testnet.Namespace) error { return nil }},
		{vmRules, false, byHand(false)},
		{vmFlowtable, true, byHand(true)},
		{sluiceClassic, false, apply(classic)},
		{sluiceFlow, true, apply(answer)},
	}
	if err := testnet.Flowtable.Ask(); err != nil {
		s.Warn("this kernel has no flowtables, so nothing here goes by one, and what needs one is left out: sluice-lab story 4 --kernel 6.12 plays the whole story")
		ways = []hosted{ways[0], ways[1], ways[3]}
	}
	asked := ways
	if flow := ways[len(ways)-1]; flow.subject == sluiceFlow && !s.Counted() && !s.Short {
		asked = append(slices.Clone(ways), flow.again()) // A/A
	}
	if err := h.measureQueries(ctx, database, asked); err != nil {
		return err
	}
	if err := h.packets(ctx, ways); err != nil {
		return err
	}
	if err := h.diagnosed(ctx, database); err != nil {
		return err
	}
	s.Honest("The incident's machines were virtual ones; these are network namespaces, so a query is faster than theirs by the emulation of a network card, and what the host adds weighs more. Its PostgreSQL is this machine's, without fsync, which -S does not ask for.")
	s.Honest("The story's 0.127 and 0.118 ms are whole queries, of which the greatest part is the work of client and database: so are the queries here. What a packet costs the host alone is measured apart.")
	return nil
}

// measureQueries measures what a client of the database sees.
func (h *hosting) measureQueries(ctx context.Context, database *postgres, ways []hosted) error {
	rounds, transactions := 9, 5000
	switch {
	case h.InLab && h.Short:
		rounds, transactions = 3, 400
	case h.InLab: // some thirty times slower
		rounds, transactions = 5, 1000
	case h.Short:
		rounds, transactions = 1, 500
	}
	latency, packets := map[string]stats.Series{}, map[string]stats.Series{}
	var evidence []string
	for round := -1; round < rounds; round++ { // one goes before, and is forgotten
		for i := range measure.Turns(round, len(ways)) {
			w := ways[i]
			if err := clearHost(h.Stage, h.host); err != nil {
				return err
			}
			if err := w.load(h.host); err != nil {
				return fmt.Errorf("load %s: %w", w.subject, err)
			}
			run, err := h.ask(ctx, database, transactions, w.flowtable)
			if err != nil {
				return fmt.Errorf("%s: %w", w.subject, err)
			}
			if w.flowtable && !run.offloaded {
				return fmt.Errorf("%s: no connection went by the flowtable", w.subject)
			}
			if round < 0 {
				if err := h.reach(w); err != nil {
					return err
				}
				continue
			}
			latency[w.subject] = append(latency[w.subject], run.latency)
			packets[w.subject] = append(packets[w.subject], run.packets)
			h.Say("round %d of %d, %s: %.4f ms a query, %.1f packets", round+1, rounds, w.subject, run.latency, run.packets)
			if round == 0 {
				line, err := h.asked(ctx, database, transactions/4)
				if err != nil {
					return err
				}
				evidence = append(evidence, w.subject+": "+line+map[bool]string{true: ", and conntrack -L shows the connection with [OFFLOAD]"}[run.offloaded])
			}
		}
	}
	h.Found("Each packet between two machines passes the forward hook of the host, established or not: connection tracking, routing and the rules are asked for each. A flowtable takes packets of established connections at the ingress hook and sends them on.", evidence...)
	section := h.Section("query", "What a query takes", fmt.Sprintf("pgbench -S, one client, %d queries a round, from machine 2 to PostgreSQL on machine 1 through the host; prepared statements. Each of the nine other machines reaches the database; behind the rules machine 3 does not reach machine 4.", transactions))
	if h.Counted() {
		section.Text = append(section.Text, "Time is counted in instructions of this emulated machine: a ms is a million of them.")
	}
	for _, w := range ways {
		section.Add(figures.Figure{Case: "query", Subject: w.subject, Quantity: "time of a query", Unit: "ms", Samples: latency[w.subject]})
	}
	for _, w := range ways[1:] {
		section.Add(figures.Figure{Case: "query", Subject: w.subject, Quantity: "against no firewall", Unit: "×", Samples: latency[w.subject].Per(latency[noRules])})
	}
	for _, w := range ways {
		section.Add(figures.Figure{Case: "query", Subject: w.subject, Quantity: "packets that the host forwards", Unit: "packets", Samples: packets[w.subject]})
	}
	if flow, there := latency[sluiceFlow]; there {
		section.Add(figures.Figure{Case: "query", Subject: vmFlowtable, Quantity: "against the same rules without a flowtable (the story: 0.93)", Unit: "×", Samples: latency[vmFlowtable].Per(latency[vmRules])})
		section.Add(figures.Figure{Case: "query", Subject: sluiceFlow, Quantity: "against the same rules without a flowtable (the story: 0.93)", Unit: "×", Samples: flow.Per(latency[sluiceClassic])})
		h.queryGoals(latency)
	}
	return nil
}

// queryGoals asks whether a query by the flowtable is faster. By the clock that takes
// A/A, and more than the one round of a short story: that has no such goals.
func (h *hosting) queryGoals(latency map[string]stats.Series) {
	flow := latency[sluiceFlow]
	var same stats.Series
	if !h.Counted() {
		if h.Short {
			h.Warn("one round by the clock tells nothing of how long a query takes: goals of it need the whole story, or --kernel 6.12")
			return
		}
		same = latency[sluiceFlow+again].Per(flow)
	}
	h.Goal(figures.AtMost("a query by Sluice's flowtable against Sluice without it", "×", 1, flow.Per(latency[sluiceClassic]), same))
	h.Goal(figures.AtMost("a query by Sluice's flowtable against rules by hand without one", "×", 1, flow.Per(latency[vmRules]), same))
}

// reach says whether the host's rules do what they are for: all machines reach the
// database, and no machine another.
func (h *hosting) reach(w hosted) error {
	for i := 2; i <= machines; i++ {
		if r := h.vm[i].TryTCP(testnet.TCPTry{To: netip.AddrPortFrom(machine(1), databasePort)}); r.Outcome != testnet.Answered {
			return fmt.Errorf("%s: machine %d does not reach the database: %s", w.subject, i, r)
		}
	}
	r := h.vm[3].TryTCP(testnet.TCPTry{To: netip.AddrPortFrom(machine(4), 22), Patience: 500 * time.Millisecond})
	want := testnet.Silent
	if w.subject == noRules {
		want = testnet.Reset // nothing listens there
	}
	if r.Outcome != want {
		return fmt.Errorf("%s: machine 3 asks machine 4: %s", w.subject, r)
	}
	return nil
}

func (h *hosting) build() {
	h.host = h.Net.Namespace("host")
	for i := 1; i <= machines; i++ {
		vm := h.Net.Namespace(fmt.Sprintf("vm%d", i))
		h.Net.Join(
			testnet.End{In: vm, Device: "eth0", Addresses: []string{machine(i).String() + "/24"}},
			testnet.End{In: h.host, Device: fmt.Sprintf("vm%d", i), Addresses: []string{machine(i).Prev().String() + "/24"}},
		)
		vm.Route("default4", machine(i).Prev().String())
		h.vm[i] = vm
	}
	h.host.Forward()
	h.client = h.vm[2]
}

// queries is one round under one ruleset.
type queries struct {
	latency   float64 // ms, the mean: the inverse of what a second had
	packets   float64 // that the host forwarded for a query
	offloaded bool    // the connection was in a flowtable
}

// perSecond has more digits than the latency that pgbench says beside it.
var perSecond = regexp.MustCompile(`(?m)^tps = ([0-9.]+) \(without initial connection time\)$`)

// ask runs pgbench once. A quarter of the queries goes before, in a run of its own,
// so that caches and the flowtable have what they need.
func (h *hosting) ask(ctx context.Context, p *postgres, transactions int, watch bool) (q queries, err error) {
	if _, err := p.bench(ctx, h.client, transactions/4); err != nil {
		return q, err
	}
	before, err := h.forwarded()
	if err != nil {
		return q, err
	}
	stop := func() bool { return false }
	if watch {
		stop = h.watchOffload(ctx)
	}
	out, err := p.bench(ctx, h.client, transactions)
	q.offloaded = stop()
	if err != nil {
		return q, err
	}
	after, err := h.forwarded()
	if err != nil {
		return q, err
	}
	if q.latency, err = queryTime(out); err != nil {
		return q, err
	}
	q.packets = float64(after-before) / float64(transactions)
	return q, nil
}

// queryTime reads ms of a query from what pgbench says.
func queryTime(said string) (float64, error) {
	m := perSecond.FindStringSubmatch(said)
	if m == nil {
		return 0, fmt.Errorf("pgbench says no queries per second:\n%s", said)
	}
	each, err := strconv.ParseFloat(m[1], 64)
	if err != nil || each <= 0 {
		return 0, fmt.Errorf("pgbench says %s queries per second", m[1])
	}
	return 1000 / each, nil
}

// forwarded is how many packets came from the client and from the database so far.
func (h *hosting) forwarded() (sum uint64, err error) {
	for _, device := range []string{"vm1", "vm2"} {
		link, err := h.host.Links().LinkByName(device)
		if err != nil {
			return 0, err
		}
		sum += link.Attrs().Statistics.RxPackets
	}
	return sum, nil
}

// settled is forwarded, once the last packets of a connection that ends have come.
func (h *hosting) settled() (uint64, error) {
	before, err := h.forwarded()
	for err == nil {
		time.Sleep(50 * time.Millisecond)
		var now uint64
		if now, err = h.forwarded(); now == before {
			break
		}
		before = now
	}
	return before, err
}

// watchOffload looks for a connection in the flowtable until the returned function
// asks whether one was there.
func (h *hosting) watchOffload(ctx context.Context) func() bool {
	ctx, cancel := context.WithCancel(ctx)
	seen := make(chan bool, 1)
	go func() {
		for ctx.Err() == nil {
			out, err := h.host.RunContext(ctx, "", "conntrack", "-L", "-p", "tcp", "--dport", strconv.Itoa(databasePort))
			if err == nil && strings.Contains(out, "[OFFLOAD]") {
				seen <- true
				return
			}
		}
		seen <- false
	}()
	return func() bool { cancel(); return <-seen }
}

const countForwarded = `table inet counting {
	counter seen { }
	chain forward {
		type filter hook forward priority 100; policy accept;
		counter name seen
	}
}
`

// asked counts the packets that the forward hook sees, beside all that the host
// forwards, while some more queries are asked.
func (h *hosting) asked(ctx context.Context, p *postgres, queries int) (string, error) {
	before, err := h.settled()
	if err != nil {
		return "", err
	}
	if err := nftRules(h.host, countForwarded); err != nil {
		return "", err
	}
	if _, err := p.bench(ctx, h.client, queries); err != nil {
		return "", err
	}
	after, err := h.settled()
	if err != nil {
		return "", err
	}
	counted, err := h.host.Counters("inet counting")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("of %d packets that the host forwarded, the forward hook saw %d", after-before, counted["seen"]), nftRules(h.host, "delete table inet counting\n")
}

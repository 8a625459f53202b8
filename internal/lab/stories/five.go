package stories

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
)

var five = Story{
	Number: 5,
	Title:  "A container behind a table of a thousand connections",
	Incident: "nginx in a container behind DNAT answered 76 requests a second instead of 6,576, and single requests took 65 seconds. " +
		"nf_conntrack_max was 1000. It was found by tracing where the kernel frees packets (kfree_skb): in nf_hook_slow. Raised to 131,072, it answered 6,316.",
	Needs:    []testnet.Feature{testnet.Program("nginx"), testnet.Program("iptables"), testnet.NftNAT},
	Programs: webPrograms,
	Machine:  true,
	Run:      playFive,
}

// Addresses of the story: the client's network, what the outside sees, and the
// container.
const (
	outside   = "203.0.113.1"
	container = "10.20.1.5"
	mapped    = "198.51.100.21" // what the stateless map makes of the container's
)

// containerRules are what the runtimes of containers write.
var containerRules = [][]string{
	{"-t", "nat", "-A", "PREROUTING", "-m", "addrtype", "--dst-type", "LOCAL", "-p", "tcp", "--dport", "80", "-j", "DNAT", "--to-destination", container + ":80"},
	{"-t", "nat", "-A", "POSTROUTING", "-s", "10.20.1.0/28", "!", "-o", "eth1", "-j", "MASQUERADE"},
	{"-A", "FORWARD", "-o", "eth1", "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"},
	{"-A", "FORWARD", "-i", "eth1", "!", "-o", "eth1", "-j", "ACCEPT"},
	{"-A", "FORWARD", "-d", container, "!", "-i", "eth1", "-o", "eth1", "-p", "tcp", "--dport", "80", "-j", "ACCEPT"},
	{"-P", "FORWARD", "DROP"},
}

const answerSized = `version: 1
zones:
  wan: { interfaces: [eth0] }
  containers: { interfaces: [eth1] }
tracking:
  table: { max: 131072, buckets: 131072 }
forward:
  default: drop
  rules:
    - allow http from wan to 10.20.1.5
    - allow any from containers to wan
nat:
  - redirect tcp/80 in wan to 10.20.1.5:80
`

const answerStateless = `version: 1
zones:
  wan: { interfaces: [eth0] }
  containers: { interfaces: [eth1] }
forward:
  default: drop
  rules:
    - allow http from wan to 10.20.1.5
nat:
  - map 198.51.100.16/28 to 10.20.1.0/28 stateless
`

// fiveSize is how large the story is played.
type fiveSize struct {
	table, connections int
	timeout            time.Duration
}

func (s *Stage) fiveSize() fiveSize {
	if s.Short {
		return fiveSize{table: 100, connections: 300, timeout: 5 * time.Second}
	}
	return fiveSize{table: 1000, connections: 5000, timeout: 75 * time.Second}
}

const sizedTable = 131072

// behindHost is a client, a host that forwards, and a container with nginx.
func (s *Stage) behindHost(label, name, address string) (*site, error) {
	w := &site{name: name, client: s.Net.Namespace(label + "-client"), host: s.Net.Namespace(label), url: "http://" + address + "/"}
	web := s.Net.Namespace(label + "-web")
	s.Net.Join(
		testnet.End{In: w.client, Device: "eth0", Addresses: []string{"203.0.113.20/24"}},
		testnet.End{In: w.host, Device: "eth0", Addresses: []string{outside + "/24"}},
	)
	s.Net.Join(
		testnet.End{In: w.host, Device: "eth1", Addresses: []string{"10.20.1.1/28"}},
		testnet.End{In: web, Device: "eth0", Addresses: []string{container + "/28"}},
	)
	w.host.Forward()
	w.client.Route("default4", outside)
	web.Route("default4", "10.20.1.1")
	// The client asks from a few thousand ports at once.
	w.client.Sysctl("net.ipv4.ip_local_port_range", "1024 65535")
	return w, s.startNginx(web)
}

func playFive(ctx context.Context, s *Stage) error {
	size := s.fiveSize()
	if err := raiseFiles(); err != nil {
		return err
	}
	s.Say("five hosts, each with a client and a container")
	var sites []*site
	for _, w := range []struct{ label, name, address string }{
		{"none", "no NAT", container},
		{"again", "no NAT, again", container},
		{"dnat", "DNAT by iptables", outside},
		{"sized", "Sluice, table sized", outside},
		{"stateless", "Sluice, stateless", mapped},
	} {
		site, err := s.behindHost(w.label, w.name, w.address)
		if err != nil {
			return err
		}
		sites = append(sites, site)
	}
	none, again, dnat, sized, stateless := sites[0], sites[1], sites[2], sites[3], sites[4]
	for _, rule := range containerRules {
		dnat.host.MustRun("iptables", rule...)
	}

	section := s.Section("course", "Five thousand connections, before and after")
	ask := Asking{Connections: size.connections, NewConnections: true, Requests: uint64(size.connections), For: 2 * size.timeout, Timeout: size.timeout, Every: time.Second}
	if err := s.LimitTable(size.table, 0); err != nil {
		return err
	}
	var courses []*course
	load := func(w *site) (*course, error) {
		s.Say("%s: %d connections at once, a request each", w.name, size.connections)
		c, err := s.watch(ctx, w, ask)
		courses = append(courses, c)
		return c, err
	}
	if _, err := load(none); err != nil {
		return err
	}
	log := openKernelLog()
	during, stop := context.WithCancel(ctx)
	defer stop()
	diagnosed := s.diagnoseFull(during, dnat.host, size.table)
	incident, err := load(dnat)
	lines := log.lines("nf_conntrack: table full")
	if err != nil {
		return err
	}
	evidence, shown, err := incident.fullTable(size.table, lines, courses[0])
	if err != nil {
		return err
	}
	if !shown {
		return fmt.Errorf("the incident did not happen: the table was not full, or nothing was dropped\n%s", strings.Join(evidence, "\n"))
	}
	diagnosis, err := diagnosed()
	if err != nil {
		return err
	}
	evidence = append(evidence, diagnosis...)
	s.Found(fmt.Sprintf("The connection table is full. DNAT needs an entry for every connection, and the table has room for %d of %d: the first packet of the others is dropped before any rule is asked. "+
		"The clients send it again after 1, 3, 7, 15, 31 and 63 seconds, which is where requests of more than a minute come from.", size.table, size.connections), evidence...)

	if err := s.answerFive(ctx, sized, stateless); err != nil {
		return err
	}
	for _, w := range []*site{sized, stateless} {
		if _, err := load(w); err != nil {
			return err
		}
	}
	s.fiveCourse(section, size, courses)
	s.Goal(figures.AtMost(stateless.name+": entries of the connection table, at most", "", 0, stats.Series{courses[3].mostEntries()}, nil))

	if err := s.usualTable(sizedTable); err != nil {
		return err
	}
	rate := s.Section("rate", "What NAT costs when nothing fails",
		"Closed loop, a new connection for each request, the sites in turn in every round. The table has room for 131,072 connections for all of them.")
	c, err := s.compareAll(ctx, rate, none, again, dnat, sized, stateless)
	if err != nil {
		return err
	}
	s.within(c, stateless, 1.05)
	s.Honest("For the smallest page the time of a request is %.3f times that without NAT when stateless, %.3f with DNAT by Sluice and a table that is large enough, %.3f with DNAT by iptables.",
		c.over[smallPage][stateless].Estimate().Median, c.over[smallPage][sized].Estimate().Median, c.over[smallPage][dnat].Estimate().Median)
	return nil
}

// answerFive applies Sluice's two answers, and sizes the table.
func (s *Stage) answerFive(ctx context.Context, sized, stateless *site) error {
	file, err := s.Answer("container.yaml", "The first answer: the same NAT, and a table that is large enough", answerSized)
	if err != nil {
		return err
	}
	if _, err := s.Apply(ctx, sized.host, file); err != nil {
		return err
	}
	// A namespace cannot size the table: the machine's own is sized by the same policy.
	if err := s.SizeTable(ctx, file, sizedTable); err != nil {
		return err
	}
	if !s.InLab {
		s.Honest("The table's size belongs to the whole machine. Sluice leaves it out in a network namespace and says so; it was written here in Sluice's place, since the machine itself has no policy of this story. In the kernel lab (--kernel 6.12) Sluice sets it.")
	}
	s.found.Text = append(s.found.Text, fmt.Sprintf("A table of %d entries takes up to %d MB when it is full (about 300 bytes an entry), and %d MB for as many buckets of 8 bytes at once.",
		sizedTable, sizedTable*300/1_000_000, sizedTable*8/1_000_000))
	if file, err = s.Answer("stateless.yaml", "The second answer: addresses are mapped without any state", answerStateless); err != nil {
		return err
	}
	_, err = s.Apply(ctx, stateless.host, file)
	return err
}

// fiveCourse writes what happened to the connections.
func (s *Stage) fiveCourse(section *figures.Section, size fiveSize, courses []*course) {
	section.Text = append(section.Text, fmt.Sprintf("%d clients open a connection at the same moment, ask for a page, and wait for up to %s; the rate is all answers over the time until the last client has an answer or has given up. nf_conntrack_max is %d for the first two, %d for the others.",
		size.connections, size.timeout, size.table, sizedTable))
	for _, c := range courses {
		add := func(quantity, unit string, more bool, value float64) {
			c.figure(section, "all connections", quantity, unit, more, value)
		}
		add("answered requests", "1/s", true, c.asked.Rate())
		add("answered", "requests", true, float64(c.asked.Answered))
		add("failed", "requests", false, c.failed())
		add("time to connect, median of those that came through", "ms", false, milliseconds(c.asked.Connect.P50))
		add("time to connect, longest", "ms", false, milliseconds(c.asked.Connect.Max))
		add("entries of the table, at most", "entries", false, c.mostEntries())
		add("packets dropped by the connection table", "packets", false, float64(c.counted("drop")))
	}
	section.Charts = overTime("course", size.table, courses[1], courses...)
	bare, full := courses[0].asked, courses[1].asked
	s.Honest("The story has 76 requests a second instead of 6,576, and single requests of 65 seconds. Here it is %.0f instead of %.0f; %d of %d were answered, and the slowest connection that succeeded took %.1f seconds.",
		full.Rate(), bare.Rate(), full.Answered, size.connections, full.Connect.Max.Seconds())
	s.Honest("Client, host and container are namespaces of one machine and share its processors: figures in requests per second are those of this machine, ratios are what carries over.")
}

package stories

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/peers"
	"sluice/internal/lab/product"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/geo"
)

var three = Story{
	Number: 3,
	Title:  "A country block makes a look-up take five seconds",
	Incident: "A server was to be reached from some countries only: tens of thousands of prefixes in an nftables interval set, " +
		"in a base chain of their own. From then on each DNS look-up took 5.05 s, and ssh could not be used. The set's look-up was " +
		"blamed, and nftables replaced by iptables with one chain for each /8.",
	Needs: []testnet.Feature{
		testnet.Program("dnsmasq"), testnet.Program("getent"), testnet.Program("unshare"), testnet.Program("bash"),
		testnet.IPTablesLegacy("filter"), measure.LiveFrames,
	},
	Programs: []string{"dnsmasq", "getent", "unshare", "bash", "iptables-legacy-restore"},
	Run:      playThree,
}

// What the policy of the answer is called, and how the subjects of the story are.
const (
	noRules       = "no firewall"
	twoChains     = "the story's two base chains"
	oneChain      = "the same set behind established, in one chain"
	chainPer8     = "the story's remedy, a chain per /8"
	sluiceSubject = "sluice"
)

const europePolicy = `version: 1
sets:
  europe: { continents: [EU] }
input:
  default: drop
  rules:
    - allow any from europe
output:
  default: allow
`

// lookedUp is what www.example.net is.
const lookedUp = "203.0.113.80"

// firstResolver is one that many hosts use, in a country that the block is about.
var firstResolver = netip.MustParseAddr("8.8.8.8")

// resolving is the small internet of the story.
//
//	host ── net ── (8.8.8.8, a resolver in Europe)
type resolving struct {
	*Stage
	allowed addrset.Set
	blocked addrset.Set
	host    *testnet.Namespace
	second  netip.Addr // the resolver that is asked when the first one is silent
	resolv  string     // the file that stands for /etc/resolv.conf
}

func playThree(ctx context.Context, s *Stage) error {
	r := &resolving{Stage: s, host: s.Net.Namespace("host")}
	if err := r.countries(); err != nil {
		return err
	}
	if err := r.build(); err != nil {
		return err
	}
	answer, err := s.Answer("only-europe.yaml", "Sluice's answer", europePolicy)
	if err != nil {
		return err
	}
	if err := r.lookUps(ctx, answer); err != nil {
		return err
	}
	if err := r.packets(ctx, answer); err != nil {
		return err
	}
	s.Honest("The incident's prefixes were of several lists, about 51,000 of IPv4; here they are those of one, merged. The story's resolvers and clients are namespaces beside each other, so a look-up that is answered takes next to no time; the five seconds are those of the C library (resolv.conf(5), timeout).")
	return nil
}

func (r *resolving) countries() error {
	db, err := geo.Open(r.Countries)
	if err != nil {
		return err
	}
	if r.allowed, err = db.Continents("EU"); err != nil {
		return err
	}
	all, err := db.All()
	if err != nil {
		return err
	}
	r.allowed, r.blocked = r.allowed.Only4(), all.Difference(r.allowed).Only4()
	if r.allowed.Contains(firstResolver) {
		return fmt.Errorf("the country data say that %s is in Europe", firstResolver)
	}
	german, err := db.Countries("DE")
	if err != nil {
		return err
	}
	var largest netip.Prefix
	for p := range german.Only4().EachPrefix() {
		if !largest.IsValid() || p.Bits() < largest.Bits() {
			largest = p
		}
	}
	r.second = largest.Addr().Next()
	if _, err := os.Stat(geo.CurrentFile(r.Countries)); err != nil {
		r.Warn("the built-in country data are used; the story had those of DB-IP Lite: sluice geo update --help says how to get them")
	} else if err := r.shareCountries(); err != nil {
		return err
	}
	info := db.Info()
	r.Section("data", "The data", fmt.Sprintf("%s of %s: %s IPv4 ranges are allowed (%s, %s).", info.Source, info.Date.Format(time.DateOnly),
		figures.Number(float64(r.allowed.Len4())), info.Attribution, info.Licence))
	return nil
}

// shareCountries gives the state directory of the hosts the data that the rules of
// everybody else are made of.
func (r *resolving) shareCountries() error {
	return product.Sluice{State: r.StateDir(r.host)}.ShareCountries(r.Countries)
}

func (r *resolving) build() error {
	net := r.Net.Namespace("net")
	r.Net.Join(
		testnet.End{In: r.host, Device: "wan", Addresses: []string{"198.51.100.10/24"}},
		testnet.End{In: net, Device: "link", Addresses: []string{"198.51.100.1/24"}},
	)
	r.host.Route("default4", "198.51.100.1")
	net.Own(firstResolver.String()+"/32", r.second.String()+"/32")
	for _, at := range []netip.Addr{firstResolver, r.second} {
		net.ServeName(at, "www.example.net", lookedUp)
	}
	if r.InLab { // where there is no file to put another one over
		if err := os.WriteFile("/etc/resolv.conf", nil, 0o644); err != nil {
			return err
		}
	}
	r.resolv = filepath.Join(r.Dir, "resolv.conf")
	if err := os.WriteFile(r.resolv, fmt.Appendf(nil, "nameserver %s\nnameserver %s\n", firstResolver, r.second), 0o644); err != nil {
		return err
	}
	for begun := time.Now(); ; {
		took, err := r.lookUp(1)
		if err == nil && took[0] < 1 {
			return nil
		}
		if time.Since(begun) > 20*time.Second {
			return fmt.Errorf("the resolvers do not answer: took %v s, %w", took, err)
		}
	}
}

// lookUp asks for a name as every program does, by the C library, and returns the
// seconds that each look-up took. /etc/resolv.conf is another file in there.
func (r *resolving) lookUp(times int) (stats.Series, error) {
	script := `set -e
mount --bind "$1" /etc/resolv.conf
for i in $(seq "$2"); do
	from=$EPOCHREALTIME
	answer=$(getent ahostsv4 www.example.net) || answer=none
	to=$EPOCHREALTIME
	echo "${from/,/.} ${to/,/.} ${answer%% *}"
done`
	out, err := r.host.Run("unshare", "--mount", "bash", "-c", script, "look-up", r.resolv, fmt.Sprint(times))
	if err != nil {
		return nil, fmt.Errorf("look up a name: %w\n%s", err, out)
	}
	return lookUpTimes(out)
}

// diagnosed has the doctor look at the host, whose /etc/resolv.conf is another file in there.
func (r *resolving) diagnosed() error {
	said, err := diagnosis("replies-cut", func() (string, error) {
		out, err := r.host.Run("unshare", "--mount", "sh", "-c", `mount --bind "$1" /etc/resolv.conf && { "$2" doctor --json || [ $? = 1 ]; }`, "doctor", r.resolv, r.Binary)
		if err != nil {
			err = fmt.Errorf("ask the doctor: %w\n%s", err, out)
		}
		return out, err
	})
	if err != nil {
		return err
	}
	r.Found("The doctor, which knows nothing of the story:", said...)
	return nil
}

// lookUpTimes reads a line for each look-up: when it began, when it ended, and the
// address.
func lookUpTimes(lines string) (stats.Series, error) {
	var took stats.Series
	for line := range strings.Lines(lines) {
		var from, to float64
		var answer string
		if _, err := fmt.Sscan(line, &from, &to, &answer); err != nil || answer != lookedUp {
			return took, fmt.Errorf("look up a name: got %q", strings.TrimSpace(line))
		}
		took = append(took, to-from)
	}
	if len(took) == 0 {
		return nil, errors.New("look up a name: nothing was said")
	}
	return took, nil
}

// blocking is one way to let in some countries alone.
type blocking struct {
	subject string
	load    func(host *testnet.Namespace) error
}

func (r *resolving) blockings(ctx context.Context, answer string) []blocking {
	chains := r.chains()
	return []blocking{
		{twoChains, func(h *testnet.Namespace) error { return nftRules(h, TwoBaseChains(r.allowed)) }},
		{oneChain, func(h *testnet.Namespace) error { return nftRules(h, storyTable(r.allowed, oneBaseChain)) }},
		{chainPer8, func(h *testnet.Namespace) error { return iptablesRestore(h, chains) }},
		{sluiceSubject, func(h *testnet.Namespace) error { _, err := r.Apply(ctx, h, answer); return err }},
	}
}

// lookUps measures them behind each ruleset.
func (r *resolving) lookUps(ctx context.Context, answer string) error {
	quick, slow := 15, 3
	if r.Short {
		quick, slow = 7, 1
	}
	section := r.Section("look-up", "What a look-up takes", "One name, asked by the C library: the first resolver is "+firstResolver.String()+
		", which the country data place outside of Europe, the second lies in Europe. The first one is asked again after five seconds of silence, "+
		"or another one.")
	figure := func(subject string, took stats.Series) {
		section.Add(figures.Figure{Case: "look-up", Subject: subject, Quantity: "time of a look-up", Unit: "s", Samples: took})
		r.Say("%s: a look-up takes %.3f s", subject, took.Estimate().Median)
	}
	took := map[string]stats.Series{}
	for _, v := range append([]blocking{{noRules, func(*testnet.Namespace) error { return nil }}}, r.blockings(ctx, answer)...) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := v.load(r.host); err != nil {
			return fmt.Errorf("load %s: %w", v.subject, err)
		}
		times := quick
		if v.subject == twoChains {
			times = slow
		}
		t, err := r.lookUp(times)
		if err != nil {
			return fmt.Errorf("%s: %w", v.subject, err)
		}
		took[v.subject] = t
		figure(v.subject, t)
		if v.subject == twoChains {
			if err := r.trace(); err != nil {
				return err
			}
			if err := r.diagnosed(); err != nil {
				return err
			}
		}
		if err := clearHost(r.Stage, r.host); err != nil {
			return err
		}
	}
	r.Found(fmt.Sprintf("The set's look-up is not the cause: the same set behind “ct state established,related accept” in one chain answers in %.3f s instead of %.3f s.",
		took[oneChain].Estimate().Median, took[twoChains].Estimate().Median),
		"an accept ends its own base chain, not the packet's way: each base chain of a hook is asked")
	r.Goal(figures.AtLeast("a look-up behind the story's two base chains", "s", 5, took[twoChains], nil))
	r.Goal(figures.AtMost("the same set behind established, in one chain", "s", 0.5, took[oneChain], nil))
	r.Goal(figures.AtMost("a look-up behind Sluice", "s", 0.5, took[sluiceSubject], nil))
	return nil
}

// TwoBaseChains are the story's rules, for nft: a base chain that lets in some countries
// alone comes before the one that asks for known connections, whose accept ends its own
// chain and not the packet's way.
func TwoBaseChains(allowed addrset.Set) string { return storyTable(allowed, twoBaseChains) }

// storyTable is a table with the allowed ranges and chains that ask for them.
func storyTable(allowed addrset.Set, chains string) string {
	return "table inet story {\n\tset allowed {\n\t\ttype ipv4_addr; flags interval;\n\t\telements = { " +
		peers.Elements(allowed.Ranges()) + " }\n\t}\n" + chains + "}\n"
}

// The story's rules, and the same in one chain.
const (
	countryRule   = "ip saddr != @allowed drop"
	twoBaseChains = `	chain countries {
		type filter hook input priority -1; policy accept;
		iif lo accept
		` + countryRule + `
	}
	chain input {
		type filter hook input priority 0; policy accept;
		ct state established,related accept
		ct state invalid drop
	}
`
	oneBaseChain = `	chain input {
		type filter hook input priority 0; policy accept;
		ct state established,related accept
		ct state invalid drop
		iif lo accept
		` + countryRule + `
	}
`
)

// chains is the remedy: a chain of linear rules for each /8.
func (r *resolving) chains() string {
	per := map[byte][]netip.Prefix{}
	for p := range r.allowed.EachPrefix() {
		first := p.Addr().As4()[0]
		for i := range max(1, 1<<8>>p.Bits()) {
			q := p
			if p.Bits() < 8 {
				q = netip.PrefixFrom(netip.AddrFrom4([4]byte{first + byte(i)}), 8)
			}
			per[first+byte(i)] = append(per[first+byte(i)], q)
		}
	}
	var declared, jumps, rules strings.Builder
	for first := range 256 {
		prefixes := per[byte(first)]
		if len(prefixes) == 0 {
			continue
		}
		fmt.Fprintf(&declared, ":c%d - [0:0]\n", first)
		fmt.Fprintf(&jumps, "-A INPUT -s %d.0.0.0/8 -j c%d\n", first, first)
		for _, p := range prefixes {
			fmt.Fprintf(&rules, "-A c%d -s %s -j ACCEPT\n", first, p)
		}
	}
	return "*filter\n:INPUT DROP [0:0]\n" + declared.String() +
		"-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n-A INPUT -m conntrack --ctstate INVALID -j DROP\n-A INPUT -i lo -j ACCEPT\n" +
		jumps.String() + rules.String() + "COMMIT\n"
}

// trace follows what comes back from the first resolver, with the story's rules
// there, and names the rule that drops it.
func (r *resolving) trace() error {
	if err := nftRules(r.host, "table ip tracing {\n\tchain packets {\n\t\ttype filter hook prerouting priority -400;\n\t\tip saddr "+firstResolver.String()+
		" udp sport 53 meta nftrace set 1\n\t}\n}\n"); err != nil {
		return err
	}
	monitor := r.host.Start("nft", "monitor", "trace")
	defer monitor.Stop()
	verdict := countryRule + " (verdict drop)"
	for begun := time.Now(); !strings.Contains(monitor.Output(), verdict); {
		if time.Since(begun) > 30*time.Second {
			return fmt.Errorf("no reply of %s was traced:\n%s", firstResolver, monitor.Output())
		}
		// Nothing waits for this answer: one packet is enough.
		_ = r.host.TryUDP(testnet.UDPTry{To: netip.AddrPortFrom(firstResolver, 53), Message: question, Patience: 300 * time.Millisecond})
	}
	r.Found("The replies of the resolver are dropped by the chain of the countries, although they belong to a connection that the host itself began. After five seconds of silence the C library asks the next resolver.", tracedRules(monitor.Output())...)
	return nil
}

// tracedRules is the way of the first packet that nft monitor trace told of.
func tracedRules(told string) (lines []string) {
	id := ""
	for line := range strings.Lines(told) {
		words := strings.Fields(line)
		if len(words) < 4 || words[0] != "trace" || id != "" && words[2] != id {
			continue
		}
		id = words[2]
		if !strings.Contains(line, " packet: ") {
			lines = append(lines, strings.Join(words[3:], " "))
		}
	}
	return lines
}

// question is a DNS query for www.example.net (RFC 1035, section 4.1).
const question = "\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + "\x03www\x07example\x03net\x00\x00\x01\x00\x01"

package demo

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/internal/lab/stories"
	"sluice/internal/lab/testnet"
)

// slowResolver is story 3: the first resolver lies in a blocked country, and
// its answers were dropped by a chain that never asked whether they were
// answers. The same question is asked behind Sluice, and behind the two chains
// of the story with the same data.
func (d *demo) slowResolver() error {
	d.title("A resolver in a blocked country (%s, %s)", resolver4, d.countryOf(resolver4))
	story := d.attach("story", netip.MustParsePrefix("203.0.113.10/24"))
	europe, err := d.db.Continents("EU")
	if err != nil {
		return err
	}
	story.Nft(stories.TwoBaseChains(europe.Only4()))

	// a packet that answers, and nothing else that the resolver may send
	packet := []string{"--src", resolver4.String(), "--proto", "udp", "--sport", "53", "--dport", "40000"}
	answers := append(slices.Clone(packet), "--state", "established")
	if err := d.quoteExplain("", answers...); err != nil {
		return err
	}
	d.head()
	said, err := d.explain(answers...)
	if err != nil {
		return err
	}
	why := said.Verdict + " by " + said.Stage
	if strings.HasSuffix(said.Sentence, " is allowed: it belongs to a known connection.") {
		why = "known"
	}
	d.check("its answers, says explain: of which connection", "known", why)
	if said, err = d.explain(packet...); err != nil {
		return err
	}
	d.check("what it sends unasked, says explain", "drop", said.Verdict)
	answer, took := ask(d.host)
	seen := answer
	if took > time.Second {
		seen = fmt.Sprintf("%s after %.1f s", answer, took.Seconds())
	}
	d.check("www.example.net, behind Sluice", "203.0.113.80", seen)
	answer, _ = ask(story)
	d.check("the same, countries in a base chain of their own", silent, answer)
	d.say("behind Sluice the answer took %.0f ms: replies are decided before any country", float64(took.Microseconds())/1000)
	return nil
}

// ask puts one question to the resolver, once, for two seconds.
func ask(from *testnet.Namespace) (answer string, took time.Duration) {
	start := time.Now()
	out, err := from.Run("dig", "+short", "+tries=1", "+time=2", "@"+resolver4.String(), "www.example.net")
	took = time.Since(start)
	switch {
	case err != nil && strings.Contains(out, "timed out"), err != nil && strings.Contains(out, "no servers could be reached"):
		return silent, took
	case err != nil:
		return err.Error(), took
	}
	return strings.TrimSpace(out), took
}

// lockOut applies a policy that forgets ssh.
func (d *demo) lockOut() error {
	d.title("A policy that locks its author out")
	file := filepath.Join(d.scratch, "mistake.yaml")
	text := "version: 1\ninput:\n  default: drop\n  rules:\n    - allow http\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	office := d.client("the office")
	overSSH := func(args ...string) (string, int, error) {
		peer := fmt.Sprintf("SSH_CONNECTION=%s 50000 %s 22", office.v4, host4)
		return d.Run(context.Background(), d.host, []string{peer}, args...)
	}
	out, status, err := overSSH("apply", file)
	if err != nil {
		return err
	}
	d.quote("sluice apply mistake.yaml", d.shown(out))
	d.head()
	d.check("applied over ssh: refused before anything changes", "exit 1", fmt.Sprintf("exit %d", status))

	ssh := func() string {
		to := netip.AddrPortFrom(host4, 22)
		return office.space.TryTCP(testnet.TCPTry{From: netip.AddrPortFrom(office.v4, 0), To: to, Patience: patience}).Outcome.String()
	}
	out, status, err = overSSH("apply", file, "--force", "--confirm", "3s")
	if err != nil {
		return err
	}
	armed := time.Now()
	d.quote("sluice apply mistake.yaml --force --confirm 3s", d.shown(out))
	d.check("forced, to be confirmed within 3 s", "exit 0", fmt.Sprintf("exit %d", status))
	d.check("a new ssh connection from the office", silent, ssh())
	d.say("nobody confirms ...")
	seen := silent
	for time.Since(armed) < 30*time.Second && seen != answered {
		seen = ssh()
	}
	d.check("a new ssh connection from the office, afterwards", answered, seen)
	d.say("open again %.1f s after the apply", time.Since(armed).Seconds())
	return nil
}

// mailPort is a service of the example that keeps connection state and is open
// to Europe.
const mailPort = 25

// fullTable is story 1: something fills the connection table. The web site,
// whose traffic keeps no state, does not notice.
func (d *demo) fullTable() error {
	d.title("A connection table flooded full")
	limit, err := d.host.SysctlNumber("net.netfilter.nf_conntrack_max") // the whole machine's
	if err != nil {
		return err
	}
	german := d.client("Germany")
	f := &flood{from: german.space, to: netip.AddrPortFrom(host4, mailPort), at: d.host, workers: 16}
	upper := german.v4.As4() // half of the client's network
	upper[3] = 128
	german.space.Own(netip.PrefixFrom(netip.AddrFrom4(upper), 25).String())
	for range 120 { // with their ports, ten times as many pairs as a usual table has entries
		upper[3]++
		f.sources = append(f.sources, netip.AddrFrom4(upper))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := f.serve(ctx); err != nil {
		return err
	}
	italian := d.client("Italy")
	mail := func() string {
		return italian.space.TryTCP(testnet.TCPTry{From: netip.AddrPortFrom(italian.v4, 0), To: f.to, Patience: patience}).Outcome.String()
	}
	d.head()
	d.check(fmt.Sprintf("tcp/%d from Italy, which needs an entry, before", mailPort), answered, mail())

	start := time.Now()
	opened, wait := f.start(ctx)
	defer wait()
	defer cancel()
	if err := f.awaitFull(ctx, limit); err != nil {
		return err
	}
	used, err := d.host.SysctlNumber("net.netfilter.nf_conntrack_count")
	if err != nil {
		return err
	}
	took := time.Since(start)
	d.check(fmt.Sprintf("entries after %d connections from Germany", opened.Load()), fmt.Sprint(limit), fmt.Sprint(min(used, limit)))
	// An entry that ends leaves room for one connection, whoever comes first.
	const tries = 5
	lost := 0
	for range tries {
		if mail() == silent {
			lost++
		}
	}
	seen := answered
	if lost > tries/2 {
		seen = silent
	}
	d.check(fmt.Sprintf("tcp/%d from Italy, table full, most of %d times", mailPort, tries), silent, seen)
	pages := 0
	const wanted = 100
	for range wanted {
		if get(italian.space, italian.v4, host4, patience).Outcome == testnet.Answered {
			pages++
		}
	}
	d.check(fmt.Sprintf("%d pages of nginx for Italy, which need no entry", wanted), fmt.Sprint(wanted), fmt.Sprint(pages))
	d.say("full after %.1f s; the flood goes on. The limit is the machine's, the table is not", took.Seconds())
	return nil
}

// countryOf names the country of an address, as the data have it.
func (d *demo) countryOf(a netip.Addr) string {
	c, ok := d.db.Lookup(a)
	if !ok {
		return "of no country"
	}
	return c.Name
}

// shown is an output without the demo's directory in it.
func (d *demo) shown(text string) string { return strings.ReplaceAll(text, d.scratch+"/", "") }

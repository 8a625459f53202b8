package cli

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/cli/command"
	"sluice/internal/language/bans"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/mutants"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/reference"
	"sluice/internal/system/host"
)

func TestTCPFlags(t *testing.T) {
	for text, want := range map[string]int{
		"S": packet.SYN, "SA": packet.SYN | packet.ACK, "sa": packet.SYN | packet.ACK, "syn,ack": packet.SYN | packet.ACK, "ACK": packet.ACK,
		"none": 0, "FPU": packet.FIN | packet.PSH | packet.URG, "rst": packet.RST, "C": 0x80, "E": 0x40,
		"": -1, "X": -1, "syn ack": -1, "syn,": -1, "S,A": -1,
	} {
		got, ok := parseTCPFlags(text)
		if ok != (want >= 0) || ok && int(got) != want {
			t.Errorf("%q is %#x, %t, want %#x", text, got, ok, want)
		}
	}
}

func FuzzTCPFlags(f *testing.F) {
	for _, text := range []string{"S", "syn,ack", "none", "SFRPAUEC", "", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		flags, ok := parseTCPFlags(text)
		if !ok {
			return
		}
		if again, ok := parseTCPFlags(flagsText(flags)); !ok || again != flags {
			t.Errorf("%q is %#x, which is written as %q and read as %#x", text, flags, flagsText(flags), again)
		}
	})
}

// Whatever the flags say, there is a packet or an error, and a packet has all that
// the judges ask.
func FuzzAskedPacket(f *testing.F) {
	for _, words := range []string{
		"tcp|8.8.8.8||443||||||||", "udp|192.0.2.1|2001:db8::1|dns|53|eth0|||||", "|2001:db8::1||||||packet-too-big||||", "proto/112|10.20.0.5|203.0.113.1|||||||||",
		"||203.0.113.25|smtp||||||25|output|", "tcp|::ffff:192.0.2.1||http||||||||established",
	} {
		f.Add(words)
	}
	facts := host.Facts{Known: true, DefaultRoute: []string{"eth0"}, Interfaces: host.Facts{}.Interfaces}
	p, err := policy.Parse("policy.yaml", []byte("version: 1\n"))
	if err != nil {
		f.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: facts})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, words string) {
		w := append(strings.Split(words, "|"), make([]string, 12)...)
		a := askedPacket{w[0], w[1], w[2], w[4], w[3], w[5], w[6], w[7], w[8], w[9], w[10], w[11], "", facts.Route}
		got, way, err := a.read(facts, r)
		if err != nil {
			return
		}
		if !got.Source.IsValid() || !got.Destination.IsValid() || got.Source.Is4() != got.Destination.Is4() || way == "" || got.HasPorts() && (got.Port == 0 || got.SourcePort == 0) {
			t.Errorf("%q makes %+v", words, got)
		}
	})
}

// What the manual and the README show of explain is what explain prints.
func TestPagesOfExplainAreTrue(t *testing.T) {
	manual := indented(t, "../../docs/asking.md", "\n## One packet: sluice explain\n")
	if len(manual) < 4 {
		t.Fatalf("the manual has %d blocks", len(manual))
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(readme), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	asked := slices.DeleteFunc(indented(t, "../../README.md", "\n## Ask it\n"), func(b string) bool { return !strings.HasPrefix(b, "$ sluice explain") })
	if len(asked) == 0 {
		t.Fatal("the README asks nothing")
	}
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"web.yaml": manual[0], "scanners.txt": manual[1], "policy.yaml": example, "facts.json": `{"known": true, "forwarding4": true, "default-route": ["eth0"], "interfaces": [
		{"name": "eth0", "index": 2, "up": true, "addresses": ["198.51.100.1/24", "2001:db8:100::1/64"]},
		{"name": "lan0", "index": 3, "up": true, "addresses": ["10.20.0.1/24"]}]}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, block := range append(manual[2:], asked...) {
		asked, want, _ := strings.Cut(block, "\n")
		words, is := strings.CutPrefix(asked, "$ sluice ")
		if !is {
			t.Errorf("no command: %s", asked)
			continue
		}
		var out, errOut strings.Builder
		command.Run(Root(), append(strings.Fields(words), "--host", "facts.json", "--state-dir", "state"), nil, &out, &errOut)
		if got := out.String(); strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("sluice %s\n%s%s\nthe manual has\n%s", words, got, errOut.String(), want)
		}
	}
}

// indented gives the blocks of a page's section that are set off by four blanks.
func indented(t *testing.T, file, heading string) []string {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), heading)
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatalf("%s has no section %q", file, strings.TrimSpace(heading))
	}
	var blocks []string
	for line := range strings.SplitSeq("\n"+section, "\n") {
		text, is := strings.CutPrefix(line, "    ")
		switch {
		case is && len(blocks) > 0:
			blocks[len(blocks)-1] += text + "\n"
		case line == "" && len(blocks) > 0:
			blocks[len(blocks)-1] += "\n"
		default:
			blocks = append(blocks, "")
		}
	}
	for i := range blocks {
		blocks[i] = strings.Trim(blocks[i], "\n") + "\n"
	}
	return slices.DeleteFunc(blocks, func(b string) bool { return b == "\n" })
}

// Each pass that is wrong on purpose is told of as a bug in Sluice, by some
// packet; without one, no packet is.
func TestExplainTellsOfWrongPasses(t *testing.T) {
	p, err := policy.Parse("policy.yaml", []byte(`version: 1
sets:
  office: [203.0.113.0/25, "2001:db8:77::/48"]
input:
  default: drop
  rules:
    - drop ssh from 203.0.113.9
    - allow ssh from office
    - allow https
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: host.Facts{Known: true}})
	if err != nil {
		t.Fatal(err)
	}
	var packets []packet.Packet
	for _, from := range []string{"203.0.113.9", "203.0.113.10", "203.0.113.200", "198.51.100.7", "2001:db8:77::7", "2001:db8:76::7", "2001:db8:1::7"} {
		for _, port := range []uint16{22, 443, 25} {
			for _, s := range []packet.State{"", packet.Established} {
				a := netip.MustParseAddr(from)
				to := netip.MustParseAddr("198.51.100.1")
				if a.Is6() {
					to = netip.MustParseAddr("2001:db8:100::1")
				}
				packets = append(packets, packet.Packet{
					In: "eth0", Source: a, Destination: to, Protocol: packet.TCP, SourcePort: firstPort, Port: port, Flags: packet.SYN,
					State: s, SourceLocal: packet.No, DestinationLocal: packet.Yes, Owner: -1, HopLimit: 64,
				})
			}
		}
	}
	disagree := func(prog *program.Program) (n int) {
		for _, p := range packets {
			switch got := compareProgram(prog, p, packet.In, reference.Explain(r, p, packet.In)); {
			case got.Agrees == nil:
				t.Errorf("%v cannot be compared: %s", p, got.Says)
			case !*got.Agrees:
				n++
			}
		}
		return n
	}
	for _, pass := range append([]mutants.Pass{{Name: "none", Run: func(*program.Program) bool { return true }}}, mutants.Passes...) {
		prog, err := compile.Compile(r)
		if err == nil {
			err = optimize.Run(prog, optimize.Options{})
		}
		if err != nil {
			t.Fatal(err)
		}
		if !pass.Run(prog) {
			t.Errorf("%s changes nothing", pass.Name)
			continue
		}
		if n := disagree(prog); (n > 0) != (pass.Name != "none") {
			t.Errorf("%s: %d of %d packets differ", pass.Name, n, len(packets))
		}
	}
}

// A ban by command is no part of a policy, and is told of where the policy lets the
// packet pass and the host does not.
func TestExplainNotesBansByCommand(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	p, err := policy.Parse("policy.yaml", []byte("version: 1\nnever-ban: [203.0.113.9]\ninput: { default: allow }\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: host.Facts{Known: true}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bans.Open(dir).Append(bans.EntryOf([]bans.Ban{
		{What: addrset.PrefixRange(netip.MustParsePrefix("203.0.113.0/28")), Since: now, Reason: "scans"},
		{What: addrset.PrefixRange(netip.MustParsePrefix("203.0.113.77/32")), Since: now.Add(-time.Hour), Until: now.Add(-time.Minute)},
	}, now, bans.Author{})); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{
		"203.0.113.5":  "203.0.113.5 is banned by command (203.0.113.0/28), for scans: with any policy loaded that has rules, this host drops the packet, until sluice unban 203.0.113.0/28",
		"203.0.113.9":  "", // never banned
		"203.0.113.77": "", // its time is up
		"198.51.100.7": "",
	} {
		e := explained{pipeline: pipeline{options: options{stateDir: dir}, policy: p, resolved: r}}
		e.packet = packet.Packet{In: "eth0", Source: netip.MustParseAddr(from), Destination: netip.MustParseAddr("198.51.100.1"), Protocol: packet.UDP, SourcePort: 1, Port: 53, Owner: -1}
		e.path = reference.Explain(r, e.packet, packet.In)
		if got := e.bannedByCommand(); got != want {
			t.Errorf("%s: %q, want %q", from, got, want)
		}
		e.elsewhere = true
		if got := e.bannedByCommand(); got != "" {
			t.Errorf("%s, for another host: %q", from, got)
		}
	}
}

package doctor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/doctor"
)

// TestKnownFirst: the fix is a command, behind which the finding is gone; what undoes it
// brings it back.
func TestKnownFirst(t *testing.T) {
	late, lateNft := "", ""
	for i := range 30 {
		late += fmt.Sprintf("-s 198.51.100.%d/32 -p tcp --dport %d -j ACCEPT; ", i, 1000+i)
		lateNft += fmt.Sprintf("ip saddr 198.51.100.%d tcp dport %d accept; ", i, 1000+i)
	}
	six := strings.NewReplacer("198.51.100.", "2001:db8::", "/32", "/128", "ip saddr", "ip6 saddr")
	for i, tool := range append([]string{"nft"}, tools...) {
		for _, family := range []int{4, 6} {
			if testing.Short() && (i+family)%2 != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/IPv%d", tool, family), func(t *testing.T) {
				t.Parallel()
				b := newBroken(t)
				b.reachable()
				rules, nft := late, lateNft
				if family == 6 {
					rules, nft = six.Replace(late), six.Replace(lateNft)
				}
				b.chainOf(tool, family, "input", "accept", rules+"-j DROP", nft+"drop;")
				found, all := b.examine("established-late", time.Millisecond)
				if len(found) != 1 || len(found[0].Fix) != 1 || len(found[0].Undo) != 1 {
					t.Fatalf("%+v", all)
				}
				b.host.MustRun("sh", "-c", found[0].Fix[0])
				if found, _ := b.examine("established-late", time.Millisecond); len(found) > 0 {
					t.Errorf("behind the fix: %+v", found)
				}
				undo := found[0].Undo[0]
				if tool == "nft" {
					undo = strings.Replace(undo, "handle N", "handle "+handle(t, b), 1)
				}
				b.host.MustRun("sh", "-c", undo)
				if found, all := b.examine("established-late", time.Millisecond); len(found) != 1 {
					t.Errorf("behind the undo: %+v", all)
				}
			})
		}
	}
}

// handle is that of the rule for known connections, as the host's nft lists it.
func handle(t *testing.T, b *broken) string {
	t.Helper()
	for line := range strings.Lines(b.host.MustRun("nft", "-a", "list", "ruleset")) {
		if words := strings.Fields(line); strings.Contains(line, "ct state") {
			return words[len(words)-1]
		}
	}
	t.Fatal("there is no rule for known connections")
	return ""
}

// TestKnownNowhere: before connection tracking no rule knows a connection, so that none is
// asked for there, and that what drops has to move is the fix.
func TestKnownNowhere(t *testing.T) {
	t.Parallel()
	b := newBroken(t)
	b.reachable()
	b.tables("iptables-nft", 4, "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"+
		strings.Repeat("-A PREROUTING -s 198.51.100.9/32 -j DROP\n", 30)+"-A PREROUTING -p icmp -j DROP\nCOMMIT\n")
	b.host.Nft("table inet t { chain c { type filter hook prerouting priority -300; ct state established,related accept; meta l4proto ipv6-icmp drop; }; }")
	found, all := b.examine("too-big-dropped", time.Millisecond)
	var fixes []string
	for _, f := range found {
		fixes = append(fixes, f.Fix...)
	}
	if !slices.Equal(fixes, []string{
		"move these rules to table mangle: raw comes before connection tracking, where no rule can match its connection",
		"give chain c the priority -150: at -300 it comes before connection tracking, where no rule can match its connection",
	}) {
		t.Errorf("%+v", all)
	}
	if found, _ := b.examine("established-late", time.Millisecond); len(found) > 0 {
		t.Errorf("asked for where none is known: %+v", found)
	}
}

// TestSetInPlace: the set that is told is of the field and family in which the rules differ.
func TestSetInPlace(t *testing.T) {
	t.Parallel()
	b := newBroken(t)
	b.reachable()
	var source, port, ports string
	for i := range 20 {
		source += fmt.Sprintf("-A INPUT -s 2001:db8::%d/128 -j DROP\n", i)
		port += fmt.Sprintf("-A INPUT -p tcp --dport %d -j DROP\n", 1000+i)
		ports += fmt.Sprintf("udp sport %d drop; ", 1000+i)
	}
	b.tables("iptables-nft", 6, "*filter\n:INPUT ACCEPT [0:0]\n"+source+"COMMIT\n")
	b.tables("iptables-nft", 4, "*filter\n:INPUT ACCEPT [0:0]\n"+port+"COMMIT\n")
	b.host.Nft("table inet t { chain c { type filter hook input priority 0; " + ports + "}; }")
	found, all := b.examine("linear-rules", time.Millisecond)
	var fixes []string
	for _, f := range found {
		fixes = append(fixes, f.Fix...)
	}
	for _, want := range []string{
		"ipset create NAME hash:net family inet6; ipset add NAME … for each; one rule instead, with -m set --match-set NAME src",
		"ipset create NAME bitmap:port range 0-65535; ipset add NAME … for each; one rule instead, with -m set --match-set NAME dst",
		"one rule instead, with udp sport { … }",
	} {
		if !slices.Contains(fixes, want) {
			t.Errorf("no fix %q: %+v", want, all)
		}
	}
}

// TestFullQueue: who does not take connections in time is named, with its queue.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	b := newBroken(t)
	b.listener("192.0.2.1:80", 0)
	b.dial("192.0.2.1:80", 30)
	for deadline := time.Now().Add(time.Minute); ; {
		found, all := b.examine("listen-queue", time.Second)
		if len(found) == 1 && slices.ContainsFunc(found[0].Evidence, func(e doctor.Evidence) bool {
			who, queue, _ := strings.Cut(e.Text, " at 192.0.2.1:80: ")
			return who != "a program" && queue == "1 wait, its backlog is 0" && strings.HasPrefix(found[0].Fix[0], "find out why "+who+" at 192.0.2.1:80 is slow")
		}) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", all)
		}
	}
}

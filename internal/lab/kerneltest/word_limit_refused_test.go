package kerneltest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

// TestRefusedStaysRefused: what the ends of a connection that is beyond a limit send
// again neither bans its source again, when that was unbanned, nor puts it over the limit
// again, nor gets through.
func TestRefusedStaysRefused(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, forgedPolicy)
	for _, end := range []*testnet.Namespace{c.outside, c.inside} { // whom a reset does not reach goes on sending
		end.MustRun("nft", `table inet deaf { chain c { type filter hook prerouting priority -300; tcp flags & rst == rst drop; }; }`)
	}
	from := uint16(30000)
	for _, v6 := range []bool{false, true} {
		for _, p := range forgedPlaces {
			t.Run(fmt.Sprintf("%s/%d/IPv6=%t", p.to, p.port, v6), func(t *testing.T) {
				var open []*testnet.Conn
				for range 3 { // side by side: none of them is asked of the others
					from++
					r, conn := c.outside.OpenTCP(testnet.TCPTry{From: at(place("stranger", v6), from), To: at(place(p.to, v6), p.port), Patience: enough})
					if conn == nil {
						t.Fatal(r)
					}
					defer conn.Close()
					open = append(open, conn)
				}
				for _, conn := range open[:2] {
					if r := conn.Exchange("within", enough); r.Outcome != testnet.Answered {
						t.Fatal(r)
					}
				}
				beyond := open[2]
				if r := beyond.Exchange("beyond", short); r.Outcome != testnet.Silent {
					t.Fatal(r)
				}
				var marks []string
				if err := eventually(func() error {
					if marks = marksOfSources(c.host, v6); len(marks) == 0 {
						return errors.New("the source is neither banned nor over the limit")
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				for _, set := range marks {
					c.host.MustRun("nft", "flush", "set", "inet", "sluice", set)
				}
				// What proves a handshake: anything of the client's on the host itself,
				// data of the server's where it is forwarded.
				proof, hook := fmt.Sprintf("tcp sport %d", from), "input"
				if p.to != "host" {
					proof, hook = fmt.Sprintf("tcp dport %d tcp flags & (fin | psh) != 0", from), "forward"
				}
				c.host.MustRun("nft", fmt.Sprintf(`table inet watch { counter proofs {}; chain c { type filter hook %s priority -10; %s counter name proofs; }; }`, hook, proof))
				defer c.host.MustRun("nft", "delete", "table", "inet", "watch")
				if r := beyond.Exchange("again", short); r.Outcome != testnet.Silent {
					t.Errorf("a refused connection: %v", r)
				}
				if err := eventually(func() error {
					if counterOf(t, c.host, "inet watch", "proofs") == 0 {
						return errors.New("nothing was sent again")
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if marks := marksOfSources(c.host, v6); len(marks) > 0 {
					t.Errorf("a packet of a refused connection put its source into %v again", marks)
				}
			})
		}
	}
}

// marksOfSources is the sets of banned sources, and of those over a limit, that have
// elements.
func marksOfSources(host *testnet.Namespace, v6 bool) (out []string) {
	for _, line := range limitElements(host, v6) {
		name, _, _ := strings.Cut(line, "{")
		if name = strings.TrimSpace(name); strings.Contains(name, "banned") || strings.Contains(name, ".over_") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

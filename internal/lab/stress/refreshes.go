package stress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"sluice/internal/base/packet"
	"sluice/internal/lab/testnet"
)

// A list of a server is half kept and half window: kept addresses are in every
// version of it, the window goes on by a part of the list with each. Every other
// address of the window is next to a kept one, so that the range that holds a
// kept address is now one of one address and now of two.
type list struct {
	size [2]int // addresses of IPv4 and of IPv6

	mu      sync.Mutex
	version int
}

// kept is the i-th address that is always there.
func kept(f family, i int) netip.Addr { return address(f, 0, uint32(i)*4) }

// passing is the i-th address that comes and goes.
func passing(f family, i int) netip.Addr {
	if i%2 == 0 {
		return kept(f, i/2).Next()
	}
	return address(f, 1, uint32(i)*4)
}

// stranger is the i-th address that is never there.
func stranger(f family, i int) netip.Addr { return address(f, 2, uint32(i)*4) }

// address is a number in one of some networks.
func address(f family, network byte, n uint32) netip.Addr {
	if f == 4 {
		return netip.AddrFrom4([4]byte{20 + network, byte(n >> 16), byte(n >> 8), byte(n)})
	}
	a := netip.MustParseAddr("2001:db8:4000::").As16()
	a[5], a[12], a[13], a[14], a[15] = network, byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return netip.AddrFrom16(a)
}

// text is a version of the list.
func (l *list) text(version int) []byte {
	var out []byte
	for fi, f := range families {
		half := l.size[fi] / 2
		at := version * l.step(fi)
		for i := range half {
			out = append(kept(f, i).AppendTo(out), '\n')
			out = append(passing(f, (at+i)%(2*half)).AppendTo(out), '\n')
		}
	}
	return out
}

// step is how many addresses of a family go with each version, and as many come:
// one in a hundred.
func (l *list) step(fi int) int { return l.size[fi] / 100 }

// next is the version that is served from now on.
func (l *list) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version++
}

// ServeHTTP answers as a web server does with a file.
func (l *list) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	version := l.version
	l.mu.Unlock()
	tag := strconv.Quote(strconv.Itoa(version))
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(l.text(version)) // the client says what it missed
}

const listAddress = "127.0.0.1:8099"

// listPolicy asks the list both ways: what comes in from it is dropped, what is
// forwarded from it is let through.
const listPolicy = `version: 1
zones:
  wan: { interfaces: [wan0] }
  lan: { interfaces: [lan0] }
sets:
  listed: { url: "http://` + listAddress + `/list.txt", refresh: 1h }
tracking:
  bypass: [%[1]s]
input:
  default: allow
  rules:
    - drop udp/7000 from listed
forward:
  default: drop
  rules:
    - allow udp/7000 from listed to lan
    - allow [tcp/7105, tcp/7205] to lan
    - allow published [tcp/7106, tcp/7206]
` + redirects

// banPolicy bans the list.
const banPolicy = `version: 1
zones:
  wan: { interfaces: [wan0] }
  lan: { interfaces: [lan0] }
sets:
  listed: { url: "http://` + listAddress + `/list.txt", refresh: 1h }
ban: [listed]
tracking:
  bypass: [%[1]s]
` + redirects

// refreshed is what came of a run of refreshes.
type refreshed struct {
	Refreshes int           `json:"refreshes"`
	Addresses int           `json:"addresses"`
	Came      int           `json:"came"` // with each
	Wall      time.Duration `json:"wall-ns"`
	Took      spread        `json:"took"`
	Counts    *counts       `json:"counts"`
	Growth    []growth      `json:"growth"`
	// Control is the same traffic while the sets are empty for a moment.
	Control struct {
		Lost   uint64 `json:"lost"`
		Leaked uint64 `json:"leaked"`
	} `json:"control"`

	bans bool
}

// refreshing is one run of refreshes.
type refreshing struct {
	size      [2]int
	refreshes int
	warm      int // refreshes before the footprint that the last one is held to
	bans      bool
}

// listFlows are flows from kept addresses and from strangers, each way.
func listFlows(s refreshing) (out []flow) {
	own := map[family][2]netip.Addr{
		4: {netip.MustParseAddr(hostV4), netip.MustParseAddr(insideV4)},
		6: {netip.MustParseAddr(hostV6), netip.MustParseAddr(insideV6)},
	}
	for fi, f := range families {
		half := s.size[fi] / 2
		for i := range min(perKind, half) {
			for _, h := range []hook{input, forward} {
				listed, other := neither, both
				if h == forward && !s.bans {
					listed, other = both, neither
				}
				// spread over the list
				for c, from := range map[class]netip.Addr{listed: kept(f, i*half/perKind%half), other: stranger(f, i)} {
					k := kind{h, f, c}
					out = append(out, flow{k, packet.UDP, netip.AddrPortFrom(from, k.port()), netip.AddrPortFrom(own[f][h], flowPort)})
				}
			}
		}
	}
	return out
}

// refresh refreshes a list under traffic, by the program.
func (r *Run) refresh(ctx context.Context, n *testnet.Net, s refreshing) (out *refreshed, err error) {
	l, err := newLab(n)
	if err != nil {
		return nil, err
	}
	p := &place{lab: l, flows: listFlows(s)}
	served := &list{size: s.size}
	listener, err := l.host.Listen(listAddress)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: served, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // it ends with Close
	dir, err := r.folder()
	if err != nil {
		return nil, err
	}
	if p.hand, err = startHand(l.host, filepath.Join(dir, "state"), r.state); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close(), server.Close()) }()
	if err := n.Try(p.serve); err != nil {
		return nil, err
	}
	text := listPolicy
	if s.bans {
		text = banPolicy
	}
	file := filepath.Join(dir, "list.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, text, untracked(1), nil, "wan"), 0o600); err != nil {
		return nil, err
	}
	if _, err := r.byHand(p.hand, p.hand.state, "apply", file, "--no-confirm"); err != nil {
		return nil, err
	}
	t, err := p.startTraffic(p.flows)
	if err != nil {
		return nil, err
	}
	out = &refreshed{bans: s.bans, Addresses: s.size[0] + s.size[1], Came: served.step(0) + served.step(1)}
	begin := time.Now()
	before, after, runErr := r.refreshes(ctx, p, served, s, out)
	out.Wall = time.Since(begin)
	if out.Counts, err = t.stop(progressTime); err != nil || runErr != nil {
		return nil, errors.Join(runErr, err)
	}
	out.Growth = grown(before, after)
	c, err := p.during(func() error { return p.empty() })
	if err != nil {
		return nil, err
	}
	out.Control.Lost, out.Control.Leaked = c.lost(), c.leaked()
	return out, nil
}

// empty takes everything out of the sets that the rules ask, as somebody would
// who fills them again by two transactions.
func (p *place) empty() error {
	list, err := p.listObjects()
	if err != nil {
		return err
	}
	for _, o := range list {
		if (o.kind == "set" || o.kind == "map") && !o.changing() {
			if _, err := p.host.Run("nft", "flush", o.kind, "inet", "sluice", o.Name); err != nil {
				return err
			}
		}
	}
	time.Sleep(settle)
	return nil
}

func (r *Run) refreshes(ctx context.Context, p *place, served *list, s refreshing, out *refreshed) (before, after footprint, err error) {
	for i := range s.refreshes {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		served.next()
		begin := time.Now()
		text, err := r.byHand(p.hand, p.hand.state, "refresh", "listed", "--json")
		if err != nil {
			return nil, nil, fmt.Errorf("refresh %d: %w", i+1, err)
		}
		out.Took.add(time.Since(begin))
		if err := out.check(text, i+2); err != nil {
			return nil, nil, fmt.Errorf("refresh %d: %w", i+1, err)
		}
		out.Refreshes++
		if i+1 == s.warm {
			if before, err = p.footprint(p.hand); err != nil {
				return nil, nil, err
			}
		}
		r.progress("refresh", i+1, s.refreshes)
		if i >= s.warm && r.enough() {
			break
		}
	}
	after, err = p.footprint(p.hand)
	return before, after, err
}

// check holds what the program said to what the server served.
func (out *refreshed) check(text string, generation int) error {
	var said struct {
		Generation int
		Unchanged  bool
		Stopped    bool
		Sets       []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	if said.Unchanged || said.Stopped || said.Generation != generation || len(said.Sets) == 0 {
		return fmt.Errorf("not refreshed to generation %d: %s", generation, text)
	}
	return nil
}

// byHand has the hand run a command of the program, inside its group.
func (r *Run) byHand(h *hand, state string, args ...string) (string, error) {
	a, err := h.do(order{Do: "run", Args: append([]string{r.Binary, "--state-dir", state}, args...)})
	return a.Text, err
}

// wrong is what must not be, in words.
func (out *refreshed) wrong() []string {
	w := out.Counts.wrong()
	for _, g := range out.Growth {
		if g.Grown {
			w = append(w, fmt.Sprintf("%s: grew from %d to %d", g.What, g.Before, g.After))
		}
	}
	if !out.bans && out.Control.Lost == 0 {
		w = append(w, "control: nothing was lost while the list was empty")
	}
	if out.Control.Leaked == 0 {
		w = append(w, "control: nothing leaked while the list was empty")
	}
	return w
}

func (out *refreshed) print(w io.Writer) {
	fmt.Fprintf(w, "  %d refreshes in %.0f s of a list of %d addresses, of which %d come and as many go each time; one takes %s\n",
		out.Refreshes, out.Wall.Seconds(), out.Addresses, out.Came, out.Took.mean().Round(time.Millisecond))
	out.Counts.print(w)
	printGrowth(w, out.Growth)
	fmt.Fprintf(w, "  control, while the list was empty: %d packets lost, %d leaked\n", out.Control.Lost, out.Control.Leaked)
}

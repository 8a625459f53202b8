package nfset_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/nfset"
	"sluice/internal/system/kernel/nft"
)

func host(t *testing.T) *testnet.Namespace {
	t.Helper()
	testnet.Require(t, testnet.Nftables)
	s := testnet.New(t).Unnamed("host")
	s.Nft("add table inet t; add chain inet t there; add chain inet t other")
	return s
}

// on runs f with a socket inside the namespace.
func on(t *testing.T, s *testnet.Namespace, f func(ctx context.Context, c *nfset.Conn) error) error {
	t.Helper()
	return s.Do(func() error {
		c, err := nfset.Open()
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return f(t.Context(), c)
	})
}

// dump reads a set, sorted by key.
func dump(ctx context.Context, c *nfset.Conn, set nfset.Set) (out []nfset.Element, err error) {
	err = c.Dump(ctx, set, func() { out = nil }, func(e nfset.Element) error {
		e.Key, e.End = bytes.Clone(e.Key), bytes.Clone(e.End)
		out = append(out, e)
		return nil
	})
	slices.SortFunc(out, func(a, b nfset.Element) int { return bytes.Compare(a.Key, b.Key) })
	return out, err
}

func addr(s string) []byte { return netip.MustParseAddr(s).AsSlice() }

func part(s string) []byte { // of a concatenation
	out := []byte(s)
	return append(out, make([]byte, -len(out)&3)...)
}

func device(s string) []byte { return append([]byte(s), make([]byte, 16-len(s))...) }

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

// fill is a set in nft's words and the same for Add.
type fill struct {
	name       string
	kind       nfset.Kind
	what       string // set or map
	definition string
	elements   string // for nft
	add        []nfset.Element
}

func fills() []fill {
	accept, drop := nfset.Verdict{Does: nfset.Accept}, nfset.Verdict{Does: nfset.Drop}
	return []fill{
		{"exact4", nfset.Exact, "set", "type ipv4_addr;", "0.0.0.0, 192.0.2.1, 255.255.255.255", []nfset.Element{{Key: addr("0.0.0.0")}, {Key: addr("192.0.2.1")}, {Key: addr("255.255.255.255")}}},
		{"fixed4", nfset.Exact, "set", "type ipv4_addr; size 3;", "0.0.0.0, 192.0.2.1, 255.255.255.255", []nfset.Element{{Key: addr("0.0.0.0")}, {Key: addr("192.0.2.1")}, {Key: addr("255.255.255.255")}}},
		{"exact6", nfset.Exact, "set", "type ipv6_addr;", "::, 2001:db8::1, ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", []nfset.Element{{Key: addr("::")}, {Key: addr("2001:db8::1")}, {Key: addr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")}}},
		{
			"range4", nfset.Interval, "set", "type ipv4_addr; flags interval;",
			"0.0.0.0/8, 10.0.0.0, 192.0.2.4-192.0.2.5, 192.0.2.6, 255.255.255.0/24",
			[]nfset.Element{{Key: addr("0.0.0.0"), End: addr("0.255.255.255")}, {Key: addr("10.0.0.0"), End: addr("10.0.0.0")}, {Key: addr("192.0.2.4"), End: addr("192.0.2.5")}, {Key: addr("192.0.2.6"), End: addr("192.0.2.6")}, {Key: addr("255.255.255.0"), End: addr("255.255.255.255")}},
		},
		{"all4", nfset.Interval, "set", "type ipv4_addr; flags interval;", "0.0.0.0/0", []nfset.Element{{Key: addr("0.0.0.0"), End: addr("255.255.255.255")}}},
		{"first4", nfset.Interval, "set", "type ipv4_addr; flags interval;", "0.0.0.0", []nfset.Element{{Key: addr("0.0.0.0"), End: addr("0.0.0.0")}}},
		{"last4", nfset.Interval, "set", "type ipv4_addr; flags interval;", "255.255.255.255", []nfset.Element{{Key: addr("255.255.255.255"), End: addr("255.255.255.255")}}},
		{
			"range6", nfset.Interval, "set", "type ipv6_addr; flags interval;", "::, 2001:db8::/32, ffff:ffff:ffff:ffff::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
			[]nfset.Element{{Key: addr("::"), End: addr("::")}, {Key: addr("2001:db8::"), End: addr("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff")}, {Key: addr("ffff:ffff:ffff:ffff::"), End: addr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")}},
		},
		{"all6", nfset.Interval, "set", "type ipv6_addr; flags interval;", "::/0", []nfset.Element{{Key: addr("::"), End: addr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")}}},
		{"port", nfset.Exact, "set", "type inet_service;", "22, 80", []nfset.Element{{Key: []byte{0, 22}}, {Key: []byte{0, 80}}}},
		{
			"tuple", nfset.Exact, "set", "type ipv4_addr . inet_proto . inet_service . ifname;", `192.0.2.1 . tcp . 80 . "eth0"`,
			[]nfset.Element{{Key: join(addr("192.0.2.1"), part("\x06"), part("\x00\x50"), device("eth0"))}},
		},
		{
			"ranges", nfset.Concatenated, "set", "type ipv4_addr . inet_service; flags interval;", "192.0.2.0/24 . 80-90, 198.51.100.1 . 22",
			[]nfset.Element{{Key: join(addr("192.0.2.0"), part("\x00\x50")), End: join(addr("192.0.2.255"), part("\x00\x5a"))}, {Key: join(addr("198.51.100.1"), part("\x00\x16")), End: join(addr("198.51.100.1"), part("\x00\x16"))}},
		},
		{
			"ranges6", nfset.Concatenated, "set", "type ipv6_addr . inet_service; flags interval;", "2001:db8::/32 . 0-65535",
			[]nfset.Element{{Key: join(addr("2001:db8::"), part("\x00\x00")), End: join(addr("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"), part("\xff\xff"))}},
		},
		{
			"verdicts", nfset.Exact, "map", "type inet_service : verdict;", "22 : accept, 23 : drop, 80 : goto there, 81 : jump other, 82 : continue, 83 : return",
			[]nfset.Element{{Key: []byte{0, 22}, Verdict: accept}, {Key: []byte{0, 23}, Verdict: drop}, {Key: []byte{0, 80}, Verdict: nfset.Verdict{Does: nfset.Goto, Chain: "there"}}, {Key: []byte{0, 81}, Verdict: nfset.Verdict{Does: nfset.Jump, Chain: "other"}}, {Key: []byte{0, 82}, Verdict: nfset.Verdict{Does: nfset.Continue}}, {Key: []byte{0, 83}, Verdict: nfset.Verdict{Does: nfset.Return}}},
		},
		{
			"blocks", nfset.Interval, "map", "type ipv4_addr : verdict; flags interval;", "10.0.0.0/8 : drop, 11.0.0.0/8 : jump there, 224.0.0.0-255.255.255.255 : accept",
			[]nfset.Element{{Key: addr("10.0.0.0"), End: addr("10.255.255.255"), Verdict: drop}, {Key: addr("11.0.0.0"), End: addr("11.255.255.255"), Verdict: nfset.Verdict{Does: nfset.Jump, Chain: "there"}}, {Key: addr("224.0.0.0"), End: addr("255.255.255.255"), Verdict: accept}},
		},
		{
			"counted", nfset.Interval, "set", "type ipv4_addr; flags interval; counter;", "192.0.2.0/24 counter packets 5 bytes 600, 198.51.100.0-255.255.255.255",
			[]nfset.Element{{Key: addr("192.0.2.0"), End: addr("192.0.2.255"), Counted: true, Packets: 5, Bytes: 600}, {Key: addr("198.51.100.0"), End: addr("255.255.255.255"), Counted: true}},
		},
		{
			"exactcounted", nfset.Exact, "set", "type ipv6_addr; counter;", "2001:db8::1 counter packets 7 bytes 1234567890123, 2001:db8::2",
			[]nfset.Element{{Key: addr("2001:db8::1"), Counted: true, Packets: 7, Bytes: 1234567890123}, {Key: addr("2001:db8::2"), Counted: true}},
		},
		{
			"said", nfset.Interval, "set", "type ipv4_addr; flags interval;", `192.0.2.0/24 comment "why", 198.51.100.0-255.255.255.255 comment "open"`,
			[]nfset.Element{{Key: addr("192.0.2.0"), End: addr("192.0.2.255"), Comment: "why"}, {Key: addr("198.51.100.0"), End: addr("255.255.255.255"), Comment: "open"}},
		},
		{
			"timed", nfset.Exact, "set", "type ipv4_addr; flags timeout; timeout 1h;", `192.0.2.1, 192.0.2.2 timeout 2d, 192.0.2.3 timeout 600s expires 300s comment "half"`,
			[]nfset.Element{{Key: addr("192.0.2.1"), Expires: time.Hour}, {Key: addr("192.0.2.2"), Timeout: 48 * time.Hour}, {Key: addr("192.0.2.3"), Timeout: 10 * time.Minute, Expires: 5 * time.Minute, Comment: "half"}},
		},
	}
}

// TestAdd: what Add writes and what nft writes is the same to nft, and Dump
// gives what was added.
func TestAdd(t *testing.T) {
	s := host(t)
	for _, f := range fills() {
		t.Run(f.name, func(t *testing.T) {
			s.Nft(fmt.Sprintf("add %[1]s inet t %[2]s_want { %[3]s }; add %[1]s inet t %[2]s_have { %[3]s }", f.what, f.name, f.definition))
			s.Nft(fmt.Sprintf("add element inet t %s_want { %s }", f.name, f.elements))
			set := nfset.Set{Table: "t", Name: f.name + "_have", Kind: f.kind}
			err := on(t, s, func(ctx context.Context, c *nfset.Conn) error {
				if err := c.Add(ctx, set, slices.Values(f.add)); err != nil {
					return err
				}
				got, err := dump(ctx, c, set)
				compareElements(t, "read", f.add, got)
				if err != nil {
					return err
				}
				other := set
				other.Name = f.name + "_want"
				got, err = dump(ctx, c, other)
				compareElements(t, "read of what nft wrote", f.add, got)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			want, have := listed(t, s, f.what, f.name+"_want"), listed(t, s, f.what, f.name+"_have")
			if diff := gocmp.Diff(want, have); diff != "" {
				t.Errorf("nft lists (-its own, +Add's):\n%s", diff)
			}
			err = on(t, s, func(ctx context.Context, c *nfset.Conn) error {
				// All but the first go, one by one and together.
				if err := c.Delete(ctx, set, slices.Values(f.add[1:])); err != nil {
					return err
				}
				got, err := dump(ctx, c, set)
				compareElements(t, "after deleting", f.add[:1], got)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// compareElements compares except for the time that went by.
func compareElements(t *testing.T, what string, want, have []nfset.Element) {
	t.Helper()
	text := func(list []nfset.Element) []string {
		var out []string
		for _, e := range list {
			if e.End != nil && bytes.Equal(e.Key, e.End) {
				e.End = nil
			}
			if e.Forever = e.Timeout+e.Expires == 0; !e.Forever {
				left := cmp.Or(e.Expires, e.Timeout)
				e.Expires = left.Round(time.Minute)
			}
			out = append(out, fmt.Sprintf("%+v", e))
		}
		return out
	}
	if diff := gocmp.Diff(text(want), text(have)); diff != "" {
		t.Errorf("%s (-want +have):\n%s", what, diff)
	}
}

// listed is the elements as nft's JSON has them.
func listed(t *testing.T, s *testnet.Namespace, what, name string) []string {
	t.Helper()
	text := s.MustRun("nft", "-n", "-j", "list", what, "inet", "t", name)
	var listing struct {
		Nftables []map[string]struct{ Elem []any }
	}
	if err := json.Unmarshal([]byte(text), &listing); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, object := range listing.Nftables {
		for _, e := range object[what].Elem {
			forget(e)
			line, _ := json.Marshal(e)
			out = append(out, string(line))
		}
	}
	slices.Sort(out)
	return out
}

func forget(v any) {
	switch v := v.(type) {
	case map[string]any:
		if left, is := v["expires"].(float64); is {
			v["expires"] = time.Duration(left * float64(time.Second)).Round(time.Minute).String()
		}
		for _, inner := range v {
			forget(inner)
		}
	case []any:
		for _, inner := range v {
			forget(inner)
		}
	}
}

// TestRefusals: every refusal says what it is, names set and element, and
// leaves the set as it was.
func TestRefusals(t *testing.T) {
	s := host(t)
	s.Nft(`add set inet t small { type ipv4_addr; size 2; }; add set inet t exact { type ipv4_addr; }; add element inet t exact { 192.0.2.1 };
add set inet t wide { type ipv4_addr; flags interval; }; add element inet t wide { 192.0.2.0/24 };
add map inet t verdicts { type inet_service : verdict; }; add map inet t ways { type inet_service : verdict; }; add element inet t ways { 22 : accept }`)
	ways := nfset.Set{Table: "t", Name: "ways"}
	exact := nfset.Set{Table: "t", Name: "exact"}
	wide := nfset.Set{Table: "t", Name: "wide", Kind: nfset.Interval}
	one := func(text string) nfset.Element { return nfset.Element{Key: addr(text)} }
	cases := []struct {
		name  string
		edit  nfset.Change
		cause error
		says  string
	}{
		{"full", nfset.Change{Set: nfset.Set{Table: "t", Name: "small"}, Add: seq(one("192.0.2.1"), one("192.0.2.2"), one("192.0.2.3"))}, nfset.ErrFull, "add to set t small element 192.0.2.3: the set is full"},
		{"another verdict", nfset.Change{Set: ways, Add: seq(nfset.Element{Key: []byte{0, 22}, Verdict: nfset.Verdict{Does: nfset.Drop}})}, nfset.ErrOverlap, "add to set t ways element 0x0016: "},
		{"overlap", nfset.Change{Set: wide, Add: seq(nfset.Element{Key: addr("192.0.2.128"), End: addr("192.0.3.0")})}, nfset.ErrOverlap, "set t wide element 192.0.2.128: "},
		{"no element", nfset.Change{Set: exact, Delete: seq(one("192.0.2.1"), one("192.0.2.2"))}, nfset.ErrNoElement, "delete from set t exact element 192.0.2.2: "},
		{"no set", nfset.Change{Set: nfset.Set{Table: "t", Name: "absent"}, Add: seq(one("192.0.2.1"))}, nfset.ErrNoSet, "add to set t absent: "},
		{"no table", nfset.Change{Set: nfset.Set{Table: "absent", Name: "absent"}, Delete: seq(one("192.0.2.1"))}, nfset.ErrNoSet, "delete from set absent absent: "},
		{
			"no chain",
			nfset.Change{Set: nfset.Set{Table: "t", Name: "verdicts", Format: func(k []byte) string { return fmt.Sprint("port ", int(k[0])<<8+int(k[1])) }}, Add: seq(nfset.Element{Key: []byte{0, 80}, Verdict: nfset.Verdict{Does: nfset.Goto, Chain: "nowhere"}})},
			nfset.ErrNoChain, "set t verdicts element port 80: ",
		},
		{"key too long", nfset.Change{Set: exact, Add: seq(nfset.Element{Key: make([]byte, 65)})}, nil, "a key has 1 to 64 bytes"},
		{"key of another size", nfset.Change{Set: exact, Add: seq(nfset.Element{Key: addr("2001:db8::1")})}, nil, "2001:db8::1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := s.MustRun("nft", "list", "ruleset")
			err := on(t, s, func(ctx context.Context, conn *nfset.Conn) error { return conn.Edit(ctx, c.edit) })
			if err == nil || !strings.Contains(err.Error(), c.says) || c.cause != nil && !errors.Is(err, c.cause) {
				t.Errorf("got %v", err)
			}
			if after := s.MustRun("nft", "list", "ruleset"); after != before {
				t.Errorf("it left\n%s", after)
			}
		})
	}
	err := on(t, s, func(ctx context.Context, conn *nfset.Conn) error {
		_, err := dump(ctx, conn, nfset.Set{Table: "t", Name: "absent"})
		if !errors.Is(err, nfset.ErrNoSet) {
			t.Errorf("reading a set that is not there gives %v", err)
		}
		// The socket is good for more.
		got, err := dump(ctx, conn, wide)
		if len(got) != 1 {
			t.Errorf("got %v", got)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDrop deletes what nobody uses, and nothing else.
func TestDrop(t *testing.T) {
	s := host(t)
	s.Nft("add set inet t free { type ipv4_addr; }; add element inet t free { 192.0.2.1 }; add set inet t used { type ipv4_addr; }; add rule inet t there ip saddr @used accept")
	err := on(t, s, func(ctx context.Context, c *nfset.Conn) error {
		if err := c.Drop(ctx, nfset.Set{Table: "t", Name: "used"}); !errors.Is(err, unix.EBUSY) {
			t.Errorf("a set that a rule uses: %v", err)
		}
		if err := c.Drop(ctx, nfset.Set{Table: "t", Name: "absent"}); !errors.Is(err, nfset.ErrNoSet) {
			t.Errorf("a set that is not there: %v", err)
		}
		return c.Drop(ctx, nfset.Set{Table: "t", Name: "free"})
	})
	if err != nil {
		t.Fatal(err)
	}
	if text := s.MustRun("nft", "list", "ruleset"); strings.Contains(text, "set free") || !strings.Contains(text, "set used") {
		t.Errorf("left:\n%s", text)
	}
}

func seq(e ...nfset.Element) func(func(nfset.Element) bool) { return slices.Values(e) }

// TestEdit: everything of one call happens at once, deleting first, and what
// stays keeps its counter.
func TestEdit(t *testing.T) {
	s := host(t)
	s.Nft(`add set inet t a { type ipv4_addr; counter; }; add set inet t b { type ipv4_addr; flags timeout; }
add element inet t a { 192.0.2.1 counter packets 3 bytes 4, 192.0.2.2 counter packets 5 bytes 6 }; add element inet t b { 192.0.2.1 timeout 1h }`)
	generation := func() (g uint32) {
		if err := s.Do(func() (err error) { g, err = nft.Generation(); return err }); err != nil {
			t.Fatal(err)
		}
		return g
	}
	a, b := nfset.Set{Table: "t", Name: "a"}, nfset.Set{Table: "t", Name: "b"}
	before := generation()
	err := on(t, s, func(ctx context.Context, c *nfset.Conn) error {
		if err := c.Edit(ctx,
			nfset.Change{Set: a, Delete: seq(nfset.Element{Key: addr("192.0.2.2")}), Add: seq(nfset.Element{Key: addr("192.0.2.1")}, nfset.Element{Key: addr("192.0.2.3")})},
			nfset.Change{Set: b, Delete: seq(nfset.Element{Key: addr("192.0.2.1")}), Add: seq(nfset.Element{Key: addr("192.0.2.1"), Timeout: 5 * time.Hour})},
		); err != nil {
			return err
		}
		got, err := dump(ctx, c, a)
		compareElements(t, "a", []nfset.Element{{Key: addr("192.0.2.1"), Counted: true, Packets: 3, Bytes: 4}, {Key: addr("192.0.2.3"), Counted: true}}, got)
		if err != nil {
			return err
		}
		got, err = dump(ctx, c, b)
		compareElements(t, "b", []nfset.Element{{Key: addr("192.0.2.1"), Timeout: 5 * time.Hour}}, got)
		if err != nil {
			return err
		}
		if e, found, err := c.Lookup(ctx, b, addr("192.0.2.1")); err != nil || !found || e.Timeout != 5*time.Hour {
			t.Errorf("looking up what is there: %+v %v %v", e, found, err)
		}
		if e, found, err := c.Lookup(ctx, b, addr("192.0.2.2")); err != nil || found {
			t.Errorf("looking up what is not there: %+v %v %v", e, found, err)
		}
		if _, _, err := c.Lookup(ctx, nfset.Set{Table: "t", Name: "absent"}, addr("192.0.2.2")); !errors.Is(err, nfset.ErrNoSet) {
			t.Errorf("looking up where nothing is: %v", err)
		}
		if err := c.Edit(ctx, nfset.Change{Set: a, Flush: true, Add: seq(nfset.Element{Key: addr("192.0.2.7")})}); err != nil {
			return err
		}
		got, err = dump(ctx, c, a)
		compareElements(t, "a emptied and filled", []nfset.Element{{Key: addr("192.0.2.7"), Counted: true}}, got)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if after := generation(); after != before+2 {
		t.Errorf("%d transactions, not 2", after-before)
	}
}

// TestCommitsThatChange: the kernel ignores a transaction that changes nothing, so it does
// not count.
func TestCommitsThatChange(t *testing.T) {
	s := host(t)
	s.Nft("add set inet t s { type ipv4_addr; }")
	set := nfset.Set{Table: "t", Name: "s", Kind: nfset.Exact}
	one := slices.Values([]nfset.Element{{Key: addr("192.0.2.1")}})
	for _, c := range []struct {
		what   string
		change nfset.Change
	}{
		{"flush of an empty set", nfset.Change{Flush: true}},
		{"add", nfset.Change{Add: one}},
		{"add of what is there", nfset.Change{Add: one}},
		{"flush and add", nfset.Change{Flush: true, Add: one}},
		{"delete and add", nfset.Change{Delete: one, Add: one}},
		{"flush", nfset.Change{Flush: true}},
	} {
		c.change.Set = set
		err := on(t, s, func(ctx context.Context, conn *nfset.Conn) error {
			before, err := nft.Generation()
			if err != nil {
				return err
			}
			commits := nft.Commits()
			if err := conn.Edit(ctx, c.change); err != nil {
				return err
			}
			after, err := nft.Generation()
			if made, counted := uint64(after-before), nft.Commits()-commits; made != counted {
				t.Errorf("%s: %d transactions, %d counted", c.what, made, counted)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

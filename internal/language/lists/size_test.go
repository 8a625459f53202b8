package lists

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/addrset"
)

func TestSized(t *testing.T) {
	var ninths strings.Builder // a /7 in pieces
	for i := range 4 {
		fmt.Fprintf(&ninths, " 20.%d.0.0/10 21.%d.0.0/10", i*64, i*64)
	}
	var hosts strings.Builder
	for i := range 20 {
		fmt.Fprintf(&hosts, " 198.51.100.%d", i*2)
	}
	for _, c := range []struct{ name, old, next, want string }{
		{"everything", "192.0.2.0/24", "0.0.0.0/1 128.0.0.0/1 ::/0", "contains all of 0.0.0.0/0"},
		{"all of IPv6", "0.0.0.0/0", "0.0.0.0/0 ::/0", "contains all of ::/0"},
		{"a /7", "192.0.2.0/24", "192.0.2.0/24 20.0.0.0/7", "contains all of 20.0.0.0/7"},
		{"a /7 in pieces", "192.0.2.0/24", "192.0.2.0/24" + ninths.String(), "contains all of 20.0.0.0/7"},
		{"a /8", "192.0.2.0/24", "192.0.2.0/24 20.0.0.0/8", "more than 10 times the IPv4 addresses"},
		{"a /8 beside a /9", "30.0.0.0/9", "30.0.0.0/9 20.0.0.0/8", ""},
		{"a /7 that was there", "20.0.0.0/7", "20.0.0.0/7 22.0.0.0/8", ""},
		{"a /9", "192.0.2.0/24", "192.0.2.0/24 20.0.0.0/9", ""},
		{"a /15 of IPv6", "2001:db8::/32", "2001:db8::/32 2a00::/15", "contains all of 2a00::/15"},
		{"two /16 of IPv6", "2001:db8::/32", "2001:db8::/32 2a00::/16 2a08::/16", "more than 10 times the IPv6 addresses"},
		{"a /16 of IPv6", "192.0.2.0/24", "192.0.2.0/24 2a00::/16", ""},
		{"what nobody sends from", "192.0.2.0/24", "192.0.2.0/24 224.0.0.0/3 4000::/2 8000::/1", ""},
		{"fewer", hosts.String(), "198.51.100.0", "5% of the IPv4 addresses"},
		{"fewer of a short list", "198.51.100.0 198.51.100.9", "198.51.100.0", ""},
	} {
		err := sized("list", addrset.MustParse(strings.Fields(c.old)...), addrset.MustParse(strings.Fields(c.next)...))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A list that grows beyond all measure is not taken, by an apply and by a
// refresh; forced, it is.
func TestListThatGrows(t *testing.T) {
	s := newServer(t, "192.0.2.0/24\n")
	var warned []string
	store := &Store{Dir: t.TempDir() + "/lists", Warn: func(err *StaleError) { warned = append(warned, err.Error()) }}
	if _, err := open(t, store, s.URL, time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	s.text = "0.0.0.0/1\n128.0.0.0/1\n::/0\n"
	got, err := open(t, store, s.URL, time.Nanosecond)
	if err != nil || got != "192.0.2.0/24\n" || len(warned) != 1 || !strings.Contains(warned[0], "using the copy of") {
		t.Fatalf("got %q, %v, warnings %q", got, err, warned)
	}
	staging := store.Stage()
	defer staging.Discard()
	var size *SizeError
	if _, err := staging.Fetch(context.Background(), s.URL, false); !errors.As(err, &size) {
		t.Fatalf("not refused: %v", err)
	}
	if state, err := staging.Fetch(context.Background(), s.URL, true); err != nil || state != Fetched {
		t.Fatalf("forced: %v, %v", state, err)
	}
}

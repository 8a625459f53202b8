package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

// A difference is found wherever it is: the newer program is the older one, and one
// thing that it says or writes is changed.
func TestFindsDifferences(t *testing.T) {
	dir := t.TempDir()
	program, err := testnet.Sluice(dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := texts("../../..")
	if err != nil || len(list) < 500 {
		t.Fatalf("%d texts: %v", len(list), err)
	}
	for i, c := range []struct{ name, script, want string }{
		{"nothing", `exec "$real" "$@"`, ""},
		{"exit status", `"$real" "$@"; n=$?; [ $n = 2 ] && exit 1; exit $n`, "exit status 2 before, 1 after"},
		{"a place", `"$real" "$@" | sed 's/"column": 1\([0-9]\)/"column": 2\1/'; exit ${PIPESTATUS[0]}`, `"column"`},
		{"an error's text", `"$real" "$@" 2> >(sed 's/unknown/unheard-of/' >&2)`, "standard error"},
		{"an element of a set", `"$real" "$@"; n=$?; for f in out/step-*; do [ ! -f $f ] || sed -i '0,/192\.0\.2\.[0-9]/s//192.0.2.3/' $f; done; exit $n`, "file step-"},
		{"a bug that it finds itself", `"$real" "$@"; n=$?; [ $1 != fmt ] || echo "  hint: this is a bug in Sluice, not in the policy" >&2; exit $n`, "calls it a bug"},
		{"a file less", `"$real" "$@"; n=$?; rm -f out/step-*switch.nft; exit $n`, "no longer written"},
	} {
		if testing.Short() && (c.want == "standard error" || c.want == `"column"`) {
			continue // these are found late
		}
		t.Run(c.name, func(t *testing.T) {
			after := filepath.Join(dir, fmt.Sprint("after", i))
			if err := os.WriteFile(after, []byte("#!/bin/bash\nreal="+program+"\n"+c.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			k, err := open("", program)
			if err != nil {
				t.Fatal(err)
			}
			w := &worker{options: options{before: program, after: after, out: io.Discard}, kept: k, texts: list, dirs: [2]string{t.TempDir(), t.TempDir()}}
			counted := &tally{}
			for number := range 60 {
				policy, err := w.newCase(t.Context(), 7, number)
				if err == nil {
					err = w.compare(t.Context(), counted, policy, fmt.Sprint(number), false)
				}
				if err != nil {
					t.Fatal(err)
				}
				if counted.found > 0 || c.want == "" && number == 10 {
					break
				}
			}
			switch {
			case c.want == "" && (counted.found > 0 || counted.good == 0 || counted.good == counted.done):
				t.Errorf("%s of equal programs: %s", counted, counted.last)
			case !strings.Contains(counted.last, c.want):
				t.Errorf("%s: %s", counted, counted.last)
			}
		})
	}
}

// What the newer program makes otherwise of a state is found: here of bans.
func TestFindsDifferencesOfStates(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, testnet.NftNAT)
	dir := t.TempDir()
	after := filepath.Join(dir, "after")
	program, err := testnet.Sluice(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ script, want string }{
		{`exec "$real" "$@"`, ""},
		{`[ $1 != unban ] || echo "switch rules (step 2 of 3)" >&2; exec "$real" "$@"`, ""}, // a slow change says where it is
		{`[ $1 != unban ] || shift 2; [ $1 != --state-dir ] || set -- status "$@"; exec "$real" "$@"`, "unban 192.0.2.9"},
		{`"$real" "$@"; n=$?; [ $1 != bans ] || nft delete element inet sluice ban.banned_v4_counted '{ 192.0.2.1 }' 2>/dev/null; exit $n`, "what is left"},
	} {
		if err := os.WriteFile(after, []byte("#!/bin/bash\nreal="+program+"\n"+c.script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		s := scenario{"bans", "apply one.yaml --no-confirm\nban 192.0.2.9", "status\nunban 192.0.2.9\nbans"}
		got, err := s.compare(t.Context(), options{before: program, after: after, out: io.Discard}, t.TempDir(), false)
		if err != nil || c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %v: %s", c.script, err, got)
		}
	}
}

func TestCasesRepeat(t *testing.T) {
	for seed := range uint64(200) {
		a, b := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 1))
		if one, two := mutated(a, hostPolicies["one.yaml"]), mutated(b, hostPolicies["one.yaml"]); one != two {
			t.Fatalf("seed %d gives two texts:\n%s\n%s", seed, one, two)
		}
	}
}

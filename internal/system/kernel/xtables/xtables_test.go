package xtables_test

import (
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/xtables"
)

// TestSum: a change of any table of either family is seen, what packets count is not, and
// the rules of another namespace are not.
func TestSum(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Program("iptables-legacy"), testnet.Program("ip6tables-legacy"), testnet.IPTablesLegacy("filter"), testnet.IPTablesLegacy("mangle"))
	net := testnet.New(t)
	host, other := net.Unnamed("host"), net.Unnamed("other")
	sum := func() (out uint64) {
		t.Helper()
		if err := host.Do(func() (err error) { out, err = xtables.Sum(); return err }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	last := sum()
	for _, c := range []struct {
		changes bool
		in      *testnet.Namespace
		args    []string
	}{
		{true, host, []string{"iptables-legacy", "-A", "INPUT", "-p", "tcp", "--dport", "81", "-j", "DROP"}},
		{true, host, []string{"ip6tables-legacy", "-t", "mangle", "-A", "FORWARD", "-m", "limit", "--limit", "3/s", "-j", "DROP"}},
		{true, host, []string{"iptables-legacy", "-R", "INPUT", "1", "-p", "tcp", "--dport", "82", "-j", "DROP"}},
		{false, other, []string{"iptables-legacy", "-A", "INPUT", "-j", "DROP"}},
		{true, host, []string{"iptables-legacy", "-A", "OUTPUT", "-o", "lo", "-j", "ACCEPT"}},
		{false, host, []string{"ip", "link", "set", "lo", "up"}},
		{false, host, []string{"bash", "-c", "echo counted > /dev/udp/127.0.0.1/9"}},
		{true, host, []string{"ip6tables-legacy", "-t", "mangle", "-F"}},
		{true, host, []string{"iptables-legacy", "-P", "FORWARD", "DROP"}},
	} {
		c.in.MustRun(c.args[0], c.args[1:]...)
		now := sum()
		if (now != last) != c.changes {
			t.Errorf("%v: changed %v, want %v", c.args, now != last, c.changes)
		}
		last = now
	}
}

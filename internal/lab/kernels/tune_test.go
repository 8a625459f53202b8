package kernels

import (
	"strings"
	"testing"
)

// tuneScript is what happens to settings of a whole machine. A line "did: ..." says what was
// seen; it ends at the first thing that was not.
const tuneScript = `
at() { cat /proc/sys/net/netfilter/nf_conntrack_max /proc/sys/net/netfilter/nf_conntrack_buckets | tr '\n' ' '; }
waited() { for i in $(seq 600); do "$@" && return; sleep 0.1; done; echo "never: $*"; return 1; }
is() { [ "$(at)" = "$1" ]; }
run() {
    mkdir -p /etc/sysctl.d /etc/modprobe.d
    echo '# mine' >/etc/modprobe.d/sluice.conf
    nft -f - <<'RULES' || return
table inet t { chain c { type filter hook input priority 0; ct state new accept; }; }
RULES
    was=$(at)
    sluice conntrack tune apply --max 131072 --persist --yes || return
    is "131072 131072 " || return
    grep -q '^net.netfilter.nf_conntrack_max = 131072$' /etc/sysctl.d/60-sluice.conf || return
    grep -q '^options nf_conntrack hashsize=131072$' /etc/modprobe.d/sluice.conf || return
    grep -q '^nf_conntrack$' /etc/modules-load.d/sluice.conf || return
    echo "did: set"
    sluice conntrack tune revert && is "$was" && grep -q '# mine' /etc/modprobe.d/sluice.conf || return
    [ ! -e /etc/sysctl.d/60-sluice.conf ] && [ ! -e /etc/modules-load.d/sluice.conf ] || return
    echo "did: revert"
    sluice conntrack tune apply --max 131072 --yes --confirm 2s || return
    waited is "$was" || return
    ! sluice confirm || return
    echo "did: go back"
    for i in 1 2 3 4 5 6 7 8; do
        sluice conntrack tune apply --max 131072 --yes --persist &
        sleep $((1 + i / 4)).$((i % 4 * 25)); kill -9 $!; wait $!
        sluice conntrack tune revert && is "$was" && [ ! -e /etc/sysctl.d/60-sluice.conf ] || return
    done
    echo "did: kill"
    echo 65536 >/proc/sys/net/netfilter/nf_conntrack_max
    was=$(at)
    sluice doctor --fix table-size --expect 300/s --watch 1s --yes --confirm 1h || return
    is "131072 131072 " && sluice confirm && is "131072 131072 " || return
    sluice doctor --undo table-size && is "$was" || return
    echo "did: fix"
    echo 2048 >/proc/sys/net/netfilter/nf_conntrack_max
    echo 1024 >/proc/sys/net/netfilter/nf_conntrack_buckets
    echo 600 >/proc/sys/net/netfilter/nf_conntrack_udp_timeout
    ip link set lo up
    for i in $(seq 2100); do exec 3<>/dev/udp/127.0.0.1/$i && echo x >&3; done 2>/dev/null
    sluice conntrack count
    sluice doctor --fix table-full --watch 1s --yes --no-confirm || return
    sluice doctor --watch 1s | grep 'table-full' && return
    sluice conntrack tune | grep 'nothing to change' || return
    ! sluice conntrack tune apply --max 1024 --yes || return
    echo "did: full"
}
run
`

// TestBootTune: the size of the connection table, which is the machine's, is set, kept for the
// next boot, taken back by hand, by time and behind a kill, and fixes what the doctor found.
func TestBootTune(t *testing.T) {
	out := booted(t, tuneScript)
	for _, did := range []string{"set", "revert", "go back", "kill", "fix", "full"} {
		if !strings.Contains(out, "did: "+did+"\n") {
			t.Fatalf("it did not %s\n%s", did, out)
		}
	}
}

package kernels

import (
	"os"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

// agentScript is what happens to an agent that systemd runs. A line "did: ..." says what
// was seen; it ends at the first thing that was not.
const agentScript = `
waited() { for i in $(seq 60); do "$@" >/dev/null 2>&1 && return; sleep 1; done; echo "never: $*"; systemctl --no-pager status sluice-agent; return 1; }
served() { curl -sf --unix-socket /run/sluice/agent.sock http://sluice/v1; }
asked() { nft list ruleset | grep -q "iif.*\"$1\".*9000"; }
other() { [ "$(systemctl show -P MainPID sluice-agent)" != "$1" ] && [ "$(systemctl show -P MainPID sluice-agent)" != 0 ] && served; }
run() {
    waited systemctl -q is-active sluice-agent && waited served || return
    echo "did: start"
    sluice ban 198.51.100.7 -m why && sluice bans | grep 198.51.100.7 && sluice verify || return
    echo "did: work"
    asked eth0 || return
    ip route replace default via 192.0.2.18 && ip -6 route replace default via 2001:db8:1::2 && waited asked eth1 || return
    echo "did: follow"
    was=$(systemctl show -P MainPID sluice-agent)
    kill -9 $was && waited other $was && sluice bans | grep 198.51.100.7 && asked eth1 || return
    echo "did: return"
    modules=$(wc -l </proc/modules)
    home=~root/policies
    mkdir -p $home && cat >$home/more.yaml <<'POLICY'
version: 1
zones: { wan: { interfaces: [default-route] } }
input: { default: drop log "in", rules: [allow ssh limit 6/30s per source then ban 10m, reject tcp/113] }
forward: { default: drop, rules: [clamp mss from 10.9.0.0/16 to wan, allow any from 10.9.0.0/16] }
nat: [masquerade from 10.9.0.0/16 out wan, redirect tcp/8080 in wan to 10.9.0.2:80]
POLICY
    curl -sS --unix-socket /run/sluice/agent.sock 'http://sluice/v1/namespaces/-/apply?reason=boot' \
        --json '{"policy":{"file":"more.yaml","directory":"'$home'"},"building":{},"options":{"keep":true}}' && sluice verify || return
    [ "$(wc -l </proc/modules)" -gt "$modules" ] && sluice history | grep boot || return
    echo "did: apply"
    mkdir -p /srv/list && echo 198.51.100.99 >/srv/list/list.txt && busybox httpd -p 127.0.0.1:8000 -h /srv/list
    grep -q sluice-fetch /etc/passwd || echo 'sluice-fetch:x:4200:4200::/:/bin/false' >>/etc/passwd
    printf 'version: 1\nsets: { bad: { url: "http://127.0.0.1:8000/list.txt" } }\ninput: { default: drop, rules: [allow ssh, drop udp from bad] }\n' >$home/list.yaml
    curl -sS --unix-socket /run/sluice/agent.sock http://sluice/v1/namespaces/-/apply -H 'Accept: application/x-ndjson' \
        --json '{"policy":{"file":"list.yaml","directory":"'$home'"},"building":{},"options":{"keep":true}}' >/run/applied
    cat /run/applied && ! grep warning /run/applied && nft list ruleset | grep 198.51.100.99 || return
    echo "did: fetch"
    mkdir -p /etc/sluice && cat >/etc/sluice/agent.yaml <<'FILE'
version: 1
namespaces: [other]
drift: restore
alerts: { command: [/bin/sh, -c, "env >/run/sluice/alerted.$SLUICE_EVENT"] }
FILE
    systemctl restart sluice-agent && waited served || return
    # As ip-netns(8) makes one.
    mkdir -p /run/netns && mount --bind /run/netns /run/netns && mount --make-shared /run/netns && : >/run/netns/other &&
        unshare -n mount --bind /proc/self/ns/net /run/netns/other
    waited sh -c 'curl -s --unix-socket /run/sluice/agent.sock http://sluice/v1 | grep other' || return
    echo "did: enter"
    nft flush ruleset && waited sluice verify && waited test -s /run/sluice/alerted.restored || return
    grep SLUICE_KIND=gone /run/sluice/alerted.drift && grep SLUICE_GENERATION=3 /run/sluice/alerted.restored || return
    echo "did: alert"
    mkdir -p /run/systemd/system/sluice-agent.service.d
    printf '[Service]\nWatchdogSec=3s\n' >/run/systemd/system/sluice-agent.service.d/watchdog.conf
    systemctl daemon-reload && systemctl restart sluice-agent && waited served || return
    was=$(systemctl show -P MainPID sluice-agent)
    kill -STOP $was && waited other $was || return
    echo "did: watchdog"
    systemctl start sluice-sync && ! systemctl -q is-active sluice-agent && sluice verify || return
    [ "$(systemctl show -P Result sluice-agent)" = success ] || return
    echo "did: give way"
}
run
`

// The unit starts, works within its sandbox, and comes back.
func TestSystemdAgent(t *testing.T) {
	version := os.Getenv("SLUICE_TEST_SYSTEMD")
	if version == "" {
		t.Skip("asked for by SLUICE_TEST_SYSTEMD=6.1: it boots twice")
	}
	testnet.Require(t, testnet.Program("qemu-system-x86_64"), testnet.Program("busybox"), testnet.Program("systemctl"), testnet.Program("curl"))
	binary, err := testnet.Sluice(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	upFirst := bootNetwork + "ip route add default via 192.0.2.2\nip -6 route add default via 2001:db8:0::2\n"
	out, _ := boot(t, version, binary, booting{
		state: applied(t, version, binary, facingPolicy, upFirst), network: upFirst,
		units: []string{"sluice.service", "sluice-agent.service", "sluice-sync.service"}, command: agentScript,
	})
	for _, did := range []string{"start", "work", "follow", "return", "apply", "fetch", "enter", "alert", "watchdog", "give way"} {
		if !strings.Contains(out, "did: "+did+"\n") {
			t.Fatalf("it did not %s\n%s", did, out)
		}
	}
}

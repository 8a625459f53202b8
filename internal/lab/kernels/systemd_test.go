package kernels

import (
	"bytes"
	"cmp"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

// What a guest with systemd is made of, beside Sluice and its units.
var (
	systemdPrograms = []string{
		"/lib/systemd/systemd", "/lib/systemd/systemd-journald", "/lib/systemd/systemd-modules-load", "/lib/systemd/systemd-sysctl",
		"/lib/systemd/systemd-executor", // from systemd 255 on
		"systemctl", "journalctl", "systemd-run", "curl",
	}
	systemdUnits = []string{
		"basic.target", "sysinit.target", "local-fs.target", "local-fs-pre.target", "network.target", "network-pre.target",
		"network-online.target", "multi-user.target", "shutdown.target", "umount.target", "final.target", "sockets.target",
		"timers.target", "paths.target", "slices.target", "swap.target", "rescue.target", "emergency.target", "-.slice", "system.slice",
		"systemd-journald.service", "systemd-journald.socket", "systemd-journald-dev-log.socket", "systemd-modules-load.service",
		"systemd-sysctl.service", "time-sync.target", "time-set.target",
	}
)

// The units of the test. The listener is there before anything brings a network up,
// and the network comes up as early as network-pre.target lets it.
var bootUnits = map[string]string{
	"early.socket": `[Unit]
DefaultDependencies=no
Before=sysinit.target
[Socket]
ListenStream=[::]:22
ListenStream=[::]:9000
BindIPv6Only=both
Accept=yes
`,
	"early@.service": "[Service]\nExecStart=/bin/true\n",
	"network.service": `[Unit]
DefaultDependencies=no
Wants=network-pre.target
After=network-pre.target
Before=network.target sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/bash /lab/network
`,
	"lab.service": "[Unit]\nAfter=network.target sluice.service sluice-sync.service early.socket\n[Service]\nType=oneshot\nTimeoutStartSec=infinity\nExecStart=/usr/bin/bash /lab/run\n",
	"prepare.service": `[Unit]
DefaultDependencies=no
Before=sluice.service network-pre.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/bash /lab/prepare
`,
}

const bootPolicy = `version: 1
zones:
  wan: { interfaces: [default-route] }
input:
  default: drop
  rules:
    - allow ssh
    - allow icmp echo-request
`

const facingPolicy = `version: 1
zones:
  wan: { interfaces: [default-route] }
input:
  default: allow
  rules:
    - drop tcp/9000 in wan
`

const bootNetwork = `
ip link set lo up
for i in 0 1; do
    ip link set eth$i up 2>/dev/null || continue
    ip address add 192.0.2.$((i * 16 + 1))/28 dev eth$i
    ip address add 2001:db8:$i::1/64 dev eth$i nodad
done
`

// bootEnds are the stranger's address and the guest's at device i.
func bootEnds(i byte) [][2]netip.Addr {
	return [][2]netip.Addr{
		{netip.AddrFrom4([4]byte{192, 0, 2, i*16 + 2}), netip.AddrFrom4([4]byte{192, 0, 2, i*16 + 1})},
		{netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, i, 15: 2}), netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, i, 15: 1})},
	}
}

// booting is one start of a guest with systemd.
type booting struct {
	state   string   // the directory of a confirmed policy, that the guest has as /var/lib/sluice
	units   []string // of Sluice, that are enabled
	prepare string   // shell lines before everything of Sluice
	network string   // shell lines that bring the network up
	onlyUp  bool     // what is answered before status finds all well does not count
	command string   // shell lines behind the boot; it ends with what the units said
}

// From power-on to the end no packet that the policy refuses is let in, whatever happened
// to the disk: a stranger on the wire asks all the time.
func TestSystemd(t *testing.T) {
	version := os.Getenv("SLUICE_TEST_SYSTEMD")
	if version == "" {
		t.Skip("asked for by SLUICE_TEST_SYSTEMD=6.1: it boots seven times")
	}
	testnet.Require(t, testnet.Program("qemu-system-x86_64"), testnet.Program("busybox"), testnet.Program("systemctl"))
	binary, err := testnet.Sluice(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	upFirst := bootNetwork + "ip route add default via 192.0.2.2\nip -6 route add default via 2001:db8:0::2\n"
	state := applied(t, version, binary, bootPolicy, upFirst)

	// Without Sluice the listener answers: the test can fail.
	_, answered := boot(t, version, binary, booting{state: state, network: upFirst})
	if answered[0][9000] == 0 || answered[0][22] == 0 {
		t.Fatalf("without rules, answers by port were %v: nothing would be seen", answered)
	}
	small := "cp -a /var/lib/sluice /tmp/state\nmount -t tmpfs -o size=16m,mode=700 tmpfs /var/lib/sluice\ncp -a /tmp/state/. /var/lib/sluice/\n"
	full := small + "cat /dev/zero >/var/lib/sluice/ballast\n! echo x >/var/lib/sluice/probe\n"
	readOnly := small + "mount -o remount,ro /var/lib/sluice\n! echo x >/var/lib/sluice/probe\n"
	for name, b := range map[string]booting{
		"plain":                 {state: state, network: upFirst},
		"with a full disk":      {state: state, network: upFirst, prepare: full},
		"with a read-only disk": {state: state, network: upFirst, prepare: readOnly},
	} {
		t.Run(name, func(t *testing.T) {
			b.units = []string{"sluice.service"}
			out, answered := boot(t, version, binary, b)
			for i, by := range answered {
				if by[9000] != 0 {
					t.Errorf("eth%d: %d packets came from a port that the policy refuses\n%s", i, by[9000], out)
				}
				if by[22] == 0 {
					t.Errorf("eth%d: no answer from a port that the policy allows\n%s", i, out)
				}
			}
		})
	}
	// What faces the network is the interface of the default route, which is another
	// one after the next start.
	facing := applied(t, version, binary, facingPolicy, upFirst)
	t.Run("with a moved default route", func(t *testing.T) {
		out, answered := boot(t, version, binary, booting{
			state: facing, network: bootNetwork + "ip route add default via 192.0.2.18\nip -6 route add default via 2001:db8:1::2\n",
			units: []string{"sluice.service", "sluice-sync.service"}, onlyUp: true,
		})
		if answered[1][9000] != 0 || answered[1][22] == 0 {
			t.Errorf("by the default route's interface of now, answers by port were %v\n%s", answered[1], out)
		}
		if answered[0][9000] == 0 {
			t.Errorf("by that of before, answers by port were %v\n%s", answered[0], out)
		}
	})
}

// applied gives the state directory of a host that has applied and confirmed a policy.
func applied(t *testing.T, version, binary, policy, network string) string {
	t.Helper()
	dir := t.TempDir()
	writeText(t, filepath.Join(dir, "policy.yaml"), policy)
	writeText(t, filepath.Join(dir, "network"), network)
	state := filepath.Join(dir, "state")
	var out bytes.Buffer
	first, second := newStranger(t, 0, bootEnds(0)), newStranger(t, 1, bootEnds(1))
	err := Run(t.Context(), Options{
		Kernel: version, Cache: filepath.Join("..", "..", "..", ".cache", "kernels"), Binary: binary, Out: &out, Networks: []string{first.socket, second.socket},
		Files:   map[string]string{"/etc/sluice/policy.yaml": filepath.Join(dir, "policy.yaml"), "/lab/network": filepath.Join(dir, "network")},
		Command: "bash /lab/network && sluice apply /etc/sluice/policy.yaml && sluice confirm; sluice status", Results: map[string]string{"/var/lib/sluice": state},
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return state
}

// boot starts a guest with systemd, and gives what it said and how many packets
// strangers at its two devices got from each port.
func boot(t *testing.T, version, binary string, b booting) (said string, answered [2]map[uint16]int) {
	t.Helper()
	dir := t.TempDir()
	units := filepath.Join(dir, "units")
	enabled := append([]string{"early.socket", "network.service", "prepare.service"}, b.units...)
	for name, text := range bootUnits {
		writeText(t, filepath.Join(units, name), text)
	}
	for _, name := range b.units {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "packaging", "systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		writeText(t, filepath.Join(units, name), string(text))
	}
	for _, name := range enabled {
		text, err := os.ReadFile(filepath.Join(units, name))
		if err != nil {
			t.Fatal(err)
		}
		target := "sysinit.target"
		if strings.Contains(string(text), "WantedBy=multi-user.target") {
			target = "multi-user.target"
		}
		link(t, filepath.Join(units, target+".wants", name), "../"+name)
	}
	link(t, filepath.Join(units, "multi-user.target.wants", "lab.service"), "../lab.service")
	link(t, filepath.Join(units, "default.target"), "/usr/lib/systemd/system/multi-user.target")
	writeText(t, filepath.Join(dir, "network"), b.network)
	writeText(t, filepath.Join(dir, "prepare"), ":\n"+b.prepare)
	files := map[string]string{
		"/etc/systemd/system": units, "/lab/network": filepath.Join(dir, "network"), "/lab/prepare": filepath.Join(dir, "prepare"),
		"/var/lib/sluice": b.state, "/usr/sbin/sluice": binary,
	}
	for _, name := range systemdUnits {
		if file := filepath.Join("/usr/lib/systemd/system", name); exists(file) {
			files[file] = file
		} else if file := filepath.Join("/lib/systemd/system", name); exists(file) {
			files[filepath.Join("/usr/lib/systemd/system", name)] = file
		}
	}
	var programs []string
	for _, name := range systemdPrograms {
		if file := find(name); file != "" && exists(file) {
			programs = append(programs, file)
		}
	}
	strangers := []*stranger{newStranger(t, 0, bootEnds(0), 22, 9000), newStranger(t, 1, bootEnds(1), 22, 9000)}
	journal := filepath.Join(dir, "journal")
	out := &upOutput{up: func() {
		for _, s := range strangers {
			if b.onlyUp {
				s.forget()
			}
		}
	}}
	err := Run(t.Context(), Options{
		Kernel: version, Cache: filepath.Join("..", "..", "..", ".cache", "kernels"), Binary: binary, Init: "/usr/lib/systemd/systemd",
		Programs: programs, Files: files, Out: out, Networks: []string{strangers[0].socket, strangers[1].socket},
		// Some more packets after the boot, and what the units said.
		Command: "for i in $(seq 20); do sluice status >/dev/null && break; sleep 1; done; echo " + up + "; " + strings.TrimSpace(cmp.Or(b.command, "sleep 5")) +
			"; systemctl --no-pager --failed; sluice status; nft list ruleset; journalctl -b --no-pager >/tmp/journal",
		Results: map[string]string{"/tmp/journal": journal},
	})
	var ended *ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text, _ := os.ReadFile(journal)
	for i, s := range strangers {
		var asked int
		if asked, answered[i] = s.heard(); asked == 0 {
			t.Fatalf("nobody asked\n%s", out.String())
		}
	}
	return out.String() + "\n" + string(text), answered
}

// up is what the guest says when it has started all and status finds it well.
const up = "the guest is up"

// upOutput is what a guest says, and calls up when it is.
type upOutput struct {
	text bytes.Buffer // not embedded: its ReadFrom would be taken instead of Write
	up   func()
}

func (o *upOutput) Write(p []byte) (int, error) {
	before := bytes.Contains(o.text.Bytes(), []byte(up))
	n, err := o.text.Write(p)
	if !before && bytes.Contains(o.text.Bytes(), []byte(up)) {
		o.up()
	}
	return n, err
}

func (o *upOutput) String() string { return o.text.String() }

func writeText(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(strings.TrimLeft(text, "\n")), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, name, target string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(target, name)); err != nil {
		t.Fatal(err)
	}
}

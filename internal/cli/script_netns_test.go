package cli

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"sluice/internal/lab/testnet"
)

// clients are the namespaces from which connects tries, and hosts those that it
// tries, by work directory.
var clients, hosts sync.Map

// scriptCondition asks for a feature of the machine.
func scriptCondition(name string) (bool, error) {
	feature, known := map[string]testnet.Feature{
		"namespaces": testnet.Namespaces, "flowtables": testnet.Flowtable,
		"prometheus": testnet.Program("prometheus"), "promtool": testnet.Program("promtool"), "script": testnet.Program("script"), "cloud-init": testnet.Program("cloud-init"), "puppet": testnet.Program("puppet"), "ansible": testnet.Program("ansible-playbook"), "sshd": testnet.Program("/usr/sbin/sshd"), "crowdsec": testnet.Program("crowdsec"), "fail2ban": testnet.Program("fail2ban-server"),
		"vrf": testnet.VRF, "wireguard": testnet.WireGuard,
	}[name]
	if !known {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	err := feature.Ask()
	if err == nil {
		return true, nil
	}
	mayLack := slices.Contains(strings.Split(os.Getenv("SLUICE_TEST_MAY_LACK"), ","), feature.Name)
	if os.Getenv("CI") == "true" && !mayLack {
		return false, fmt.Errorf("this machine lacks %s: %w", feature.Name, err)
	}
	return false, nil
}

// scriptNetns makes two network namespaces. The host, $NETNS, has the addresses
// 10.0.0.1 and 2001:db8::1 on eth0 and listens on tcp/22, 80 and 7000; the
// client, $CLIENT, has 10.0.0.2 and 2001:db8::2.
func scriptNetns(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: netns")
	}
	net, err := testnet.Create("script")
	ts.Check(err)
	ts.Defer(func() { ts.Check(net.Close()) })
	ts.Check(net.Try(func() {
		host, client := net.Namespace("host"), net.Namespace("client")
		net.Join(
			testnet.End{In: host, Device: "eth0", Addresses: []string{"10.0.0.1/24", "2001:db8::1/64"}},
			testnet.End{In: client, Device: "eth0", Addresses: []string{"10.0.0.2/24", "2001:db8::2/64"}},
		)
		for _, port := range []string{"22", "80", "7000"} {
			host.ServeTCP("10.0.0.1:"+port, "[2001:db8::1]:"+port)
		}
		// ip-netns(8) has a namespace's own files there, which a script may make.
		ts.Defer(func() { ts.Check(os.RemoveAll(filepath.Join("/etc/netns", host.Name()))) })
		ts.Setenv("NETNS", host.Name())
		ts.Setenv("CLIENT", client.Name())
		clients.Store(ts.Getenv("WORK"), client)
		hosts.Store(ts.Getenv("WORK"), host)
	}))
	if ts.Getenv(agentVariable) != "" && ts.Getenv("SLUICE_SOCKET") == "" { // a second host has none
		startAgent(ts)
	}
}

// agentVariable has netns start an agent in the host, which commands then ask.
const agentVariable = "SLUICE_TEST_BY_AGENT"

func startAgent(ts *testscript.TestScript) {
	dir, err := os.MkdirTemp("", "agent") // the name of a socket is short
	ts.Check(err)
	ts.Defer(func() { ts.Check(os.RemoveAll(dir)) })
	socket := filepath.Join(dir, "s")
	var told bytes.Buffer
	agent := exec.Command("sluice", "agent", "--netns", ts.Getenv("NETNS"), "--state-dir", ts.Getenv("SLUICE_STATE_DIR"), "--socket", socket)
	agent.Dir = ts.Getenv("WORK")
	agent.Stdout, agent.Stderr = &told, &told
	ts.Check(agent.Start())
	ts.Defer(func() {
		_ = agent.Process.Signal(os.Interrupt)
		err := agent.Wait()
		ts.Logf("[agent]\n%s", told.String())
		ts.Check(err)
	})
	for range 3000 {
		if _, err := os.Stat(socket); err == nil {
			ts.Setenv("SLUICE_SOCKET", socket)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	ts.Fatalf("the agent makes no socket: %s", told.String())
}

// scriptConnects tries a new connection; patience is short where it must fail,
// since the network is a cable of this machine.
func scriptConnects(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] connects ADDRESS:PORT")
	}
	to, err := netip.ParseAddrPort(args[0])
	ts.Check(err)
	client, made := clients.Load(ts.Getenv("WORK"))
	if !made {
		ts.Fatalf("connects needs netns first")
	}
	try := testnet.TCPTry{To: to, Patience: time.Minute}
	if neg {
		try.Patience = 500 * time.Millisecond
	}
	r := client.(*testnet.Namespace).TryTCP(try)
	if got := r.Outcome == testnet.Answered; got == neg {
		ts.Fatalf("connection to %s: %s", to, r)
	}
}

// scriptEventually waits for something that comes by itself, a minute at most.
func scriptEventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: eventually PROGRAM ARG...")
	}
	var err error
	for range 300 {
		if err = ts.Exec(args[0], args[1:]...); err == nil {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	ts.Fatalf("%s never succeeded: %v", filepath.Base(args[0]), err)
}

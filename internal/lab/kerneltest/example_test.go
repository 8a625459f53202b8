package kerneltest

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/language/geo"
)

// scratch holds the binary; it goes with the test process.
var scratch string

func TestMain(m *testing.M) {
	code := func() int {
		dir, err := os.MkdirTemp("", "sluice-kerneltest-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		scratch = dir
		return m.Run()
	}()
	os.Exit(code)
}

// built builds the real program once.
var built = sync.OnceValues(func() (string, error) { return testnet.Sluice(scratch) })

// example is a policy under examples/ on the host of a town, by the real
// binary.
type example struct {
	*town
	file, state, sluice string
}

// newBinary is a town whose host the real binary works on.
func newBinary(t *testing.T) *example {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return &example{town: newTown(t), state: t.TempDir(), sluice: path}
}

// write writes a policy to a file and returns its name.
func (e *example) write(t *testing.T, name, policy string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func newExample(t *testing.T, name string, furnish func(*town)) *example {
	t.Helper()
	e := newBinary(t)
	file, err := filepath.Abs(filepath.Join("..", "..", "..", "examples", name, "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	e.file = file
	if furnish != nil {
		furnish(e.town)
	}
	e.run(t, "check", e.file)
	first, second := e.run(t, "compile", e.file), e.run(t, "compile", e.file)
	if first == "" || first != second {
		t.Error("two compilations give different texts, or none")
	}
	e.run(t, "apply", e.file)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(first)
		}
		e.run(t, "remove", "--yes")
		if out := e.host.MustRun("nft", "list", "tables"); strings.Contains(out, "sluice") {
			t.Errorf("after remove there is still: %s", out)
		}
	})
	return e
}

// run runs one command of the binary against the host; it must succeed. Who
// runs the tests over ssh is no peer of the host.
func (e *example) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(e.sluice, append(args, "--netns", e.host.Name(), "--state-dir", e.state)...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SSH_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("sluice %s: %v\n%s%s", strings.Join(args, " "), err, &out, &problems)
	}
	return out.String()
}

// noDrift asks the program whether the kernel still holds what was meant.
func (e *example) noDrift(t *testing.T) {
	t.Helper()
	var exit *exec.ExitError
	cmd := exec.Command(e.sluice, "status", "--netns", e.host.Name(), "--state-dir", e.state)
	if out, err := cmd.CombinedOutput(); errors.As(err, &exit) {
		t.Errorf("status: exit status %d\n%s", exit.ExitCode(), out)
	}
}

func TestExampleWebServer(t *testing.T) {
	e := newExample(t, "web-server", func(c *town) { serve(c.host, "587", "993", "113") })
	e.try(t, `
		stranger > host tcp/80   = answered
		stranger > host tcp/443  = answered
		stranger > host udp/443  = answered
		stranger > host tcp/587  = answered
		stranger > host tcp/993  = answered
		stranger > host ping     = answered
		stranger > host tcp/113  = reset
		stranger > host tcp/5432 = silent
		stranger > host udp/53   = silent
		host > stranger udp/53   = answered
		host > stranger tcp/443  = answered
		host > stranger tcp/25   = answered
		office > host tcp/22 x9  = answered
	`, false)
	e.try(t, `
		stranger > host tcp/22 x7 = answered*6, silent
		stranger > host tcp/80    = silent
		villain > host tcp/80     = answered
	`, true)
	for _, v6 := range []bool{false, true} {
		if r := asNobody(e.host, testnet.TCPTry{To: at(place("office", v6), 25), Patience: enough}); r.Outcome != testnet.Reset {
			t.Errorf("mail by somebody who is not the mail server: %v", r)
		}
		for i := range 22 {
			want := i < 20
			r, conn := e.outside.OpenTCP(testnet.TCPTry{From: at(place("villain", v6), 0), To: at(place("host", v6), 993), Patience: patience(want)})
			if want != (conn != nil) {
				t.Errorf("IPv6 %t: connection %d of one mailbox: %v", v6, i+1, r)
			}
			if conn != nil {
				defer conn.Close()
			}
		}
	}
	e.noDrift(t)
}

// inCountry is the tenth address of the country's largest network of each
// family, by the data that come with Sluice.
func inCountry(t *testing.T, code string) (v4, v6 netip.Prefix) {
	t.Helper()
	db, err := geo.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	set, err := db.Countries(code)
	if err != nil {
		t.Fatal(err)
	}
	for p := range set.EachPrefix() {
		largest := &v6
		if p.Addr().Is4() {
			largest = &v4
		}
		if !largest.IsValid() || p.Bits() < largest.Bits() {
			*largest = p
		}
	}
	if !v4.IsValid() || !v6.IsValid() {
		t.Fatalf("no networks of %s", code)
	}
	return v4, v6
}

func TestExampleOnlyEurope(t *testing.T) {
	e := newExample(t, "only-europe", func(c *town) {
		for _, code := range []string{"DE", "NO", "US", "JP"} {
			v4, v6 := inCountry(t, code)
			c.outside.Own(v4.String(), v6.String())
			places[code] = struct{ v4, v6 string }{tenth(v4).String(), tenth(v6).String()}
		}
	})
	e.try(t, `
		DE > host tcp/80       = answered
		NO > host udp/443      = answered
		DE > host tcp/25       = answered
		NO > host ping         = answered
		DE > host tcp/22       = silent
		US > host tcp/80       = silent
		JP > host udp/443      = silent
		US > host tcp/25       = silent
		JP > host ping         = silent
		office > host tcp/22   = answered
		office > host tcp/80   = silent
		villain > host tcp/80  = silent
		host > US udp/53       = answered # the resolver of story 3
		host > JP tcp/443      = answered
		host > villain tcp/443 = silent
	`, false)
	untracked(80)(t, e.town)
	e.noDrift(t)
}

func tenth(p netip.Prefix) netip.Addr {
	a := p.Masked().Addr()
	for range 10 {
		a = a.Next()
	}
	return a
}

func TestExampleLoadBalancer(t *testing.T) {
	e := newExample(t, "load-balancer", func(c *town) {
		c.outside.Own("198.51.100.3/32", "2001:db8:100::3/128")
	})
	e.try(t, `
		stranger > host tcp/80   = answered
		stranger > host tcp/443  = answered
		stranger > second tcp/80 = answered
		stranger > host tcp/22   = silent
		stranger > host ping     = silent
		office > host tcp/22     = answered
		office > host ping       = answered
		villain > host tcp/80    = silent
		host > villain tcp/80    = silent
		host > stranger tcp/80   = answered
		host > office udp/53     = answered
	`, false)
	for _, v6 := range []bool{false, true} {
		delivered := e.host.Delivered(112, v6)
		for _, from := range []string{"stranger", "partner"} {
			mustSend(t, e.street, testnet.Protocol(place(from, v6), place("host", v6), 112, 1, 2, 3, 4))
		}
		if _, ok := delivered.Wait(enough, testnet.From(place("partner", v6))); !ok {
			t.Errorf("IPv6 %t: VRRP of the partner was dropped", v6)
		}
		if _, ok := delivered.Wait(short, testnet.From(place("stranger", v6))); ok {
			t.Errorf("IPv6 %t: VRRP of a stranger passed", v6)
		}
	}
	for _, entry := range entries(t, e.host) {
		for _, v6 := range []bool{false, true} {
			if openedTo(entry) == at(place("host", v6), 80) {
				t.Errorf("the service is tracked: %+v", entry)
			}
		}
	}

	text, err := os.ReadFile(filepath.Join(filepath.Dir(e.file), "banned.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var banned []netip.Addr
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if a, err := netip.ParseAddr(strings.TrimSpace(line)); err == nil {
			banned = append(banned, a)
		}
	}
	if len(banned) != 650 {
		t.Fatalf("%d bans in the file, want 650", len(banned))
	}
	delivered := e.host.Delivered(6, false)
	for _, a := range banned {
		mustSend(t, e.street, testnet.TCP(at(a, 6543), at(place("host", false), 80), "S"))
	}
	mustSend(t, e.street, testnet.TCP(at(place("stranger", false), 6543), at(place("host", false), 80), "S"))
	if _, ok := delivered.Wait(enough, testnet.From(place("stranger", false))); !ok {
		t.Error("the packet behind those of the banned was dropped")
	}
	if got, ok := delivered.Wait(short, func(s testnet.Seen) bool { return s.SourcePort == 6543 && s.Source != place("stranger", false) }); ok {
		t.Errorf("a banned address passed: %v", got)
	}
	rules := e.host.MustRun("nft", "list", "table", "inet", "sluice")
	for _, a := range banned {
		if _, rest, ok := strings.Cut(rules, " "+a.String()+" counter packets "); !ok || strings.HasPrefix(rest, "0 ") {
			t.Fatalf("%s has no counter, or it is zero", a)
		}
	}
	e.noDrift(t)
}

func TestExampleGateway(t *testing.T) {
	e := newExample(t, "gateway", func(c *town) {
		dmz := c.net.Unnamed("dmz")
		c.homes["dmz"], c.homes["dmz-db"] = dmz, dmz
		c.net.Join(
			testnet.End{In: c.host, Device: "dmz0", Addresses: []string{"10.20.1.1/28", "2001:db8:20:1::1/64"}},
			testnet.End{In: dmz, Device: "eth0", Addresses: []string{"10.20.1.5/28", "10.20.1.6/28", "2001:db8:20:1::6/64", "2001:db8:20:1::5/64"}},
		)
		dmz.Route("default4", "10.20.1.1")
		dmz.Route("default6", "2001:db8:20:1::1")
		c.outside.Route("198.51.100.16/28", "198.51.100.1")
		c.outside.Route("2001:db8:20:1::/64", "2001:db8:100::1")
		serve(dmz, openPorts...)
	})
	e.try(t, `
		inside > stranger tcp4/80     = answered as host
		inside > stranger tcp6/80     = answered as inside
		inside > stranger udp/9000    = answered
		inside > stranger ping        = answered
		elsewhere > stranger tcp/80   = silent
		inside > dmz tcp/22           = answered as inside
		inside > gateway udp/53       = answered
		inside > gateway tcp/22       = answered
		office > host tcp/22          = answered
		stranger > host udp/53        = silent
		stranger > host tcp/22        = silent
		stranger > host ping          = answered
		stranger > inside tcp/80      = silent
		stranger > dmz tcp/80         = answered as stranger
		stranger > dmz tcp/22         = silent
		stranger > dmz ping           = answered
		stranger > host tcp4/80       = answered as stranger
		stranger > host tcp4/8443     = answered as stranger
		inside > host tcp4/80         = answered as inside
		dmz-db > host tcp4/80         = answered
		stranger > dmz-outer tcp4/80  = answered as stranger
		stranger > dmz-outer tcp4/22  = silent
		office > db-outer tcp4/5432   = answered as office
		stranger > db-outer tcp4/5432 = silent
		dmz > stranger tcp4/443       = answered as dmz-outer
		dmz > stranger tcp6/443       = answered as dmz
		dmz > stranger tcp/22         = silent
		dmz > inside tcp/80           = silent
		dmz > gateway tcp/22          = silent
	`, false)
	e.noDrift(t)
}

func TestExampleVirtualMachines(t *testing.T) {
	e := newExample(t, "virtual-machines", func(c *town) {
		c.outside.Route("198.51.100.11/32", "198.51.100.1")
		c.outside.Route("2001:db8:30::/48", "2001:db8:100::1")
		for i, name := range []string{"web-vm", "db-vm", "other-vm"} {
			c.homes[name] = c.machine(name, fmt.Sprintf("vm-%d", i+1), places[name].v4, places["vm-gateway"].v4, places[name].v6, places["vm-gateway"].v6)
		}
	})
	e.try(t, `
		web-vm > stranger tcp4/80      = answered as host
		web-vm > stranger tcp6/80      = answered as web-vm
		other-vm > stranger udp/53     = answered
		other-vm > stranger tcp/25     = reset
		other-vm > vm-gateway udp/53   = answered
		other-vm > vm-gateway ping     = answered
		other-vm > vm-gateway tcp/80   = silent
		stranger > web-vm tcp/80       = answered as stranger
		stranger > web-vm ping         = answered
		stranger > web-vm tcp/22       = silent
		office > web-vm tcp/22         = answered
		stranger > web-outer tcp4/443  = answered as stranger
		stranger > web-outer tcp4/22   = silent
		office > db-vm tcp/5432        = answered
		stranger > db-vm tcp/5432      = silent
		web-vm > db-vm tcp/5432        = answered as web-vm
		other-vm > db-vm tcp/5432      = silent
		other-vm > web-vm tcp/22       = silent
		stranger > other-vm tcp/80     = silent
		office > host tcp/22           = answered
		stranger > host tcp/22         = silent
	`, false)
	e.noDrift(t)
}

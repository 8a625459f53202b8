package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"sluice/internal/lab/testnet"
)

// webAt is where the controller serves people, inside of the fleet's network.
const webAt = fleetNetwork + "1:8443"

// Scene is what a page is tried on: a host by itself, a fleet, and packets to both.
type Scene struct {
	Host    SceneHost     `json:"host"`    // without a name
	Policy  string        `json:"policy"`  // the file that it runs
	Clients []SceneClient `json:"clients"` // of that host
	Fleet   SceneFleet    `json:"fleet"`
}

// SceneHost is a host with an agent.
type SceneHost struct {
	Name    string     `json:"name,omitempty"`
	Netns   string     `json:"netns"`
	Socket  string     `json:"socket"` // of its agent
	State   string     `json:"state"`  // directory
	Address netip.Addr `json:"address"`
}

// SceneClient is a machine of a country.
type SceneClient struct {
	Name    string     `json:"name"`
	Netns   string     `json:"netns"`
	IPv4    netip.Addr `json:"ipv4"`
	IPv6    netip.Addr `json:"ipv6"`
	Allowed bool       `json:"allowed"` // to see the web site
}

// SceneFleet is a controller and its hosts.
type SceneFleet struct {
	URL        string      `json:"url"` // for people
	Netns      string      `json:"netns"`
	Dir        string      `json:"dir"`
	Repository string      `json:"repository"`
	Key        string      `json:"key"` // a file, by which policies are signed
	Hosts      []SceneHost `json:"hosts"`
	// Machine is on the last of the hosts, and the fleet knows nothing of it yet.
	Machine SceneMachine `json:"machine"`
}

// SceneMachine is a machine on a host, which serves ports 443 and 9200.
type SceneMachine struct {
	Interface string     `json:"interface"` // of the host, to it
	Address   netip.Addr `json:"address"`
}

// Show sets the scene and has somebody act on it, who is told when the scene is interrupted.
func Show(o Options, act func(Scene) error) error {
	return within(o, func(d *demo) error {
		f := &fleet{demo: d}
		return d.inTurn(
			func() error { return d.loadCountries(o.Data) },
			d.makeInternet,
			d.applyLogged,
			d.serveAgent,
			func() error { return f.found(shownHosts, shownFiles) },
			f.machine,
			f.publish,
			func() error {
				_, err := f.all(1)
				return err
			},
			func() error { return f.visit(o.Packets, func() error { return act(f.scene()) }) },
		)
	})
}

// The fleet of a scene.
var (
	shownHosts = []string{"web-1", "web-2", "web-3", "db-1", "db-2"}
	shownFiles = map[string]string{
		"fleet.yaml": `version: 1
fleet: example.net
parts: [parts/*.yaml]
sets:
  web: { hosts: role=web, within: [10.99.0.0/24] }
  databases: { hosts: role=db, within: [10.99.0.0/24] }
  search: { guests: app=search, within: [10.98.0.0/24] }
bans: { max: 1000, for: 7d, widest: [24, 48] }
exceptions: { who: [0.0.0.0/0], longest: 8h }
access:
  - { who: "user:erika@example.net", role: admin }
  - { who: "user:max@example.net", role: operator }
roll-out: { stages: [1 per class, 100%], settle: 1s, probes: [controller] }
`,
		"parts/10-base.yaml": `# For every host.
version: 1
log: netlink
sets:
  admins: [10.99.0.0/24]
input:
  default: drop
  rules:
    - allow ssh from admins
    - allow ping
expect:
  - deny ssh from not admins
`,
		"parts/50-web.yaml": `# The shop: its customers live in Europe.
version: 1
hosts: role=web
sets:
  visitors: { countries: [DE, FR, IT, NL, "NO"] }
input:
  rules:
    - allow [http, https] from visitors
`,
		"parts/60-db.yaml": `# The databases: the shop asks them, nobody else.
version: 1
hosts: role=db
input:
  rules:
    - allow postgresql from web
`,
		"parts/70-machines.yaml": `# Machines on the hosts of the databases, such as the search of the shop.
version: 1
hosts: role=db
guests: { enforce: forward }
forward:
  default: drop
  rules:
    - allow https from admins to search
`,
	}
)

var machine = SceneMachine{Interface: "tap0", Address: netip.MustParseAddr("10.98.0.5")}

// machine puts one on the last of the hosts.
func (f *fleet) machine() error {
	on := f.hosts[len(f.hosts)-1]
	space := f.net.Namespace("machine")
	near := netip.PrefixFrom(machine.Address.Prev(), 24)
	f.net.Join(
		testnet.End{In: on.space, Device: machine.Interface, Addresses: []string{near.String()}},
		testnet.End{In: space, Device: "eth0", Addresses: []string{netip.PrefixFrom(machine.Address, 24).String()}})
	on.space.Forward()
	space.Route("default4", near.Addr().String())
	space.ServeTCP("0.0.0.0:443", "0.0.0.0:9200")
	f.space.Route(near.Masked().String(), on.at.String())
	return nil
}

func (f *fleet) scene() Scene {
	s := Scene{
		Host: SceneHost{Netns: f.host.Name(), Socket: f.socket(), State: f.State, Address: host4}, Policy: f.logged(),
		Fleet: SceneFleet{URL: f.web, Netns: f.space.Name(), Dir: f.path("controller"), Repository: f.path("repository"), Key: f.path("keys", "policy.pem"), Machine: machine},
	}
	for _, c := range f.clients {
		s.Clients = append(s.Clients, SceneClient{c.name, c.space.Name(), c.v4, c.v6, c.allowed})
	}
	for _, h := range f.hosts {
		s.Fleet.Hosts = append(s.Fleet.Hosts, SceneHost{h.name, h.space.Name(), h.socket(), h.State, h.at})
	}
	return s
}

// showPage says where pages show the host and the fleet, while packets come to them.
func (d *demo) showPage(stay func() error) error {
	if err := d.serveAgent(); err != nil {
		return err
	}
	local := exec.Command(d.controller(), "local", "--socket", d.socket(), "--netns", d.host.Name())
	local.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := local.StdoutPipe()
	if err != nil {
		return err
	}
	if err := local.Start(); err != nil {
		return err
	}
	d.net.OnClose(func() error {
		_ = local.Process.Kill()
		_ = local.Wait() // killed
		return nil
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("sluice-controller local says no address: %w", err)
	}
	link, err := d.fleet.command(d.fleet.inController("access", "link", "demo", "--role", "admin")...)
	if err != nil {
		return err
	}
	d.title("The same in a browser, until you press a key; each address opens its page once")
	d.say("the host:   %s", strings.TrimSpace(address))
	d.say("the fleet:  %s", strings.TrimSpace(link[strings.Index(link, "https://"):]))
	d.say("The certificate of the fleet's page is by the fleet's own CA, which no browser knows.")
	return d.fleet.visit(0, stay)
}

// socket is that of the agent of the host that is in no fleet.
func (d *demo) socket() string { return d.State + ".socket" }

// serveAgent has the host that is in no fleet run an agent.
func (d *demo) serveAgent() error {
	// The host has a name of its own, as it would have elsewhere.
	d.host.Start("unshare", "--uts", "sh", "-c", `hostname www && exec "$0" "$@"`,
		d.Binary, "agent", "--netns", d.host.Name(), "--state-dir", d.State, "--socket", d.socket())
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var c net.Conn
		if c, err = net.Dial("unix", d.socket()); err == nil {
			return c.Close()
		}
	}
	return err
}

// visitors are from where packets come, beside the clients.
var visitors = []string{
	"DE", "FR", "GB", "IT", "NL", "NO", "PL", "ES", "SE", "CH",
	"US", "CA", "MX", "BR", "AR", "CL", "CN", "JP", "KR", "IN", "ID", "VN", "TR", "EG", "NG", "KE", "ZA", "AU",
}

// visit has packets of many countries come to all hosts while somebody acts: ten connections a
// second, and so many packets that begin one and are not followed up.
func (f *fleet) visit(packets int, act func() error) (err error) {
	own := netip.MustParseAddr("192.0.2.2")
	wan := f.attached("internet", netip.PrefixFrom(own, 24))
	var sources []netip.Addr
	for _, code := range visitors {
		v4, _, err := addressesIn(f.db, code)
		if err != nil {
			return err
		}
		source := v4.Addr().Next() // a client has the one before
		alone := netip.PrefixFrom(source, 32).String()
		wan.Namespace.Own(alone)
		f.space.Own(alone)
		f.router.Route(alone, own.String())
		sources = append(sources, source)
	}
	ports := []uint16{80, 80, 80, 443, 25, 22, 3389, 5432}
	draws := rand.New(rand.NewPCG(1, 1))
	ctx, stop := context.WithCancel(context.Background())
	var visiting sync.WaitGroup
	visiting.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			try := testnet.TCPTry{From: netip.AddrPortFrom(sources[draws.IntN(len(sources))], 0), Patience: patience}
			port := ports[draws.IntN(len(ports))]
			from := wan.Namespace
			try.To = netip.AddrPortFrom(host4, port)
			if n%2 == 1 {
				from, try.To = f.space, netip.AddrPortFrom(f.hosts[n/2%len(f.hosts)].at, port)
			}
			visiting.Go(func() { from.TryTCP(try) })
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	defer visiting.Wait()
	defer stop()
	if packets > 0 {
		end := f.flood(packets, sources, wan)
		defer func() {
			_, failed := end()
			err = errors.Join(err, failed)
		}()
	}
	return act()
}

// flood sends so many packets a second that begin a connection to what no host serves: half
// of them to the host that is in no fleet, at 25 ports, from so many sources that few of its
// packets are left out of the log.
func (f *fleet) flood(packets int, sources []netip.Addr, wan *testnet.Port) (stop func() ([]uint64, error)) {
	const beat = 20 * time.Millisecond
	var send []func() error
	for i := range 2048 {
		b := sources[i%len(sources)].As4()
		b[3] = byte(20 + i/len(sources)) // behind the clients
		source := netip.AddrPortFrom(netip.AddrFrom4(b), 40000)
		port, h := uint16(9001+i%25), f.hosts[i%len(f.hosts)]
		alone, member := testnet.SYN(source, netip.AddrPortFrom(host4, port), 1460), testnet.SYN(source, netip.AddrPortFrom(h.at, port), 1460)
		send = append(send, func() error { return wan.Send(alone) }, func() error { return h.port.Send(member) })
	}
	return testnet.Flood(max(1, packets*int(beat)/int(time.Second)), beat, send...)
}

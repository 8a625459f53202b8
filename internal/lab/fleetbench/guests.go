package fleetbench

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
)

// What guests of a fleet are held to, and how many there are: all on simulated hosts, and
// those with a kernel ask who is in some of the sets.
const (
	mostLabel    = 2.0 // s, until all hosts concerned have it proved
	labelHosts   = 200 // of which that is asked
	guestsOfHost = 100
	guestSets    = 200
	askedSets    = 20
)

// guest is one of the guests, with a label.
func (m *measured) guest(i, app int) store.Guest {
	return store.Guest{
		ID: fmt.Sprint("vm-", i), Placement: store.Placement{Host: fmt.Sprint("simulated-", i%(m.n-m.real)), Interface: fmt.Sprint("tap", i)},
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}, Labels: map[string]string{"app": fmt.Sprint("a", app)},
	}
}

// populated puts guests on the simulated hosts, and has the hosts with a kernel ask for them.
func (m *measured) populated() error {
	s, err := store.OpenExisting(m, "sqlite:"+m.path("controller", "fleet.db"))
	if err != nil {
		return err
	}
	defer s.Close()
	for i := range guestsOfHost * m.n {
		if _, err := s.PutGuest(m, "bench", m.guest(i, i%guestSets)); err != nil {
			return err
		}
	}
	var sets, rules, hosts strings.Builder
	for i := range guestSets {
		fmt.Fprintf(&sets, "  s%d: {guests: app=a%d, within: [10.0.0.0/8]}\n", i, i)
	}
	for i := range askedSets {
		fmt.Fprintf(&rules, "    - allow tcp/%d from s%d\n", 9000+i, i)
	}
	for i := range m.real {
		fmt.Fprintf(&hosts, " or host=host-%d", i)
	}
	m.sets, m.askers, m.asking = "sets:\n"+sets.String(), strings.TrimPrefix(hosts.String(), " or "), rules.String()
	if _, err := m.change(m.n); err != nil {
		return err
	}
	return m.await(m.n)
}

// labelled gives guests other labels, one after the other.
func (m *measured) labelled() error {
	if m.n == m.real {
		return nil
	}
	if err := m.populated(); err != nil {
		return err
	}
	before, err := m.spent()
	if err != nil {
		return err
	}
	var took, concerned stats.Series
	for i := range m.rounds() {
		g := m.guest(i*guestSets, 1+i%(askedSets-1)) // that was in s0
		begun := time.Now()
		if _, err := m.client.PutGuest(m, g.ID, api.NewGuest{Host: g.Host, Interface: g.Interface, Addresses: g.Addresses, Labels: g.Labels}); err != nil {
			return err
		}
		for {
			now, err := m.client.Guest(m, g.ID)
			if err != nil {
				return err
			}
			if now.Proved {
				took, concerned = append(took, time.Since(begun).Seconds()), append(concerned, float64(now.Concerned))
				break
			}
			if time.Since(begun) > patience(m.n) {
				return fmt.Errorf("guest %s is not proved: %+v", g.ID, now)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	after, err := m.spent()
	if err != nil {
		return err
	}
	spent := after.since(before)
	m.add("hosts concerned by a guest's label", "hosts", "hosts", concerned...)
	m.add("a guest's label until proved on all of them", "time", "s", took...)
	if m.n == labelHosts {
		m.Goals = append(m.Goals, figures.AtMost(m.subject+": a guest's label until proved on the hosts concerned", "s", mostLabel, took, nil))
	}
	m.add("an agent with a kernel, a guest's label", "processor time", "ms", milliseconds(spent.agents, m.real*len(took)))
	m.add("the controller, a guest's label", "processor time", "ms", milliseconds(spent.controller, len(took)))
	return nil
}

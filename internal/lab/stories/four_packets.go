package stories

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sync/errgroup"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
)

// forwardingLab is a host like the story's, whose machines are not there: packets are
// put into its devices, and counted where they leave.
func (h *hosting) forwardingLab(label string) (*measure.Lab, error) {
	var devices []measure.Device
	for i := 1; i <= machines; i++ {
		at := machine(i)
		devices = append(devices, measure.Device{
			Name:      fmt.Sprintf("vm%d", i),
			Addresses: []netip.Prefix{netip.PrefixFrom(at.Prev(), 24)},
			Networks:  []netip.Prefix{netip.PrefixFrom(at, 24).Masked()},
		})
	}
	return measure.Build(h.Net, label, devices...)
}

// clientPackets are those of a connection from machine 2 to the database that is known
// already.
func clientPackets() measure.Traffic {
	return measure.Traffic{Flags: "A", Through: true, In: "vm2", Flows: []measure.Flow{
		{From: netip.AddrPortFrom(machine(2), 40000), To: netip.AddrPortFrom(machine(1), databasePort)},
	}}
}

// packets measures what one packet of the connection costs the host, apart from
// client and database.
func (h *hosting) packets(ctx context.Context, ways []hosted) error {
	rounds := h.packetRounds(31)
	traffic := clientPackets()
	source, err := measure.LoadFor(traffic, measure.Available())
	if err != nil {
		return err
	}
	defer source.Close()
	var cells []measure.Cell
	for i, w := range append(ways, ways[len(ways)-1].again()) {
		lab, err := h.forwardingLab(fmt.Sprintf("host%d", i))
		if err != nil {
			return err
		}
		if err := w.load(lab.Namespace); err != nil {
			return fmt.Errorf("load %s: %w", w.subject, err)
		}
		if _, err := lab.Establish(ctx, traffic, measure.Available()); err != nil {
			return err
		}
		cells = append(cells, measure.Cell{Name: w.subject, Lab: lab, Source: source, Survives: measure.All})
	}
	h.Say("packets of the connection, %d rounds", rounds)
	result, err := measure.Compare(ctx, measure.Plan{Rounds: rounds, Packets: 1 << 14}, cells)
	if err != nil {
		return err
	}
	unit := h.each()
	section := h.Section("packets", "What a packet of the connection costs the host",
		"Packets of the known connection from machine 2 to the database, put into the host's device and counted where they leave it; nothing else is in the figure. Known connections alone go by a flowtable: the first packets of each are asked for by the rules.")
	for _, w := range ways {
		section.Add(figures.Figure{Case: "packet of the connection", Subject: w.subject, Quantity: "whole way through the host", Unit: unit, Samples: result.NS(w.subject)})
	}
	for _, w := range ways[1:] {
		section.Add(figures.Figure{Case: "packet of the connection", Subject: w.subject, Quantity: "added per packet", Unit: unit, Samples: result.Added(w.subject, noRules)})
	}
	for _, w := range ways {
		slow := map[string]string{vmFlowtable: vmRules, sluiceFlow: sluiceClassic}[w.subject]
		if slow == "" {
			continue
		}
		ratio := result.NS(w.subject).Per(result.NS(slow))
		section.Add(figures.Figure{Case: "packet of the connection", Subject: w.subject, Quantity: "against the same rules without a flowtable", Unit: "×", Samples: ratio})
		if w.subject == sluiceFlow {
			var same stats.Series
			if !h.Counted() {
				same = result.NS(w.again().subject).Per(result.NS(w.subject))
			}
			h.Goal(figures.AtMost("a packet by Sluice's flowtable against Sluice without it", "×", 1, ratio, same))
		}
	}
	return nil
}

// diagnosed has the doctor look at the host with the rules by hand, while queries are asked.
func (h *hosting) diagnosed(ctx context.Context, database *postgres) error {
	if err := clearHost(h.Stage, h.host); err != nil {
		return err
	}
	if err := nftRules(h.host, machineRules(false)); err != nil {
		return err
	}
	asking, stop := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error {
		for asking.Err() == nil {
			if _, err := database.bench(asking, h.client, 2000); err != nil && asking.Err() == nil {
				return err
			}
		}
		return nil
	})
	said, err := h.diagnose(ctx, h.host, "no-flowtable")
	stop()
	if err = errors.Join(err, group.Wait()); err != nil {
		return err
	}
	h.Found("The doctor, which knows nothing of the story:", said...)
	return nil
}

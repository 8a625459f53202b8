package nftables

import (
	"path/filepath"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testgolden"
	"sluice/internal/program"
)

// TestLayoutGolden holds the text of one layout of each kind: a set that has
// whole, empty and mixed blocks at each step.
func TestLayoutGolden(t *testing.T) {
	set := addrset.MustParse(
		"9.0.0.0/15",
		"10.1.0.0/16", "10.2.0.0/17", "10.3.4.0-10.3.5.77", "10.3.9.0/24",
		"11.196.0.0-11.199.255.255", "11.201.0.0/16", "11.202.0.0-11.202.9.255", "11.202.11.0-11.202.255.255",
		"2001:db8::/48", "2001:db8:2::/47", "2001:d00::/24", "2a00::/16", "2a01:1::/32", "2a01:2:3::/48",
	)
	p := laidProgram(set, false, []program.Action{program.Drop})
	p.Chains[0].Rules = append([]program.Rule{
		{ID: "counted", Match: conditions{protocolIs(6), setOn(program.Destination, "served")}, Actions: []program.Action{program.Count{Counter: "seen"}, program.Drop}},
		{ID: "others", Match: conditions{protocolIs(17), not(setOn(program.Source, "served"))}, Actions: []program.Action{program.Accept}},
		{ID: "twice", Match: conditions{setOn(program.Source, "served"), setOn(program.Destination, "served")}, Actions: []program.Action{program.Accept}},
		{ID: "back", Match: conditions{setOn(program.Source, "served")}, Actions: []program.Action{program.Return}},
	}, p.Chains[0].Rules...)
	for name, place := range map[string]int{"layout-map": 1, "layout-bitmaps": 2} {
		t.Run(name, func(t *testing.T) {
			l, err := lowerChoosing(p, everything, &defaults, picking(place))
			if err != nil {
				t.Fatal(err)
			}
			text := (&artifact{Tree: l.tree}).Text()
			file := filepath.Join("testdata", "golden", name+".nft")
			testgolden.File(t, file, []byte(text))
			host := kernelHost(t)
			host.Nft(text)
			host.holds(t, "its text loads as something else", &artifact{Tree: l.tree})
		})
	}
}

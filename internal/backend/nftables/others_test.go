package nftables

import (
	"errors"
	"slices"
	"testing"

	"sluice/internal/program"
	"sluice/internal/system/kernel/nfset"
)

// What another program fills is bounded, and known again by its name.
func TestOthersAreBounded(t *testing.T) {
	host := kernelHost(t)
	b := New()
	a := mustLower(t, &program.Program{
		Owner: "sluice",
		Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "input"}},
		Chains: []program.Chain{{Name: "input", Rules: []program.Rule{
			{Match: conditions{setOn(program.Source, "shop")}, Actions: actions{program.Drop}},
		}}},
		Sets: []program.Set{{ID: "shop", Key: []program.Field{program.Source}, Life: program.Dynamic, Others: true, Size: 4}},
	})
	host.load(t, b, a)
	k := a.Tree.set("shop_v4_other")
	if id, others := ofOthers(k.Name); !others || id != "shop" {
		t.Errorf("%s is read as a set of %q: %v", k.Name, id, others)
	}
	if _, others := ofOthers("shop_v4"); others {
		t.Error("shop_v4 is read as one that another program fills")
	}
	if err := host.Do(func() error {
		conn, err := nfset.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		for n := byte(0); n < 8 && err == nil; n++ {
			err = conn.Add(t.Context(), k.inKernel("sluice"), slices.Values([]nfset.Element{{Key: []byte{192, 0, 2, n}}}))
		}
		return err
	}); !errors.Is(err, nfset.ErrFull) {
		t.Errorf("eight elements in a set of four: %v", err)
	}
	if err := host.Do(func() error {
		have, err := b.Read(t.Context(), true)
		if err != nil {
			return err
		}
		differences, err := b.Compare(a, have)
		if err != nil || len(differences) > 0 {
			t.Errorf("what another program put there is a difference: %v %v", differences, err)
		}
		entries, err := have.(*State).Filled(t.Context(), "shop")
		if err != nil || len(entries) != 4 {
			t.Errorf("four elements are read as %v: %v", entries, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

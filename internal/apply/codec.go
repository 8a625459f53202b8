package apply

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"slices"
	"sync"

	"sluice/internal/addrset"
	"sluice/internal/backend"
	"sluice/internal/program"
)

// Programs are kept as gob: their actions are of an interface type, and a
// million elements must neither take long nor much room.
var registerActions = sync.OnceFunc(func() {
	for _, action := range []program.Action{
		program.Verdict(""),
		program.Jump{},
		program.Goto{},
		program.VerdictMap{},
		program.NoTrack{},
		program.Count{},
		program.Log{},
		program.Limit{},
		program.ConnectionLimit{},
		program.SetAdd{},
		program.SetMark{},
		program.DNAT{},
		program.DNATPrefix{},
		program.SNAT{},
		program.SNATPrefix{},
		program.Masquerade{},
		program.Redirect{},
		program.MapSource{},
		program.MapDestination{},
		program.ClampMSS{},
		program.Offload{},
	} {
		gob.Register(action)
	}
})

// encodeProgram writes parts (backend.Join): the program without the addresses of
// its sets, and those of each set, of both families apart.
func encodeProgram(p *program.Program) ([]byte, error) {
	registerActions()
	light := *p
	light.Sets = slices.Clone(p.Sets)
	parts := [][]byte{nil}
	for i := range light.Sets {
		set := &light.Sets[i]
		for _, one := range []addrset.Set{set.Addresses.Only4(), set.Addresses.Only6()} {
			addresses, err := one.MarshalBinary()
			if err != nil {
				return nil, fmt.Errorf("encode the program: %w", err)
			}
			parts = append(parts, addresses)
		}
		set.Addresses = addrset.Set{}
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(&light); err != nil {
		return nil, fmt.Errorf("encode the program: %w", err)
	}
	parts[0] = b.Bytes()
	return backend.Join(parts...), nil
}

func decodeProgram(data []byte) (*program.Program, error) {
	registerActions()
	parts, err := backend.Split(data)
	if err != nil || len(parts) == 0 {
		return nil, fmt.Errorf("decode the program: %w", backend.ErrParts)
	}
	var p program.Program
	if err := gob.NewDecoder(bytes.NewReader(parts[0])).Decode(&p); err != nil {
		return nil, fmt.Errorf("decode the program: %w", err)
	}
	if len(parts) != 1+2*len(p.Sets) {
		return nil, fmt.Errorf("decode the program: %w", backend.ErrParts)
	}
	for i := range p.Sets {
		for _, part := range parts[1+2*i : 3+2*i] {
			var one addrset.Set
			if err := one.UnmarshalBinary(part); err != nil {
				return nil, fmt.Errorf("decode the program: set %s: %w", p.Sets[i].ID, err)
			}
			p.Sets[i].Addresses = p.Sets[i].Addresses.Union(one)
		}
	}
	return &p, nil
}

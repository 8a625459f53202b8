package apply

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"slices"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// Programs are kept as gob: their actions are of an interface type, and a
// million elements must neither take long nor much room.

// encodeProgram writes parts (backend.Join): the program without the addresses of
// its sets, and those of each set, of both families apart.
func encodeProgram(p *program.Program) ([]byte, error) {
	program.RegisterActions()
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
	program.RegisterActions()
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

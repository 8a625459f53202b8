package memory

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// artifact is a program as it is.
type artifact struct {
	program *program.Program
	encoded []byte
	asks    bool // for what commands ban
}

func made(p *program.Program) (*artifact, error) {
	program.RegisterActions()
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(p); err != nil {
		return nil, fmt.Errorf("encode the program: %w", err)
	}
	return decoded(b.Bytes())
}

func decoded(data []byte) (*artifact, error) {
	program.RegisterActions()
	p := &program.Program{}
	if err := gob.NewDecoder(bytes.NewReader(data)).Decode(p); err != nil {
		return nil, fmt.Errorf("decode the program: %w", err)
	}
	return &artifact{program: p, encoded: data}, nil
}

func (*artifact) Backend() string           { return Name }
func (a *artifact) Text() string            { return a.program.Text() }
func (a *artifact) Encode() ([]byte, error) { return a.encoded, nil }
func (a *artifact) Notes() []program.Note   { return a.program.Notes }

// Cost counts; a byte of the program is one of the kernel's, and a ns.
func (a *artifact) Cost() backend.Cost {
	c := backend.Cost{Memory: uint64(len(a.encoded)), LoadTime: uint64(len(a.encoded))}
	for _, chain := range a.program.Chains {
		c.Rules += len(chain.Rules)
	}
	for i := range a.program.Sets {
		c.Elements += a.program.Sets[i].Len()
	}
	return c
}

// rules tells apart what artifacts have beside the contents of sets.
func (a *artifact) rules() string {
	light := *a.program
	light.Sets = slices.Clone(light.Sets)
	for i := range light.Sets {
		light.Sets[i].Addresses, light.Sets[i].Elements = addrset.Set{}, nil
	}
	return turned(sum(light), false, a.asks)
}

// asking is behind the sum of rules that ask for what commands ban.
const asking = " asking for bans"

// turned are rules that ask for it or do not any more.
func turned(rules string, from, to bool) string {
	if from {
		rules = strings.TrimSuffix(rules, asking)
	}
	if to {
		rules += asking
	}
	return rules
}

// sets are the program's, each by a name that ends in what is in it.
func (a *artifact) sets() map[string]bool {
	out := map[string]bool{}
	for _, s := range a.program.Sets {
		out[s.ID+"_"+sum(s)] = true
	}
	return out
}

func sum(v any) string {
	hash := sha256.New()
	_ = gob.NewEncoder(hash).Encode(v) // it was encoded before
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

// state is a copy of what is held.
type state struct {
	rules    string // "" where none are loaded
	sets     map[string]bool
	counters map[string]backend.Count
	cost     backend.Cost
}

func (s *state) Empty() bool                        { return s.rules == "" && len(s.sets) == 0 }
func (s *state) Counters() map[string]backend.Count { return s.counters }

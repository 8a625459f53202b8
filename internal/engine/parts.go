package engine

import (
	"encoding/hex"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
)

// sourcesIn are the files that a policy was made of, with the texts that it was read from.
func sourcesIn(p *policy.Policy) ([]apply.Source, error) {
	var out []apply.Source
	texts, sets := p.Files()
	for _, name := range texts {
		out = append(out, apply.SourceOf(name, p.Text(name)))
	}
	for _, name := range sets {
		s, err := apply.HashFile(p.Open, name)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// lastGood gives the texts that the running policy has of the files of another one; nil where
// it has none. Each bundle of a fleet is in a folder of its own, beside that of the one before.
func (h *Host) lastGood(of string) func(name string) []byte {
	var folder, now string // of the running policy and of the other one, where both are bundles
	known := sync.OnceValue(func() map[string][]byte {
		g, texts, err := h.RunningPolicy()
		if err != nil {
			return nil // what does not run has no texts
		}
		out := map[string][]byte{}
		for name, text := range texts {
			out[g.In(name)] = text
		}
		folder = filepath.Dir(g.In(g.Policy))
		if path, err := filepath.Abs(of); err == nil && h.InBundle(g.In(g.Policy)) && h.InBundle(path) {
			now = filepath.Dir(path)
		}
		return out
	})
	return func(name string) []byte {
		path, err := filepath.Abs(name)
		if err != nil {
			return nil
		}
		texts := known()
		if inside, err := filepath.Rel(now, path); now != "" && err == nil && filepath.IsLocal(inside) {
			path = filepath.Join(folder, inside)
		}
		return texts[path]
	}
}

// refuse notes which parts that may be broken keep the policy from being built, or from
// doing what is expected of it; false where there is none that it did not know of.
func (p *preparation) refuse(refused map[string]policy.Errors, out *prepared, err error) bool {
	var wrong policy.Errors
	errors.As(err, &wrong)
	if err == nil {
		for _, u := range slices.Concat(out.unguarded, out.unmet) {
			if p.Policy.Scoped(u.Expectation.Pos.File) { // whoever breaks it
				wrong = append(wrong, p.Policy.Errorf(u.Expectation.Pos, "", "%s", u.Unmet()))
				continue
			}
			for _, f := range u.Failures {
				wrong = append(wrong, p.Policy.Errorf(f.Pos, "", "the rule breaks the expectation at %s", u.Expectation.Pos))
			}
		}
	}
	known := len(refused)
	before := map[string]bool{}
	for file := range refused {
		before[file] = true
	}
	for _, e := range wrong {
		if file := e.Pos.File; p.Policy.Scoped(file) && !before[file] {
			refused[file] = append(refused[file], e)
		}
	}
	return len(refused) > known
}

// broken is what the policy does without.
func broken(p *policy.Policy) (out []apply.Broken) {
	for _, f := range p.Broken {
		b := apply.Broken{File: f.File, Errors: f.Errors.Error(), Kept: f.Kept}
		if f.Sum != [32]byte{} {
			b.SHA256 = hex.EncodeToString(f.Sum[:])
		}
		out = append(out, b)
	}
	return out
}

// brokenText says so.
func (p *preparation) brokenText() (out []string) {
	for _, f := range broken(p.Policy) {
		out = append(out, f.File+" "+f.Instead()+"\n  "+strings.ReplaceAll(f.Errors, "\n", "\n  "))
	}
	return out
}

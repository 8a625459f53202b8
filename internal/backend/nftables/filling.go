package nftables

import (
	"fmt"

	"sluice/internal/backend"
)

// Definition is the text that makes a set, for nft.
func (s *Set) Definition(table string) string {
	return fmt.Sprintf("add %s %s { %s }\n", s.noun(), place(table, s.Name), s.definition())
}

// Filling is the step that writes the elements of sets that are there, and empty.
// Package calibrate takes it, to fill sets as an apply does.
func Filling(table string, sets ...*Set) backend.Step {
	c := &contents{table: table}
	for _, s := range sets {
		s.Elements.sortTuples()
		c.edits = append(c.edits, edit{insert: s})
	}
	return backend.Step{Purpose: backend.Fill, Name: "fill sets", Transaction: c}
}

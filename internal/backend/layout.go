package backend

import "sluice/internal/program"

// LaidOut is an artifact with large sets for which the backend has chosen among several
// layouts.
type LaidOut interface {
	Artifact
	// Layouts is empty of an artifact that was not made by this process.
	Layouts() []LayoutReport
}

// LayoutReport says how one family of a large set is laid out, and what else was
// looked at.
type LayoutReport struct {
	Set        string         `json:"set"`
	Family     int            `json:"family"`
	Ranges     int            `json:"ranges"`
	Uses       int            `json:"uses"` // ways in which rules ask it, each with chains of its own
	Chosen     string         `json:"chosen"`
	Candidates []LayoutCost   `json:"candidates"`
	Origin     program.Origin `json:"origin"`
}

// LayoutCost is what a layout of one set and family is estimated to take.
type LayoutCost struct {
	Name string `json:"name"`
	// What a lookup adds to a packet, in nanoseconds, members and others
	// averaged: with every address as likely as any other, and with every range.
	ByAddress float64 `json:"ns-by-address"`
	ByRange   float64 `json:"ns-by-range"`
	Memory    uint64  `json:"memory"`       // bytes of kernel memory
	Load      uint64  `json:"load-time-ns"` // ns
	Elements  int     `json:"elements"`
	Sets      int     `json:"sets"`
	Chains    int     `json:"chains"`
	Rules     int     `json:"rules"`
}

// NS is the mean of both kinds of traffic.
func (c LayoutCost) NS() float64 { return (c.ByAddress + c.ByRange) / 2 }

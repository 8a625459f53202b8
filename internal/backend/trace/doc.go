// Package trace is what can be asked of a firewall that is loaded, and what it answers:
// which rules one packet met and what happened to it. Backends answer (Tracer); engine
// asks, for "sluice explain --live". And which rules drop the packets that come (Sampler).
package trace

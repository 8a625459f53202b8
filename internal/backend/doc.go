// Package backend is the small interface behind which every way of running a
// program on a kernel stands, and the conformance suite that all of them pass.
// Backends are told what the host can do and give an artifact, its cost, and
// refusals by rule. They never change the host: they say the steps, and apply
// takes them. Callers: cli (compile, plan) and apply.
package backend

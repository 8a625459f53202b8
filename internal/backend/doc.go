// Package backend is the small interface behind which every way of running a
// program on a kernel stands, whose conformance suite (package conformance) all of them pass.
// Backends are told what the host can do and give an artifact, its cost, and
// refusals by rule. They change the host by the steps and transactions that they give
// alone, which apply takes; what these are made of, nobody else knows. A backend keeps a
// mark in the kernel, a fingerprint of it, and what commands ban (Banner), and may read
// it back as a program (Lifter) and follow the host (Follower). Callers: engine and what is
// below it; estimate for prices.
package backend

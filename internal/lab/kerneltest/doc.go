// Package kerneltest holds tests alone, those that ask the real kernel in
// network namespaces which they make:
//
//   - facts_*_test.go: what the kernel does that the design works around, one
//     test for each fact. Such a test fails when the kernel no longer does so;
//     its comment says what Sluice may then drop.
//   - word_*_test.go: every word of the policy language, as policy text × packet
//     × what happens to it, in both families.
//   - example_*_test.go: the policies under examples/, applied by the real
//     binary and tried with real packets.
//   - meaning*_test.go: random policies and random packets; each packet must end
//     as package reference says, with the header that it says. A case that fails is
//     made small and printed. scripts/fuzz-meaning runs as many as one wants.
//     meaning_kept_test.go keeps what such runs have found, by name.
//
// They need root or a user namespace, see package testnet.
package kerneltest

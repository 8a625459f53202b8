// Package operator is what people and CI have who sign policies: key files, encrypted by
// a passphrase with age, keys in an ssh-agent, and the making
// of a fleet. Callers: the commands of sluice-controller, and tests that need a fleet. A
// package of its own, because agents link package trust and need none of this.
package operator

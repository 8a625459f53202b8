// Package cli holds the commands of sluice-lab, a file each; cmd/sluice-lab calls
// Main and nobody else imports it. Commands parse flags, call the packages of the lab
// that measure, emulate and play, and print; what they have in common with those of
// sluice is in cli/command, with the rules of output.
//
// What is measured is the program sluice: the one beside sluice-lab, or else the first
// in PATH ([theSluice]).
package cli

// Package cli holds the commands of sluice-controller, a file each; cmd/sluice-controller
// calls Main and nobody else imports it. Commands parse flags, call the packages of the
// fleet, and print; what they have in common with those of sluice is in cli/command, with
// the rules of output.
package cli

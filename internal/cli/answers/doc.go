// Package answers asks about packets on a command line, and prints what was found: about one
// packet, and about all that fit some words. Callers: the commands of sluice, and those of
// sluice-controller, which ask the same of the hosts of a fleet.
package answers

func choice(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

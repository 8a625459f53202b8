// Package bans keeps what is banned by command: a journal on disk, and what it
// comes to. apply writes it under its lock, brings it into the kernel and lists
// it; the commands ban and unban read their input with it.
//
// Words:
//
//	ban      one address, prefix or range, or what a country had then, since when,
//	         how long, by whom and why. A second ban of the same takes the place of
//	         the first. What the fleet of the host bans has an ID, and is next to it
//	journal  a file of lines, one for each command that banned or lifted:
//	         eight hexadecimal digits, a space, JSON. The digits are the CRC-32C
//	         of the JSON. A line is written at once and synced, and counts as a
//	         whole or not at all
//	settled  the last line says that the kernel has all that is before it;
//	         without it the next command compares kernel and journal
//	past     bans whose time was up or that were lifted. The journal has them until
//	         it is rewritten, and a file beside it from then on
//	piece    of ranges that overlap, a part that the same bans cover: it is
//	         banned until the last of them ends
//
// A line that is damaged is left out and told of. One that is not whole, at the
// end, is what a killed or powerless machine left of a command that never said
// that it was done.
package bans

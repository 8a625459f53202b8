// Package scale says how the cost of a packet, the time of a load, the memory of the
// kernel and that of the program that loads grow with the number of prefixes and with
// the number of rules: for Sluice, and for what people write today as far as it
// goes. The command bench packet --scale calls it.
//
// It makes policies of each size ([Dimension]), loads them by each side into
// namespaces of their own, once to look at memory and some times for the time, and
// has package packetbench measure packets. A side whose next step would take longer
// than the patience of the caller, by what the last step took, is left out there with
// that reason; so is one that has been killed for it.
package scale

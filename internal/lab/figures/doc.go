// Package figures holds what a measurement found: every command that measures
// makes a [Report], prints it as a table, as JSON, or (package report) as an HTML
// page, and "sluice-lab bench diff" reads two of them. Callers: the packages of the lab that measure.
//
// The words:
//
//   - A [Report] is one run of one command, with the machine that it ran on.
//   - A [Section] has figures that share a set-up; it becomes one table.
//   - A [Figure] is one quantity of one subject in one case, with a sample a round:
//     the added ns (quantity) of an established IPv4 packet (case) under nftables-set
//     (subject). Case, subject, quantity and unit together name it over runs.
//   - A [Goal] is a figure beside the limit that was asked of it.
//   - A [Chart] is what only a picture shows: a course over time, growth with size.
//     What a section's figures say needs none: the page draws bars of them itself.
//
// It measures nothing and knows nothing of packets.
package figures

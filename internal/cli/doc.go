// Package cli holds the commands of sluice, one file each; main calls Main and
// nobody else imports it. Commands parse flags, call the packages that do the
// work and print; they hold no logic of their own.
//
// Rules of output, for all commands:
//
//   - What was asked for goes to standard output; progress, notes and errors go
//     to standard error.
//   - --json prints one JSON value on standard output and nothing else there.
//     A command that fails before it has printed one prints the error as one;
//     the text is on standard error too.
//   - Hints stand on lines of their own. Commands that messages name have the
//     flags --netns and --state-dir with which they work here.
//   - Colour only on a terminal, never with NO_COLOR set.
//   - Exit status 0: fine; 1: found something (differences, drift, findings,
//     a refused change); 2: bad use or bad input, or the command failed.
package cli

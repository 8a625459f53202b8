// Package command is what the commands of sluice and those of sluice-lab have in
// common: flags that every command has, output, failures and their hints, help,
// completion, version. Callers: cli and lab/cli.
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
package command

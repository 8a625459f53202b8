// Package source reads the YAML that people write: it finds one document in a
// file, refuses what lets a file say one thing and mean another, knows the file,
// line and column of every node and of every character of its text, and says
// what is wrong there in the words of one kind of error. A [Language] is the
// table of what the files of a language may hold, from which its parser, its
// JSON Schema and its reference are made.
//
// What a file means is the languages'. Callers: policy, and the agent's file.
package source

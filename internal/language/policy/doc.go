// Package policy is the language: it reads a policy file and what it includes
// into a tree with file, line and column on every node, and says everything
// that is wrong with the text alone: syntax, unknown keys and names, words that
// cannot be used where they are. It also writes the canonical form (Format),
// the JSON Schema and the language reference, all from one table of the
// language's keys and words.
//
// What needs the host, the set files or country data is resolve's; what needs
// both, such as a rule that can never match, is check's. Callers: resolve, and
// through it everything else; cli for check, fmt and schema.
package policy

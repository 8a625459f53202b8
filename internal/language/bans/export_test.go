package bans

import "fmt"

// Path is where the journal is.
func (j Journal) Path() string { return j.path }

// Seal makes a line of the JSON.
func Seal(body string) []byte {
	return fmt.Appendf(nil, "%08x %s\n", checksum([]byte(body)), body)
}

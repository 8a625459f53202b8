// Command writereference writes the reference of the policy language to a file;
// go generate calls it.
package main

import (
	"fmt"
	"os"

	"sluice/internal/policy"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: writereference FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], policy.Reference(), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
}

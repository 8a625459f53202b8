// Command sluice is a Linux firewall that keeps the packet path short and
// proves it. This file is wiring only: every command lives in internal/cli.
package main

import (
	"os"

	"sluice/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }

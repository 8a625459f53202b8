// Command sluice-lab measures, emulates and plays what the firewall sluice is held
// to. This file is wiring only: every command lives in internal/lab/cli.
package main

import (
	"os"

	"sluice/internal/lab/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }

// Command sluice-controller keeps the firewalls of a fleet of hosts. This file is wiring
// only: every command lives in internal/fleet/cli.
package main

import (
	"os"

	"sluice/internal/fleet/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }

package faults

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	agent "sluice/internal/agent/fleet"
	sluice "sluice/internal/cli"
	"sluice/internal/fleet/cli"
	"sluice/internal/fleet/controller"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
)

// What programs are told by their environment: files whose content is how far the clock of
// a host is ahead, and the levels of the protocol that a program speaks.
const (
	clockVariable  = "SLUICE_TEST_CLOCK"
	levelsVariable = "SLUICE_TEST_LEVELS"
	hurryVariable  = "SLUICE_TEST_HURRY"
)

// TestMain is also the programs of the fleets in namespaces: those that users have, except for
// their clocks and the pauses of agents.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"sluice": func() {
			speak()
			if os.Getenv(hurryVariable) != "" {
				agent.Usual = agent.Times{
					Reconnect: time.Second, Poll: 5 * time.Second, Ping: time.Second, Dead: 6 * time.Second,
					Again: 500 * time.Millisecond, Try: 3 * time.Second, Confirm: time.Minute,
				}
			}
			if file := os.Getenv(clockVariable); file != "" {
				agent.Now = clockOf(file)
			}
			os.Exit(sluice.Main(os.Args[1:]))
		},
		"sluice-controller": func() {
			speak()
			os.Exit(cli.Main(os.Args[1:]))
		},
		"controller-at": controllerAt,
	})
}

func speak() {
	if text := os.Getenv(levelsVariable); text != "" {
		wire.Levels = nil
		for level := range strings.SplitSeq(text, ",") {
			wire.Levels = append(wire.Levels, must(strconv.Atoi(level)))
		}
	}
}

// clockOf is a clock that is as far ahead as a file says.
func clockOf(file string) func() time.Time {
	return func() time.Time {
		return time.Now().Add(must(time.ParseDuration(string(must(os.ReadFile(file))))))
	}
}

// controllerAt is "sluice-controller run" by another clock: its arguments are the directory,
// where it listens, the database, and the file of the clock.
func controllerAt() {
	dir, at, database, now := os.Args[1], os.Args[2], os.Args[3], clockOf(os.Args[4])
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s := must(store.Open(ctx, database))
	s.Now = now
	c := must(controller.New(ctx, controller.Options{
		Dir: dir, Store: s, Version: "1", Controllers: []string{at}, Now: now,
		Note: func(err error) { fmt.Fprintln(os.Stderr, "warning:", err) },
	}))
	check(c.Run(ctx, must(net.Listen("tcp", at))))
	check(s.Close())
}

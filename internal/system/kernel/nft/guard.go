package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/process"
)

// Guard deletes a table when the process that holds it ends, by whatever end. It is a
// shell of process.AtEnd.
//
// A table with the flag owner would need no such help. But while there is one, nft up
// to 1.0.9 prints what "nft -j list ruleset" says of it from memory that is free
// already, for every caller on the host.
type Guard struct {
	input io.WriteCloser
	cmd   *exec.Cmd
	table string
}

// guardScript waits and deletes. Its arguments are nft, the table's name, and the
// command that waits. A table is deleted by its handle, which no later table of that
// name has; before the handle is known, by its name.
const guardScript = `trap '' HUP INT TERM QUIT TSTP PIPE
nft=$1 table=$2
shift 2
read -r handle
"$@" > /dev/null
what="$table"
[ -z "$handle" ] || what="handle $handle"
for pause in 1 2 4; do
	said=$(LC_ALL=C "$nft" delete table inet $what 2>&1) && exit
	case $said in *"No such file or directory"*) exit ;; esac
	sleep $pause
done`

// NewGuard starts a guard for a table of family inet that is to be made in the network
// namespace of the calling thread. After life it deletes the table also while the
// process is stopped or stuck, where the machine has timeout(1).
func NewGuard(table string, life time.Duration) (*Guard, error) {
	program, err := path()
	if err != nil {
		return nil, err
	}
	wait := []string{"cat"}
	if timeout, err := exec.LookPath("timeout"); err == nil {
		seconds := int64((life + time.Second - 1) / time.Second)
		wait = []string{timeout, "-s", "KILL", strconv.FormatInt(seconds, 10), "cat"} // as BusyBox knows it too
	}
	g := &Guard{table: table}
	if g.input, g.cmd, err = process.AtEnd("/bin/sh", guardScript, append([]string{program, table}, wait...)); err != nil {
		return nil, fmt.Errorf("start what takes table %s away: %w", table, err)
	}
	return g, nil
}

// Made tells the guard which table it guards, once it is there.
func (g *Guard) Made() error {
	const handleOfTable = 4 // NFTA_TABLE_HANDLE, eight bytes in network order
	var handle uint64
	err := dump(unix.NFT_MSG_GETTABLE, unix.NFPROTO_INET, func() { handle = 0 }, func(attribute func(kind uint16) []byte) {
		if value := attribute(handleOfTable); len(value) == 8 && unix.ByteSliceToString(attribute(unix.NFTA_TABLE_NAME)) == g.table {
			handle = binary.BigEndian.Uint64(value)
		}
	})
	switch {
	case err != nil:
		return fmt.Errorf("list the tables: %w", err)
	case handle == 0:
		return fmt.Errorf("%w: table %s", ErrNotThere, g.table)
	}
	if _, err := fmt.Fprintf(g.input, "%d\n", handle); err != nil {
		return fmt.Errorf("tell what takes table %s away: %w", g.table, err)
	}
	return nil
}

// Close lets the guard delete the table and waits until it has.
func (g *Guard) Close() error {
	// What it answers is of no use: it fails where somebody else was quicker.
	return errors.Join(g.input.Close(), ignoreExit(g.cmd.Wait()))
}

func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

package stories

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"sluice/internal/lab/testnet"
)

// postgres is a running PostgreSQL with pgbench's tables.
type postgres struct {
	bin string // directory of its programs
	at  netip.Addr
}

// postgresDir is where PostgreSQL's programs are: Debian has a directory for each
// version, and none of them in PATH.
func postgresDir() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) > 0 {
		slices.Sort(found)
		return filepath.Dir(found[len(found)-1]), nil
	}
	path, err := exec.LookPath("postgres")
	if err != nil {
		return "", errors.New("PostgreSQL is not installed\nhint: apt-get install postgresql")
	}
	return filepath.Dir(path), nil
}

func postgresPrograms() []string {
	dir, err := postgresDir()
	if err != nil {
		return []string{"postgres"} // whose absence is told where it is needed
	}
	var out []string
	for _, name := range []string{"postgres", "initdb", "pgbench"} {
		out = append(out, filepath.Join(dir, name))
	}
	return out
}

// postgresFiles are what PostgreSQL reads when a database is made: its library and
// its share directory, where it was built to find them.
func postgresFiles() map[string]string {
	dir, err := postgresDir()
	if err != nil {
		return nil
	}
	version := filepath.Base(filepath.Dir(dir))
	library := filepath.Join(filepath.Dir(dir), "lib")
	share := filepath.Join("/usr/share/postgresql", version)
	return map[string]string{library: library, share: share}
}

// nobody runs it: PostgreSQL refuses to be root's.
const nobody = 65534

func asNobody(program string, args ...string) []string {
	id := strconv.Itoa(nobody)
	return append([]string{"--reuid=" + id, "--regid=" + id, "--clear-groups", program}, args...)
}

// startPostgres makes a database in the story's folder and starts it in a namespace.
func startPostgres(ctx context.Context, s *Stage, in *testnet.Namespace, at netip.Addr) (*postgres, error) {
	bin, err := postgresDir()
	if err != nil {
		return nil, err
	}
	p := &postgres{bin: bin, at: at}
	data := filepath.Join(s.Dir, "postgres")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chown(data, nobody, nobody), os.Chmod(s.Dir, 0o711)); err != nil { //nolint:gosec // PostgreSQL passes through it
		return nil, err
	}
	s.Say("making a PostgreSQL database")
	args := asNobody(p.program("initdb"), "--pgdata", data, "--username", "bench", "--auth", "trust", "--encoding", "SQL_ASCII", "--locale", "C", "--no-sync", "--no-instructions")
	if out, err := in.RunContext(ctx, "", "setpriv", args...); err != nil {
		return nil, fmt.Errorf("make a database: %w\n%s", err, out)
	}
	hba, err := os.OpenFile(filepath.Join(data, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	_, err = hba.WriteString("host postgres bench 10.20.0.0/16 trust\n") // database and user
	if err := errors.Join(err, hba.Close()); err != nil {
		return nil, err
	}
	args = asNobody(p.program("postgres"), "-D", data)
	for _, setting := range []string{
		"listen_addresses=" + at.String(), "unix_socket_directories=", "fsync=off", "jit=off", "autovacuum=off",
		"max_connections=20", "shared_buffers=32MB", "log_timezone=GMT", "timezone=GMT",
	} {
		args = append(args, "-c", setting)
	}
	server := in.Start("setpriv", args...)
	if err := in.WaitTCP(netip.AddrPortFrom(at, databasePort), 2*time.Minute); err != nil {
		return nil, fmt.Errorf("PostgreSQL did not start: %w\n%s", err, server.Output())
	}
	for begun := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		out, err := p.run(ctx, in, "-i", "-q", "-s", "1")
		if err == nil {
			return p, nil
		}
		if time.Since(begun) > time.Minute || ctx.Err() != nil {
			return nil, fmt.Errorf("fill the database: %w\n%s\n%s", err, out, server.Output())
		}
	}
}

func (p *postgres) program(name string) string { return filepath.Join(p.bin, name) }

// bench asks so many queries, one after the other.
func (p *postgres) bench(ctx context.Context, from *testnet.Namespace, queries int) (string, error) {
	return p.run(ctx, from, "-S", "-n", "-M", "prepared", "-c", "1", "-t", strconv.Itoa(max(1, queries)))
}

func (p *postgres) run(ctx context.Context, from *testnet.Namespace, args ...string) (string, error) {
	out, err := from.RunContext(ctx, "", p.program("pgbench"), append(args, "-h", p.at.String(), "-U", "bench", "postgres")...)
	if err != nil {
		return out, fmt.Errorf("pgbench: %w", err)
	}
	return out, nil
}

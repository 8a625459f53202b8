package testnet

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Postgres is a PostgreSQL server of a test's own, on a Unix socket in its folder.
type Postgres struct {
	// Dir is empty for a new folder, which Stop removes. It holds a socket, so it is short.
	Dir string
	// Sync has commits wait for the disk.
	Sync bool

	bin    string
	cmd    *exec.Cmd
	output bytes.Buffer
}

// PostgresHere says why this machine has no PostgreSQL, for [Lacks].
func PostgresHere() error {
	_, err := postgresDir()
	return err
}

// postgresDir is where its programs are: Debian has a directory for each version.
func postgresDir() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "", errors.New("no /usr/lib/postgresql/*/bin/postgres; apt-get install postgresql")
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

// nobody runs PostgreSQL where root runs the tests: it refuses to be root's.
const nobody = 65534

func (p *Postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	// SIGQUIT ends the server and all its processes, should the tests be killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.Dir, &p.output, &p.output
	return cmd
}

// Start makes a cluster, and runs it. Its superuser is called fleet, and has no password.
func (p *Postgres) Start() (err error) {
	if p.bin, err = postgresDir(); err != nil {
		return err
	}
	if p.Dir == "" {
		if p.Dir, err = os.MkdirTemp("", "sluice-postgres-"); err != nil {
			return err
		}
	}
	if os.Getuid() == 0 {
		if err := os.Chown(p.Dir, nobody, nobody); err != nil {
			return err
		}
	}
	data := filepath.Join(p.Dir, "data")
	if err := p.command("initdb", "--pgdata", data, "--username", "fleet", "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions", "--wal-segsize=1").Run(); err != nil {
		return fmt.Errorf("make a database cluster: %w\n%s", err, &p.output)
	}
	return p.Run()
}

// Run starts the server again, and waits until it answers.
func (p *Postgres) Run() error {
	args := []string{"-D", filepath.Join(p.Dir, "data")}
	sync := "off" // nobody's machine dies here
	if p.Sync {
		sync = "on"
	}
	for _, setting := range []string{
		"listen_addresses=", "unix_socket_directories=" + p.Dir, "fsync=" + sync, "jit=off", "autovacuum=off",
		"max_connections=200", "shared_buffers=32MB", "log_timezone=GMT", "timezone=GMT",
	} {
		args = append(args, "-c", setting)
	}
	p.cmd = p.command("postgres", args...)
	// The thread that starts it must last, or the signal of its death comes early.
	errs := make(chan error)
	starter() <- func() { errs <- p.cmd.Start() }
	if err := <-errs; err != nil {
		return err
	}
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := exec.Command(filepath.Join(p.bin, "pg_isready"), "--quiet", "--host", p.Dir).Run()
		if err == nil {
			return nil
		}
		if time.Since(begun) > time.Minute {
			return fmt.Errorf("PostgreSQL does not answer: %w\n%s", err, &p.output)
		}
	}
}

// Halt ends the server as if its machine had died.
func (p *Postgres) Halt() error {
	err := p.cmd.Process.Signal(syscall.SIGQUIT)
	_ = p.cmd.Wait() // it says that it was killed
	return err
}

// Stop halts it, and removes its folder.
func (p *Postgres) Stop() {
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.Halt()
	}
	if p.Dir != "" {
		_ = os.RemoveAll(p.Dir)
	}
}

// Address is that of one of its databases: "postgres" is there from the first day.
func (p *Postgres) Address(database string) string {
	return (&url.URL{Scheme: "postgres", User: url.User("fleet"), Path: "/" + database, RawQuery: url.Values{"host": {p.Dir}}.Encode()}).String()
}

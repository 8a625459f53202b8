package cli

import (
	"crypto/ed25519"
	"encoding/json"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"sluice/internal/fleet/trust"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func has(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

// fleetFolders are where a fleet of a test begins.
func fleetFolders(t *testing.T) (repository, keys, controller string, line []string) {
	dir := t.TempDir()
	repository, keys, controller = filepath.Join(dir, "fleet"), filepath.Join(dir, "keys"), filepath.Join(dir, "controller")
	return repository, keys, controller, []string{"init", "--fleet", "example.net", "--repository", repository, "--keys", keys, "--dir", controller, "--no-passphrase"}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	ok(t, os.MkdirAll(filepath.Dir(name), 0o755))
	ok(t, os.WriteFile(name, []byte(text), 0o644))
}

func TestInitAndSign(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "")
	repository, keys, controller, line := fleetFolders(t)
	sign := func(want int, more ...string) (string, string) {
		return run(t, want, append([]string{"sign", "--repository", repository, "--key", filepath.Join(keys, "policy.pem")}, more...)...)
	}
	_, errOut := sign(2)
	has(t, errOut, "no fleet is here", "hint: sluice-controller init")
	out, _ := run(t, 0, line...)
	has(t, out, "Created the fleet example.net", filepath.Join(keys, "root-3.pem"), filepath.Join(keys, "ca.pem"), "warning: the key files are not encrypted", "sluice-controller sign --repository")
	_, errOut = run(t, 2, line...)
	has(t, errOut, "fleet.yaml: file already exists: nothing was made", "hint: ")
	for _, name := range []string{filepath.Join(keys, "policy.pem"), filepath.Join(controller, "trust.json"), filepath.Join(controller, "ca-key.pem")} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}

	out, _ = sign(0, "--dry-run")
	has(t, out, "bundle 1 of example.net", "+ fleet.yaml", "+ parts/10-base.yaml", "\n  valid until ")
	if strings.Contains(out, "floor") || strings.Contains(out, "incarnation") {
		t.Errorf("what nobody has set is said: %s", out)
	}
	out, errOut = sign(0)
	has(t, out, "bundle 1 of example.net")
	has(t, errOut, "signed bundle 1 until", "warning: without inventory.yaml each part is read by itself", "hint: once hosts have enrolled, sluice-controller inventory writes it")
	write(t, filepath.Join(repository, "parts/50-web.yaml"), "version: 1\nhosts: role=web\nsets: {office: {file: office.txt}}\ninput: {rules: [allow http from office]}\n")
	_, errOut = sign(2)
	has(t, errOut, "parts/50-web.yaml names a file that is not there")
	write(t, filepath.Join(repository, "parts/office.txt"), "198.51.100.0/24\n")
	out, _ = sign(0, "--floor", "2", "--json")
	var said signedJSON
	ok(t, json.Unmarshal([]byte(out), &said))
	if said.Bundle.Number != 2 || said.Floor != 2 || !said.New || strings.Join(said.Changed, " ") != "+parts/50-web.yaml +parts/office.txt" || said.Signatures != 1 {
		t.Errorf("signed %+v", said)
	}
	out, _ = sign(0)
	has(t, out, "bundle 2 of example.net, which nothing has changed since", "floor 2: no host goes back to a bundle below it")
	_, errOut = sign(2, "--floor", "1")
	has(t, errOut, "a floor cannot be lowered")
	_, errOut = run(t, 2, "sign", "--repository", repository, "--key", filepath.Join(keys, "root-1.pem"))
	has(t, errOut, "root-1.pem has the key ")
	_, errOut = run(t, 2, "sign", "--repository", repository)
	has(t, errOut, "nothing to sign with", "hint: --key FILE")

	// What was signed is what a controller publishes and hosts take.
	r, err := trust.OpenRepository(repository)
	ok(t, err)
	m, err := r.Metadata()
	ok(t, err)
	online, err := trust.OpenOnline(controller)
	ok(t, err)
	ok(t, online.Publish(m, time.Now()))
	m, err = online.Refresh("", time.Now())
	ok(t, err)
	host, err := trust.NewHost(t.TempDir(), r.Root())
	ok(t, err)
	ok(t, host.Update(m, time.Now()))
	b, err := host.Bundle(2, 1, time.Now())
	ok(t, err)
	texts, err := r.Manifests()
	ok(t, err)
	manifest, err := b.Manifest(texts[b.SHA256])
	ok(t, err)
	files, err := manifest.Select("web-1", map[string]string{"role": "web"})
	ok(t, err)
	if len(files) != 4 || files[3].Path != "parts/office.txt" || files[3].Selector != "role=web" {
		t.Errorf("files %+v", files)
	}

	// What check calls an error is not signed.
	write(t, filepath.Join(repository, "inventory.yaml"), "version: 1\nhosts: {db-1: {labels: {role: db}}}\n")
	write(t, filepath.Join(repository, "parts/50-db.yaml"), "version: 1\nhosts: role=db\nexpect: [allow postgresql from admins]\n")
	_, errOut = sign(2)
	has(t, errOut, "parts/50-db.yaml:3:")
	ok(t, os.Remove(filepath.Join(repository, "parts/50-db.yaml")))
	sign(0)

	// A policy that cannot be read is not signed; nor is that of another fleet.
	write(t, filepath.Join(repository, "parts/60-bad.yaml"), "version: 1\nhosts: role=\n")
	_, errOut = sign(2)
	has(t, errOut, "parts/60-bad.yaml:2:")
	ok(t, os.Remove(filepath.Join(repository, "parts/60-bad.yaml")))
	write(t, filepath.Join(repository, "fleet.yaml"), "version: 1\nfleet: example.org\nparts: [parts/*.yaml]\n")
	_, errOut = sign(2)
	has(t, errOut, "fleet.yaml:2:8", `this is the fleet "example.org"`)
}

// Policies signed by two keys in two ssh-agents, one after the other.
func TestSignBySSHAgents(t *testing.T) {
	repository, keys, _, line := fleetFolders(t)
	var sockets []string
	for _, name := range []string{"a", "b"} {
		public, private, err := ed25519.GenerateKey(nil)
		ok(t, err)
		sockets = append(sockets, sshAgent(t, private))
		key, err := ssh.NewPublicKey(public)
		ok(t, err)
		file := filepath.Join(filepath.Dir(keys), name+".pub")
		write(t, file, string(ssh.MarshalAuthorizedKey(key)))
		line = append(line, "--policy-key", file)
	}
	t.Setenv("SSH_AUTH_SOCK", sockets[0])
	_, errOut := run(t, 2, append(line, "--policy-threshold", "3")...)
	has(t, errOut, "--policy-threshold 3, and 2 policy keys", "hint: give --policy-key")
	out, _ := run(t, 0, append(line, "--policy-threshold", "2")...)
	has(t, out, "policies are signed by the keys that you gave")
	_, errOut = run(t, 1, "sign", "--repository", repository)
	has(t, errOut, "bundle 1 lacks 1 signature: commit trust/")
	t.Setenv("SSH_AUTH_SOCK", sockets[1])
	_, errOut = run(t, 0, "sign", "--repository", repository)
	has(t, errOut, "signed bundle 1 until")
	t.Setenv("SSH_AUTH_SOCK", sshAgent(t, nil))
	_, errOut = run(t, 2, "sign", "--repository", repository)
	has(t, errOut, "no ssh-agent has one of them")
	_, private, err := ed25519.GenerateKey(nil)
	ok(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	ok(t, err)
	write(t, filepath.Join(repository, "id"), string(pem.EncodeToMemory(block)))
	_, errOut = run(t, 2, "sign", "--repository", repository, "--key", filepath.Join(repository, "id"))
	has(t, errOut, "hint: --key is for key files of this fleet; a key of ssh signs from the ssh-agent")
}

// sshAgent serves an ssh-agent with one key at a socket.
func sshAgent(t *testing.T, key ed25519.PrivateKey) string {
	dir := t.TempDir()
	ring := agent.NewKeyring()
	if key != nil {
		ok(t, ring.Add(agent.AddedKey{PrivateKey: key}))
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	ok(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(ring, conn) }()
		}
	}()
	return filepath.Join(dir, "s")
}

func TestInitEncrypts(t *testing.T) {
	if testing.Short() {
		t.Skip("long form only: scrypt takes seconds on purpose")
	}
	t.Setenv("SSH_AUTH_SOCK", "")
	repository, keys, _, line := fleetFolders(t)
	line = append(line[:len(line)-1], "--root-keys", "1", "--root-threshold", "1")
	secret := filepath.Join(t.TempDir(), "passphrase")
	write(t, secret, "\n")
	t.Setenv("SLUICE_PASSPHRASE_FILE", secret)
	_, errOut := run(t, 2, line...)
	has(t, errOut, "its first line is empty")
	write(t, secret, "correct horse\n")
	run(t, 0, line...)
	text, err := os.ReadFile(filepath.Join(keys, "policy.age"))
	ok(t, err)
	has(t, string(text), "-----BEGIN AGE ENCRYPTED FILE-----")
	run(t, 0, "sign", "--repository", repository, "--key", filepath.Join(keys, "policy.age"))
	write(t, secret, "wrong\n")
	_, errOut = run(t, 2, "sign", "--repository", repository, "--key", filepath.Join(keys, "policy.age"))
	has(t, errOut, "policy.age: the passphrase is wrong")
}

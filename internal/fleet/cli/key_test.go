package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestKey(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "")
	repository, keys, controller, line := fleetFolders(t)
	run(t, 0, line...)
	file := func(name string) string { return filepath.Join(keys, name+".pem") }
	key := func(want int, args ...string) (string, string) {
		return run(t, want, append(append([]string{"key"}, args...), "--repository", repository)...)
	}
	listed := func() (l listedKeys, byRole map[string][]string) {
		out, _ := key(0, "list", "--json")
		ok(t, json.Unmarshal([]byte(out), &l))
		byRole = map[string][]string{}
		for _, r := range l.Roles {
			byRole[r.Role] = r.Keys
		}
		return l, byRole
	}
	out, _ := key(0, "list")
	has(t, out, "root.json of example.net, version 1", "root       2 of", "policy     1 of", "live       1 of")
	_, before := listed()
	run(t, 0, "sign", "--repository", repository, "--key", file("policy"))

	roots := []string{"--key", file("root-1"), "--key", file("root-2")}
	_, errOut := key(2, append([]string{"rotate", "policy"}, roots...)...)
	has(t, errOut, "either --keys, where the new key is made, or --new")
	_, errOut = key(2, append([]string{"rotate", "root"}, roots...)...)
	has(t, errOut, "--drop says which root key is replaced")
	_, errOut = key(2, append([]string{"rotate", "root", "--drop", "zz"}, roots...)...)
	has(t, errOut, "--drop zz names 0 keys")
	_, errOut = key(2, "rotate", "tea")
	has(t, errOut, `role "tea"`)
	_, errOut = key(2, "rotate", "policy", "--keys", keys, "--key", file("policy"))
	has(t, errOut, "and root.json accepts only these: "+strings.Join(before["root"], ", "))

	_, errOut = key(0, append([]string{"rotate", "policy", "--keys", keys, "--no-passphrase"}, roots...)...)
	has(t, errOut, "policy-2.pem", "version 2 of root.json is in force", "sign with a policy key of it before you publish")
	_, errOut = run(t, 2, "publish", "--repository", repository, "--dir", controller)
	has(t, errOut, "what is signed has 0 of 1 signature", "hint: sluice-controller sign")
	_, errOut = run(t, 2, "sign", "--repository", repository, "--key", file("policy"))
	has(t, errOut, "policy.pem has the key "+before["policy"][0], "hint: sluice-controller key list")
	run(t, 0, "sign", "--repository", repository, "--key", file("policy-2"))

	// One holder begins, another one ends it.
	_, errOut = key(1, "rotate", "root", "--drop", before["root"][0][:8], "--keys", keys, "--no-passphrase", "--key", file("root-2"))
	has(t, errOut, "version 3 of root.json lacks 1 signature")
	out, _ = key(0, "list")
	has(t, out, "\nversion 3 of root.json lacks 1 signature: ")
	if l, _ := listed(); l.Pending == nil || l.Pending.Version != 3 || l.Pending.Missing != 1 {
		t.Errorf("%+v", l.Pending)
	}
	_, errOut = key(0, "sign", "--key", file("root-3"))
	has(t, errOut, "version 3 of root.json is in force")
	_, errOut = key(2, "sign", "--key", file("root-3"))
	has(t, errOut, "no new root.json waits")
	roots = []string{"--key", file("root-2"), "--key", file("root-4")}
	for _, role := range []string{"snapshot", "timestamp", "live"} {
		key(0, append([]string{"rotate", role, "--dir", controller}, roots...)...)
	}
	key(0, "rotate", "ca", "--dir", controller, "--ca-key", file("ca"))
	_, errOut = key(2, "rotate", "ca", "--dir", controller, "--ca-key", file("policy-2"))
	has(t, errOut, "its key is another one")
	key(0, append([]string{"renew"}, roots...)...)
	_, errOut = key(2, "renew", "--key", file("root-1"))
	has(t, errOut, "root.json accepts only these")

	l, after := listed()
	if l.Version != 7 {
		t.Errorf("version %d", l.Version)
	}
	for role, keys := range after {
		if keys[len(keys)-1] == before[role][len(before[role])-1] {
			t.Errorf("%s was not replaced: %v", role, keys)
		}
	}
}

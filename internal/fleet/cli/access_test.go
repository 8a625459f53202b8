package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
)

// TestElsewhere: commands ask a controller elsewhere by a token, within its role, until it
// is withdrawn.
func TestElsewhere(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	f := found(t)
	defer f.serve(t)()
	is, err := api.NewClient(f.dir).Status(t.Context())
	ok(t, err)
	at, ca := is.Web, filepath.Join(f.dir, "ca.pem")
	for line, want := range map[string]string{
		"access create a b --role viewer":              "wrong number of arguments: 2",
		"access create ci":                             "--role is missing",
		"access create ci --role root":                 "it is viewer, operator or admin",
		"access create ci --role viewer --for 0s":      "--for 0: it would expire at once",
		"access create ci --role viewer --for -1h":     "write 30s, 10m, 1h30m or 1d",
		"access create ci --role viewer --for 9000h":   "within 366 days",
		"access create ci --role viewer --hosts role=": "--hosts: expected a value",
		"access create \x1b[31m --role viewer":         "letters, digits and . _ -",
		"access withdraw nobody":                       "hint: sluice-controller access list",
		"token withdraw nobody":                        "hint: sluice-controller token list",
		"hosts --token-file token":                     "--token-file is for a controller elsewhere",
		"run --web-certificate a --web-key b":          "another controller runs",
		"hosts --dir " + f.dir + " --controller " + at: "--controller and --dir exclude each other",
	} {
		words := strings.Split(line, " ")
		if !strings.Contains(line, "--dir") && !strings.Contains(line, "--token-file") {
			words = append(words, "--dir", f.dir)
		}
		if _, errOut := run(t, 2, words...); !strings.Contains(errOut, want) {
			t.Errorf("%q: %s", line, errOut)
		}
	}
	token, said := run(t, 0, "access", "create", "ci", "--role", "operator", "--hosts", "env=prod", "--dir", f.dir)
	if !strings.Contains(said, "token:ci may use the controller as operator for hosts of env=prod until") {
		t.Error(said)
	}
	file := filepath.Join(t.TempDir(), "token")
	ok(t, os.WriteFile(file, []byte(token), 0o600))

	elsewhere := func(want int, line ...string) (out, errOut string) {
		t.Helper()
		return run(t, want, append(line, "--controller", at, "--ca", ca)...)
	}
	if out, _ := elsewhere(0, "hosts", "--token-file", file); out != "no host\n" {
		t.Error(out)
	}
	var o, e bytes.Buffer
	if status := command.Run(Root(), []string{"hosts", "--controller", at, "--ca", ca, "--token-file", "-"}, strings.NewReader(token), &o, &e); status != 0 {
		t.Errorf("the token on standard input: %s", &e)
	}
	if _, errOut := run(t, 2, "hosts", "--controller", at, "--token-file", file); !strings.Contains(errOut, "hint: --ca FILE names its CA") {
		t.Error(errOut)
	}
	if _, errOut := elsewhere(2, "hosts"); !strings.Contains(errOut, "hint: sluice-controller login logs you in; --token-file FILE") {
		t.Error(errOut)
	}
	for _, wrong := range []string{strings.Replace(at, "https", "http", 1), at[8:], at + "/x", "https://a:b@" + at[8:]} {
		if _, errOut := run(t, 2, "hosts", "--controller", wrong, "--token-file", file); !strings.Contains(errOut, "is not a controller: it is https://HOST:PORT") {
			t.Errorf("%s: %s", wrong, errOut)
		}
	}
	if _, errOut := elsewhere(2, "audit", "list", "--token-file", file); !strings.Contains(errOut, "token:ci has the role operator for hosts of env=prod, and this is of all hosts") {
		t.Error(errOut)
	}
	if _, errOut := elsewhere(2, "access", "list", "--token-file", file); !strings.Contains(errOut, "token:ci has the role operator, and this requires the role admin") {
		t.Error(errOut)
	}
	t.Setenv(controllerVariable, at)
	t.Setenv(tokenVariable, "sluice_access_x")
	if _, errOut := run(t, 2, "hosts", "--ca", ca); !strings.Contains(errOut, "$SLUICE_TOKEN: not a token") {
		t.Error(errOut)
	}
	t.Setenv(tokenVariable, token)
	run(t, 0, "hosts", "--ca", ca)

	all := api.Accesses{}
	out, _ := run(t, 0, "access", "list", "--dir", f.dir, "--json")
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all.Access) != 1 || all.Access[0].Hosts != "env=prod" || all.Access[0].Used.Before(all.Access[0].Created) || strings.Contains(out, strings.TrimSpace(token)) {
		t.Fatal(err, out)
	}
	run(t, 0, "access", "withdraw", all.Access[0].Id, "--dir", f.dir)
	if _, errOut := run(t, 2, "hosts", "--ca", ca); !strings.Contains(errOut, "the token was withdrawn\nhint: ") {
		t.Error(errOut)
	}
	if out, _ := run(t, 0, "access", "list", "--dir", f.dir); !strings.Contains(out, "withdrawn 2") || strings.Contains(out, "never") {
		t.Error(out)
	}

	admin, _ := run(t, 0, "access", "create", "ci", "--role", "admin", "--dir", f.dir)
	if out, _ := run(t, 0, "access", "list", "--dir", f.dir); !strings.Contains(out, "  never  ") {
		t.Error(out)
	}
	t.Setenv(tokenVariable, admin)
	enrols, _ := run(t, 0, "token", "create", "--repository", f.repository, "--labels", "env=prod", "--ca", ca)
	enrol(t, "web-1", enrols)
	out, _ = run(t, 0, "token", "list", "--ca", ca)
	if !strings.Contains(out, "1 of 1") || !strings.Contains(out, "token:ci") || !strings.Contains(out, "env=prod") {
		t.Error(out)
	}
	id, _, _ := strings.Cut(strings.Split(out, "\n")[1], " ")
	run(t, 0, "token", "withdraw", id, "--ca", ca)
	run(t, 2, "token", "withdraw", id, "--ca", ca)
	if out, _ := run(t, 0, "audit", "list", "--ca", ca); !strings.Contains(out, "token:ci") || !strings.Contains(out, "token.withdraw") {
		t.Error(out)
	}
}

// TestLogin: a link logs a person in once, and the commands after it ask by that.
func TestLogin(t *testing.T) {
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	f := found(t)
	defer f.serve(t)()
	is, err := api.NewClient(f.dir).Status(t.Context())
	ok(t, err)
	ca := filepath.Join(f.dir, "ca.pem")
	for line, want := range map[string]string{
		"access link \x1b[31m --dir " + f.dir:                                "a user has a name",
		"access link a --role root --dir " + f.dir:                           "is not a role",
		"access link a --hosts env=prod --dir " + f.dir:                      "hosts are of a role",
		"access link a --for 25h --dir " + f.dir:                             "a link ends within a day",
		"login x":                                                            "nor a link to log in",
		"login " + is.Web + "/login?link=x":                                  "nor a link to log in",
		"login " + is.Web + "/login?link=" + api.NewSecret():                 "hint: --ca FILE",
		"login --ca " + ca + " " + is.Web + "/login?link=" + api.NewSecret(): "the link was used or has expired",
		"logout --controller " + is.Web:                                      "hint: sluice-controller login logs you in",
		"logout":                                                             "is not a controller",
	} {
		if _, errOut := run(t, 2, strings.Split(line, " ")...); !strings.Contains(errOut, want) {
			t.Errorf("%q: %s", line, errOut)
		}
	}
	link, said := run(t, 0, "access", "link", "Erika@example.net", "--role", "admin", "--dir", f.dir)
	if !strings.Contains(said, "user:erika@example.net can log in once until") {
		t.Error(said)
	}
	link = strings.TrimSpace(link)
	out, said := run(t, 0, "login", link, "--ca", ca)
	if !strings.Contains(out, "as user:erika@example.net until") || !strings.Contains(out, "  admin for all hosts\n") || !strings.Contains(said, "export SLUICE_CONTROLLER="+is.Web) {
		t.Error(out, said)
	}
	if _, errOut := run(t, 2, "login", link, "--ca", ca); !strings.Contains(errOut, "the link was used or has expired") {
		t.Error(errOut)
	}
	if info, err := os.Stat(filepath.Join(config, "sluice-controller", "sessions.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	t.Setenv(controllerVariable, is.Web)
	run(t, 0, "hosts")
	if out, _ := run(t, 0, "access", "list"); !strings.Contains(out, "session  user:erika@example.net  admin") || strings.Count(out, "link") != 1 {
		t.Error(out)
	}
	run(t, 0, "logout")
	if _, errOut := run(t, 2, "hosts"); !strings.Contains(errOut, "hint: sluice-controller login logs you in") {
		t.Error(errOut)
	}
	if out, _ := run(t, 0, "access", "list", "--dir", f.dir); strings.Count(out, "withdrawn") != 2 {
		t.Error(out)
	}
	token, _ := run(t, 0, "access", "create", "ci", "--role", "viewer", "--dir", f.dir)
	t.Setenv(tokenVariable, token)
	if _, errOut := run(t, 2, "logout", "--ca", ca); !strings.Contains(errOut, "a token is withdrawn by its id") {
		t.Error(errOut)
	}
	ok(t, os.WriteFile(filepath.Join(config, "sluice-controller", "sessions.json"), []byte("{"), 0o600))
	t.Setenv(tokenVariable, "")
	if _, errOut := run(t, 2, "hosts"); !strings.Contains(errOut, "hint: remove it, and log in again") {
		t.Error(errOut)
	}
}

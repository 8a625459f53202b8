package cli

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/testgolden"
	"sluice/internal/engine"
	fleet "sluice/internal/fleet/cli"
	lab "sluice/internal/lab/cli"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/source"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	if os.Getenv(renamedVariable) != "" {
		source.Renames = renamed
	}
	testscript.Main(m, map[string]func(){
		"sluice": func() {
			quietTime = time.Hour // a busy machine is no reason for another word
			if os.Getenv("SLUICE_SOCKET") == "" {
				through = func(h *engine.Host, here string) door { return wire{h, here} }
			}
			os.Exit(Main(os.Args[1:]))
		},
		"sluice-controller": func() { os.Exit(fleet.Main(os.Args[1:])) },
		"sluice-lab":        func() { os.Exit(lab.Main(os.Args[1:])) },
	})
}

// TestScripts runs testdata/script. Beside the commands of testscript there are:
//
//	exits STATUS PROGRAM ARG...   runs a program and checks its exit status
//	serve DIR                     serves a folder over HTTP on loopback, its URL in $HTTP;
//	                              behind netns, on the host's loopback at port 8000
//	netns                         makes a host and a client, see scriptNetns
//	connects ADDRESS:PORT         the client of netns gets through to the host
//	eventually PROGRAM ARG...     runs a program again and again until it succeeds
//	screen STEPS PROGRAM ARG...   runs a program on a terminal, see scriptScreen
//	calibrated [CONSTANT=VALUE]   stores what "bench calibrate" would, see scriptCalibrated
//
// and the conditions [agent], of TestScriptsByAgent, and [namespaces], [flowtables],
// [prometheus] and others: what the machine has. With
// CI=true a machine that lacks one fails the script that asks, as
// testnet.Require does.
//
// The state directory of every script is $WORK/state.
func TestScripts(t *testing.T) { runScripts(t, false) }

// notByAgent are scripts that an agent would make another of.
var notByAgent = []string{
	"agent", "agent_answers", "agent_capabilities", "agent_drift", "agent_due", "agent_faults", "agent_fleet", "agent_fleet_bans", "agent_fleet_guests", "agent_fleet_labels", "agent_fleet_lists", "agent_fleet_live", "agent_fleet_machines", "agent_fleet_netns", "agent_fleet_own", "agent_fleet_questions", "agent_fleet_share", "fleet_refused", "rights", "agent_interrupt", "agent_log", "agent_metrics", "agent_namespaces", "agent_page", "agent_prometheus", "agent_samples", "agent_users", "ci", "crowdsec_fleet", "day", "fail2ban_fleet", // start their own
	"log",           // it reads the group itself
	"renamed_apply", // an agent's workers have no table of a test's own
	// They look at what sync applies, which an agent does at once.
	"sync", "sync_addresses", "sync_compared", "sync_damaged", "sync_exempt", "sync_lan",
}

// changesByAgent is what an agent does in place of a command that changes something.
var changesByAgent = regexp.MustCompile(`sluice (allow|disallow|conntrack|ban|unban|confirm|plan|refresh|remove|restore|rollback|set|top) `)

// alikeByAgent are scripts whose commands ask an agent the same way as those of others do:
// verify as restore does, set as set_filled, fail2ban and ban_country as ban, edit as apply and
// confirm. The long form has them.
var alikeByAgent = []string{
	"allow_over_ban", "apply_meaning", "apply_ssh", "apply_unchanged", "ban_country", "bench_calibrate_apply", "closed", "counters", "crowdsec",
	"default_route_names", "edit", "explain_live_limits", "fail2ban", "fleet_guests", "include_only", "nat_tables", "plan_meaning", "profile",
	"restore_damaged", "running", "set", "status", "status_counters", "status_countries", "sync_fixed", "sync_flush", "sync_follow", "sync_renamed",
	"test_apply", "top_screen", "verify", "verify_beside", "widen",
}

// TestScriptsByAgent runs the scripts that have a network namespace, with an agent that
// commands ask: what they print and end with is the same. The short form is of those that
// have it change something.
func TestScriptsByAgent(t *testing.T) { runScripts(t, true) }

func runScripts(t *testing.T, byAgent bool) {
	t.Helper()
	dir := filepath.Join("testdata", "script")
	var files []string
	if byAgent {
		all, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range all {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name := strings.TrimSuffix(filepath.Base(file), ".txtar")
			if bytes.Contains(text, []byte("\nnetns\n")) && !slices.Contains(notByAgent, name) && (!testing.Short() || changesByAgent.Match(text) && !slices.Contains(alikeByAgent, name)) {
				files = append(files, file)
			}
		}
		dir = ""
	}
	document := document(t)
	packaging, err := filepath.Abs(filepath.Join("..", "..", "packaging"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		Files:               files,
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		UpdateScripts:       testgolden.Update(),
		Setup: func(env *testscript.Env) error {
			env.Setenv("SLUICE_STATE_DIR", filepath.Join(env.WorkDir, "state"))
			env.Setenv("NO_COLOR", "1")
			env.Setenv("PACKAGING", packaging)
			env.Setenv(documentVariable, document)
			if byAgent {
				env.Setenv(agentVariable, "1")
			}
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name == "agent" {
				return byAgent, nil
			}
			return scriptCondition(name)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":      scriptExits,
			"serve":      scriptServe,
			"netns":      scriptNetns,
			"connects":   scriptConnects,
			"described":  scriptDescribed,
			"eventually": scriptEventually,
			"calibrated": scriptCalibrated,
			"screen":     scriptScreen,
		},
	})
}

// scriptDescribed says that a file is what the document of the local API calls so.
func scriptDescribed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: described SCHEMA FILE")
	}
	ts.Check(describedIn(ts.Getenv(documentVariable), args[0], []byte(ts.ReadFile(args[1]))))
}

func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func scriptServe(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serve DIR")
	}
	s := httptest.NewUnstartedServer(serveFiles(ts.MkAbs(args[0])))
	if host, made := hosts.Load(ts.Getenv("WORK")); made {
		ts.Check(host.(*testnet.Namespace).Do(func() (err error) {
			_ = s.Listener.Close()
			s.Listener, err = net.Listen("tcp", "127.0.0.1:8000")
			return err
		}))
	}
	s.Start()
	ts.Defer(s.Close)
	ts.Setenv("HTTP", s.URL)
}

// serveFiles tells contents apart by their ETag, since scripts are quicker than
// the second of a file's time.
func serveFiles(dir string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := os.ReadFile(filepath.Join(dir, filepath.Clean("/"+r.URL.Path)))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(data)))
		http.ServeContent(w, r, r.URL.Path, time.Time{}, bytes.NewReader(data))
	})
}

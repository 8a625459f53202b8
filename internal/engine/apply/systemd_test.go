package apply

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"sluice/internal/lab/testnet"
)

// fakeSystemd makes a folder with a systemd-run whose timer goes off when there is a
// file "now", and which writes "over" behind it, and a systemctl. Both note what they
// were asked.
func fakeSystemd(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	scripts := map[string]string{
		"systemd-run": `#!/bin/sh
echo "$@" >> ` + dir + `/log
while [ "$1" != -- ]; do shift; done
shift
setsid sh -c 'until [ -e "$0/now" ]; do [ -d "$0" ] || exit; sleep 0.05; done; "$@"; : >"$0/over"' ` + dir + ` "$@" >/dev/null 2>&1 </dev/null &
`,
		"systemctl": "#!/bin/sh\necho systemctl \"$@\" >> " + dir + "/log\n",
	}
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// goOff makes the timer of a [fakeSystemd] go off and waits for the end of its command.
func goOff(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "now"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, "the timer's command is over", func() bool { return exists(filepath.Join(dir, "over")) })
}

func TestTimerGoesBack(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	dir := fakeSystemd(t)
	l.must(command{Op: "apply", Policy: "a"})
	l.must(command{Op: "apply", Policy: "b", Confirm: time.Hour, Systemd: dir})
	s := l.status()
	if s.Pending == nil || !strings.HasPrefix(s.Pending.Watcher, "unit sluice-confirm-") {
		t.Fatalf("pending: %+v", s.Pending)
	}
	l.endTrial()
	goOff(t, dir)
	l.await("a")
	l.settled()
	if s := l.status(); s.Pending != nil || !s.Fine() {
		t.Errorf("status: %+v", s)
	}
}

func TestConfirmStopsTimer(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	dir := fakeSystemd(t)
	l.must(command{Op: "apply", Policy: "a", Confirm: time.Hour, Systemd: dir})
	unit := l.status().Pending.Unit
	l.must(command{Op: "confirm", Systemd: dir})
	said, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--unit=" + unit, "--collect", "systemctl stop " + unit + ".timer"} {
		if !strings.Contains(string(said), want) {
			t.Errorf("systemd was not told %q:\n%s", want, said)
		}
	}
	if !regexp.MustCompile(`--on-active=3\d{6}ms`).Match(said) {
		t.Errorf("systemd was not told the hour:\n%s", said)
	}
	// The timer of this test goes off anyway: it finds nothing to do.
	goOff(t, dir)
	l.wantHolds("a")
}

// TestUnits has systemd itself read the units.
func TestUnits(t *testing.T) {
	testnet.Require(t, testnet.Program("systemd-analyze"))
	dir := t.TempDir()
	var files []string
	for unit, as := range map[string]string{
		"sluice.service": "sluice.service", "sluice-netns@.service": "sluice-netns@one.service", "sluice-sync.service": "sluice-sync.service",
		"sluice-agent.service": "sluice-agent.service", "sluice-controller.service": "sluice-controller.service",
		"sluice-sync@.service":   "sluice-sync@one.service",
		"sluice-refresh.service": "sluice-refresh.service", "sluice-refresh.timer": "sluice-refresh.timer",
		"sluice-refresh@.service": "sluice-refresh@one.service", "sluice-refresh@.timer": "sluice-refresh@one.timer",
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "packaging", "systemd", unit))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, as)
		if err := os.WriteFile(file, []byte(regexp.MustCompile(`/usr/sbin/sluice\S*`).ReplaceAllString(string(text), "/bin/true")), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	out, err := exec.Command("systemd-analyze", append([]string{"verify", "--man=no"}, files...)...).CombinedOutput()
	if err != nil || strings.Contains(string(out), dir) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	early := []string{"DefaultDependencies=no", "Before=network-pre.target shutdown.target", "Wants=network-pre.target", "Conflicts=shutdown.target", "WantedBy=sysinit.target"}
	for unit, wants := range map[string][]string{
		"sluice.service":       early,
		"sluice-sync.service":  append([]string{"After=sluice.service", "Type=notify"}, early...),
		"sluice-agent.service": {"After=sluice.service sluice-sync.service", "Type=notify", "Before=network-pre.target shutdown.target", "Conflicts=shutdown.target sluice-sync.service"},
		"sluice-sync@.service": {"After=sluice-netns@%i.service", "Type=notify"},
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "packaging", "systemd", unit))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(text), want+"\n") {
				t.Errorf("%s lacks %s", unit, want)
			}
		}
	}
}

// TestFollowReady has systemd wait for the first sync, which finds a state or none, or a
// damaged one.
func TestFollowReady(t *testing.T) {
	for _, state := range []string{"none", "applied", "damaged"} {
		t.Run(state, func(t *testing.T) {
			l := newLab(t)
			if state != "none" {
				l.must(command{Op: "apply", Policy: "a"})
			}
			if state == "damaged" {
				if err := os.WriteFile(filepath.Join(l.dir, generationsDir, "1.json"), []byte("rubbish"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(t.TempDir(), "notify")
			conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			t.Setenv("NOTIFY_SOCKET", path)
			said := make([]byte, 64)
			l.inside(func(ctx context.Context, h *Host) error {
				ctx, stop := context.WithCancel(ctx)
				go func() {
					defer stop()
					if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
						t.Error(err)
					}
					n, err := conn.Read(said)
					if said = said[:n]; err != nil {
						t.Error(err)
					}
				}()
				h.Ready = func() error {
					_, err := daemon.SdNotify(false, daemon.SdNotifyReady)
					return err
				}
				err := h.Follow(ctx, func(*Synced) {})
				<-ctx.Done()
				stacks := make([]byte, 1<<20)
				if stacks = stacks[:runtime.Stack(stacks, true)]; bytes.Contains(stacks, []byte("(*Host).Follow")) {
					t.Errorf("behind it there runs\n%s", stacks)
				}
				return err
			})
			if string(said) != "READY=1" {
				t.Errorf("systemd was told %q", said)
			}
		})
	}
}

package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/lab/testnet"
)

const rulesOfFleets = "../../../packaging/prometheus/fleet.rules"

// TestAlerts: each alert fires by its series, and has a test.
func TestAlerts(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		testnet.Lacks(t, "promtool", err)
	}
	if out, err := exec.Command(tool, "test", "rules", rulesOfFleets+".test.yml").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	rules, err := os.ReadFile(rulesOfFleets + ".yml")
	ok(t, err)
	tests, err := os.ReadFile(rulesOfFleets + ".test.yml")
	ok(t, err)
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllSubmatch(rules, -1) {
		if !strings.Contains(string(tests), "alertname: "+string(alert[1])+"\n        exp_alerts:\n          - ") {
			t.Errorf("no test has %s fire", alert[1])
		}
	}
}

// TestPrometheus has a real Prometheus scrape a controller by HTTPS and a token: alerts of what
// is wrong fire, those of what is not do not, and of a controller that ended that it is gone.
func TestPrometheus(t *testing.T) {
	if testing.Short() {
		t.Skip("long form only: each alert is tried by its series")
	}
	program, err := exec.LookPath("prometheus")
	if err != nil {
		testnet.Lacks(t, "Prometheus", err)
	}
	f, end := lives(t)
	is, err := api.NewClient(f.dir).Status(t.Context())
	ok(t, err)
	dir := t.TempDir()
	token, _ := run(t, 0, "access", "create", "prometheus", "--role", "viewer", "--dir", f.dir)
	ok(t, os.WriteFile(filepath.Join(dir, "token"), []byte(strings.TrimSpace(token)), 0o600))
	rules, err := os.ReadFile(rulesOfFleets + ".yml")
	ok(t, err)
	ok(t, os.WriteFile(filepath.Join(dir, "rules.yml"), regexp.MustCompile(`for: \d+m`).ReplaceAll(rules, []byte("for: 0s")), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	at := l.Addr().String()
	ok(t, l.Close())
	ok(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), fmt.Appendf(nil, `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs:
  - job_name: sluice-controller
    scheme: https
    authorization: {credentials_file: token}
    tls_config: {ca_file: %s}
    static_configs: [{targets: [%q]}]
`, filepath.Join(f.dir, "ca.pem"), is.Web), 0o600))
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address="+at, "--log.level=error")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	ok(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	fires := func() (alerts []string) {
		response, err := http.Get("http://" + at + "/api/v1/query?query=" + url.QueryEscape(`ALERTS{alertstate="firing"}`))
		if err != nil {
			return nil
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK { // it is not ready yet
			return nil
		}
		var answer struct {
			Data struct {
				Result []struct{ Metric map[string]string }
			}
		}
		ok(t, json.NewDecoder(response.Body).Decode(&answer))
		for _, r := range answer.Data.Result {
			alerts = append(alerts, r.Metric["alertname"])
		}
		return alerts
	}
	until := func(want ...string) {
		t.Helper()
		var is []string
		for begun := time.Now(); time.Since(begun) < 2*time.Minute; time.Sleep(100 * time.Millisecond) {
			if is = fires(); slices.Equal(is, want) {
				return
			}
		}
		t.Fatalf("%v fire, and not %v: %s", is, want, &said)
	}
	until("SluiceFleetOffline") // its one host has never connected, and all else is well
	end()
	until("SluiceControllerGone")
}

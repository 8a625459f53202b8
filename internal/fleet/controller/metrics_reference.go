package controller

import (
	"strings"

	"sluice/internal/base/exposition"
)

// metrics are all that a controller says of itself in numbers.
var metrics = []struct {
	name   string
	kind   exposition.Type
	labels string // of its samples, with spaces between
	help   string
}{
	{"info", exposition.Gauge, "fleet version", "Which fleet this is, and which version of the controller."},
	{"hosts", exposition.Gauge, "state", "Hosts that are enrolled and not revoked, by what is known of what they enforce, as sluice-controller hosts names it."},
	{"streams", exposition.Gauge, "", "Hosts that are connected to this controller."},
	{"rollouts", exposition.Gauge, "phase", "Roll-outs that have not been superseded or taken back, by phase."},
	{"propagation_seconds", exposition.Histogram, "stage", "How long after a host was to run a bundle it had come to a stage, and in the stage ban how long after a ban or allow was accepted a host had proved it, of hosts that were connected all the time."},
	{"signature_failures_total", exposition.Counter, "by", "What was refused because it lacks a valid signature, by whoever refused it."},
	{"bans", exposition.Gauge, "", "Bans of the fleet that hold."},
	{"allows", exposition.Gauge, "", "Allows of the fleet that hold."},
	{"revision", exposition.Gauge, "", "The revision of the desired state that this controller sends to hosts."},
	{"database_up", exposition.Gauge, "", "Whether the database answers."},
	{"database_seconds", exposition.Gauge, "", "How long the database took to return its revision."},
	{"audit_entries", exposition.Gauge, "", "Entries of the audit."},
	{"end_timestamp_seconds", exposition.Gauge, "what", "When something signed ends: root.json, the newest bundle, the timestamp that names it, the controller's certificate authority."},
	{"host_certificates_ending", exposition.Gauge, "", "Hosts whose certificate ends within 7 days, and that have not renewed it."},
	{"list_age_seconds", exposition.Gauge, "list", "How long ago the server of a live list last returned a good one, by the name of the list's file."},
	{"notices", exposition.Gauge, "kind", "Notices that are open, by what they are about."},
	{"notices_sent_total", exposition.Counter, "receiver", "Messages that a receiver of notices took from this controller."},
	{"notices_failed_total", exposition.Counter, "receiver", "Messages that a receiver of notices did not take from this controller."},
}

// family is one of metrics without samples.
func family(name string) exposition.Family {
	for _, m := range metrics {
		if m.name == name {
			return exposition.Family{Name: "sluice_fleet_" + name, Help: m.help, Type: m.kind}
		}
	}
	panic("no metric is named " + name)
}

// MetricsReference is the page of all metrics of a controller as Markdown.
func MetricsReference() []byte {
	var all []exposition.Family
	for _, m := range metrics {
		f := family(m.name)
		labels := map[string]string{}
		for label := range strings.FieldsSeq(m.labels) {
			labels[label] = label
		}
		f.Add(0, labels)
		all = append(all, f)
	}
	return []byte(`# Metrics of a fleet

Made from the metrics themselves; do not edit it here. A controller answers ` + "`GET /metrics`" + ` on the
socket in its directory, and on the port of ` + "`run --web`" + ` with a token of the role ` + "`viewer`" + ` for all hosts:

` + "```yaml" + `
scrape_configs:
  - job_name: sluice-controller
    scheme: https
    authorization: {credentials_file: /etc/prometheus/sluice.token}   # sluice-controller access create prometheus --role viewer
    tls_config: {ca_file: /etc/prometheus/sluice-ca.pem}              # ca.pem of the controller's directory
    static_configs: [{targets: ["controller.example.net:8443"]}]
` + "```" + `

[Alerts](../../packaging/prometheus/fleet.rules.yml) and a [dashboard](../../packaging/grafana/fleet.json)
use them. Each agent has [metrics of its host](metrics.md). Counters and the histogram start again with
the controller.

` + exposition.Table(all))
}

package fleetbench

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/trust/operator"
	"sluice/internal/language/policy"
)

// fleetName is that of the fleet.
const fleetName = "example.net"

// The policy. A change is another port of the second part.
const (
	fleetFile = `version: 1
fleet: example.net
parts: [parts/*.yaml]
bans: {max: 100000, for: 1h}
roll-out:
  stages: [%s100%%]
  settle: none
`
	basePart = `version: 1
sets:
  admins: [198.51.100.0/24, "2001:db8:7::/48"]
  office: [192.0.2.0/25, 203.0.113.0/26]
input:
  default: drop
  rules:
    - allow ssh from admins
    - allow icmp
    - allow tcp/9100 from office
`
	webPart = `version: 1
hosts: role=web
input:
  rules:
    - allow tcp/80
    - allow tcp/443
    - allow tcp/%d from office
`
)

// operating is the operator's side: keys, and the repository.
type operating struct {
	repository *trust.Repository
	policy     trust.Signer
	changes    int
	stages     string // of the next one, before all hosts: "1 host, 2 hosts, "
	sets       string // of the fleet
	askers     string // the selector of the hosts whose part asks for them; "": none does
	asking     string // the rules of that part
}

// oneByOne has a change wait for each of so many hosts before it goes to the next.
func oneByOne(hosts int) string {
	var stages strings.Builder
	for n := range hosts - 1 {
		fmt.Fprintf(&stages, "%s, ", english.Plural(n+1, "host"))
	}
	return stages.String()
}

func (f *fleet) founded() error {
	made, err := operator.Init(operator.Options{
		Fleet: fleetName, Repository: f.path("repository"), Keys: f.path("keys"), Controller: f.controllerDir(), RootKeys: 1, RootThreshold: 1,
	}, time.Now())
	if err != nil {
		return err
	}
	if f.policy, err = operator.ReadKey(made.PolicyKey, nil); err != nil {
		return err
	}
	f.repository, err = trust.OpenRepository(f.path("repository"))
	return err
}

// publish signs a changed policy and gives it to the controller.
func (f *fleet) publish() (begun time.Time, _ *rollout.Rollout, err error) {
	f.changes++
	files := map[string][]byte{}
	file := func(path, selector, text string) trust.File {
		files[trust.HashOf([]byte(text))] = []byte(text)
		return trust.File{Path: path, Selector: selector, SHA256: trust.HashOf([]byte(text)), Size: int64(len(text))}
	}
	parts := []trust.File{file("parts/10-base.yaml", "", basePart), file("parts/50-web.yaml", "role=web", fmt.Sprintf(webPart, 8000+f.changes))}
	if f.askers != "" {
		parts = append(parts, file("parts/60-guests.yaml", f.askers, fmt.Sprintf("version: 1\nhosts: %s\ninput:\n  rules:\n%s", f.askers, f.asking)))
	}
	signed, err := f.repository.Sign(trust.Signing{Level: policy.Level, File: file("fleet.yaml", "", fmt.Sprintf(fleetFile, f.stages)+f.sets), Parts: parts}, time.Now(), f.operating.policy)
	if err != nil {
		return begun, nil, err
	}
	manifests, err := f.repository.Manifests()
	if err != nil {
		return begun, nil, err
	}
	for hash, text := range manifests {
		files[hash] = text
	}
	m, err := f.repository.Metadata()
	if err != nil {
		return begun, nil, err
	}
	var hashes []string
	for hash := range files {
		hashes = append(hashes, hash)
	}
	slices.Sort(hashes)
	begun = time.Now()
	missing, err := f.client.Missing(f, hashes)
	if err != nil {
		return begun, nil, err
	}
	for _, hash := range missing {
		if err := f.client.PutBlob(f, hash, bytes.NewReader(files[hash])); err != nil {
			return begun, nil, err
		}
	}
	r, err := f.client.Publish(f, api.Publish{Roots: m.Roots, Targets: m.Targets, Bundle: signed.Bundle.Number})
	return begun, r, err
}

// allow lets hosts enrol by a token.
func (f *fleet) allow() error {
	labels := map[string]string{"role": "web", "env": "prod"}
	t, err := trust.NewToken(f.repository.Root(), []string{controllerAt}, labels)
	if err != nil {
		return err
	}
	f.token = t.String()
	if err := os.WriteFile(f.tokenFile(), []byte(f.token), 0o600); err != nil {
		return err
	}
	return f.client.CreateToken(f, api.NewToken{
		Id: "bench", Secret: trust.SecretHash(t.Secret), Labels: labels, Uses: 100_000, Expires: time.Now().Add(time.Hour),
	})
}

func (f *fleet) tokenFile() string { return f.path("token") }

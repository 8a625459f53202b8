package operator

import (
	"crypto"
	"crypto/ed25519"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"sluice/internal/fleet/trust"
)

// Options are what a new fleet is made of.
type Options struct {
	Fleet      string // its name
	Repository string // folder of fleet.yaml
	Keys       string // folder of the operator's key files
	Controller string // folder of the controller
	Passphrase string // of the key files; "" leaves them unencrypted

	RootKeys, RootThreshold int // 0: 3, and 2 of them
	Policy                  []ed25519.PublicKey
	PolicyThreshold         int // 0: 1
}

// Made is what Init has written. Policy keys of Options have no file.
type Made struct {
	Fleet      string   `json:"fleet"`
	Repository string   `json:"repository"`
	Files      []string `json:"files"` // of the repository
	RootKeys   []string `json:"root-keys"`
	PolicyKey  string   `json:"policy-key,omitempty"`
	CAKey      string   `json:"ca-key"`
	Encrypted  bool     `json:"encrypted"`
	Controller string   `json:"controller"`
	RootSHA256 string   `json:"root-sha256"`

	RootThreshold   int       `json:"root-threshold"`
	PolicyThreshold int       `json:"policy-threshold"`
	RootExpires     time.Time `json:"root-expires"`
}

// Init makes the keys, the CA, fleet.yaml with a first part, and the folder of a
// controller. It writes over nothing: the error is fs.ErrExist, before anything is
// written.
func Init(o Options, now time.Time) (*Made, error) {
	if o.RootKeys == 0 {
		o.RootKeys, o.RootThreshold = 3, 2
	}
	if o.PolicyThreshold == 0 {
		o.PolicyThreshold = 1
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	made := &Made{
		Fleet: o.Fleet, Repository: o.Repository, Controller: o.Controller, Encrypted: o.Passphrase != "",
		RootThreshold: o.RootThreshold, PolicyThreshold: o.PolicyThreshold,
	}
	for _, dir := range []string{o.Repository, filepath.Join(o.Repository, "parts")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(o.Keys, 0o700); err != nil {
		return nil, err
	}
	founding := trust.Founding{Fleet: o.Fleet, Policy: trust.RoleKeys{Keys: o.Policy, Threshold: o.PolicyThreshold}}
	var roots []trust.Signer
	for i := range o.RootKeys {
		key, path, err := o.newKey("root-" + strconv.Itoa(i+1))
		if err != nil {
			return nil, err
		}
		roots = append(roots, key)
		founding.Root.Keys = append(founding.Root.Keys, key.Public())
		made.RootKeys = append(made.RootKeys, path)
	}
	founding.Root.Threshold = o.RootThreshold
	if len(o.Policy) == 0 {
		key, path, err := o.newKey("policy")
		if err != nil {
			return nil, err
		}
		founding.Policy.Keys, made.PolicyKey = []ed25519.PublicKey{key.Public()}, path
	}
	caKey, err := o.founder(&founding, now)
	if err != nil {
		return nil, err
	}
	made.CAKey = caKey
	repository, err := trust.Found(o.Repository, founding, now, roots[:o.RootThreshold]...)
	if err != nil {
		return nil, err
	}
	if err := trust.NewOnline(o.Controller, repository.Root()); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"fleet.yaml": fmt.Sprintf(fleetText, o.Fleet), "parts/10-base.yaml": firstPart} {
		if err := writeNew(filepath.Join(o.Repository, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	made.Files = []string{"fleet.yaml", "parts/10-base.yaml", "trust/"}
	made.RootSHA256, made.RootExpires = trust.HashOf(repository.Root()), repository.RootExpires()
	return made, nil
}

func (o *Options) check() error {
	if err := trust.CheckFleetName(o.Fleet); err != nil {
		return err
	}
	policies := max(len(o.Policy), 1)
	switch {
	case o.RootKeys < 1 || o.RootKeys > 9 || o.RootThreshold < 1 || o.RootThreshold > o.RootKeys:
		return fmt.Errorf("%d of %d root keys: 1 to 9 keys, and no more of them than there are", o.RootThreshold, o.RootKeys)
	case o.PolicyThreshold < 1 || o.PolicyThreshold > policies:
		return fmt.Errorf("%d of %d policy keys: no more of them than there are", o.PolicyThreshold, policies)
	}
	for _, path := range []string{
		filepath.Join(o.Repository, "fleet.yaml"), filepath.Join(o.Repository, "trust"), filepath.Join(o.Repository, "parts", "10-base.yaml"),
		o.keyPath("root-1"), o.keyPath("policy"), o.keyPath("ca"),
		filepath.Join(o.Controller, "trust.json"), filepath.Join(o.Controller, "keys"),
	} {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s: %w", path, fs.ErrExist)
		}
	}
	return nil
}

func (o *Options) keyPath(name string) string {
	if o.Passphrase != "" {
		return filepath.Join(o.Keys, name+".age")
	}
	return filepath.Join(o.Keys, name+".pem")
}

func (o *Options) newKey(name string) (trust.PrivateKey, string, error) {
	key, err := trust.NewKey()
	if err != nil {
		return nil, "", err
	}
	path := o.keyPath(name)
	return key, path, writeKey(path, key, o.Passphrase)
}

// founder makes the CA and what the controller signs with.
func (o *Options) founder(f *trust.Founding, now time.Time) (caKey string, err error) {
	certificate, keyText, err := trust.NewCA(o.Fleet, now)
	if err != nil {
		return "", err
	}
	key, err := trust.DecodePrivate(keyText)
	if err != nil {
		return "", err
	}
	if err := writeKey(o.keyPath("ca"), crypto.PrivateKey(key), o.Passphrase); err != nil {
		return "", err
	}
	f.CA = certificate
	own, ownKey, err := trust.NewIntermediate(o.Fleet, certificate, keyText, now)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(o.Controller, 0o700); err != nil {
		return "", err
	}
	if err := trust.AddOnlineCA(o.Controller, own, ownKey); err != nil {
		return "", err
	}
	for role, keys := range map[string]*[]ed25519.PublicKey{"snapshot": &f.Snapshot, "timestamp": &f.Timestamp, "live": &f.Live} {
		key, err := trust.NewKey()
		if err != nil {
			return "", err
		}
		*keys = []ed25519.PublicKey{key.Public()}
		if err := trust.AddOnlineKey(o.Controller, role, key); err != nil {
			return "", err
		}
	}
	return o.keyPath("ca"), nil
}

const fleetText = `# The policy of all hosts of this fleet: what is one for all of them, and the parts.
version: 1
fleet: %s
parts: [parts/*.yaml]
`

const firstPart = `# Without "hosts:" this part is for every host. Another one, such as
# parts/50-web.yaml, is for some of them:
#
#     version: 1
#     hosts: role=web
#     input: {rules: [allow http, allow https]}
version: 1

sets:
  # Who may log in. Put your own networks here before this is published.
  admins: [192.0.2.0/24, "2001:db8::/32"]

input:
  default: drop
  rules:
    - allow ssh from admins

# Proved on each host before the policy is used.
expect:
  - allow ssh from admins
  - deny ssh from not admins
`

// NewKeyFile makes the key of a role in a folder: root-4.age where there are three of
// them, policy-2.age. It says where.
func NewKeyFile(dir, role, passphrase string) (key ed25519.PublicKey, file string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", err
	}
	o := Options{Keys: dir, Passphrase: passphrase}
	for n := 1; ; n++ {
		name := role + "-" + strconv.Itoa(n)
		if taken, err := filepath.Glob(filepath.Join(dir, name+".*")); err != nil || len(taken) > 0 || n == 1 && role == "policy" {
			if err != nil {
				return nil, "", err
			}
			continue
		}
		made, path, err := o.newKey(name)
		if err != nil {
			return nil, "", err
		}
		return made.Public(), path, nil
	}
}

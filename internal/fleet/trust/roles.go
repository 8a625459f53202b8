package trust

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/theupdateframework/go-tuf/v2/metadata"
)

// Metadata is what a controller says to a host so that it believes the rest, in JSON as
// base64 of the exact bytes. Roots is the whole chain, the oldest first.
type Metadata struct {
	Roots     [][]byte `json:"roots"`
	Timestamp []byte   `json:"timestamp,omitempty"`
	Snapshot  []byte   `json:"snapshot,omitempty"`
	Targets   []byte   `json:"targets,omitempty"`
}

// field is the member of a signed document that is Sluice's own.
const field = "sluice"

// RootField is what root.json says beside keys and roles.
type RootField struct {
	Fleet string   `json:"fleet"`
	Live  []string `json:"live"` // ed25519, hex
	CA    []string `json:"ca"`   // certificates, PEM
}

// TargetsField is what targets.json says beside the bundles.
type TargetsField struct {
	Fleet       string `json:"fleet"`
	Incarnation int64  `json:"incarnation"` // grows when an older database is restored
	Floor       int64  `json:"floor"`       // no bundle below may be enforced
}

// TimestampField is what timestamp.json says beside the snapshot.
type TimestampField struct {
	AuditHead string `json:"audit-head,omitempty"` // of the audit chain, when it was signed
}

// exact bounds the numbers of a member, which pass through a float64.
const exact = 1 << 53

// Field makes the member of a signed document.
func Field(value any) map[string]any {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // of strings and numbers
	}
	var made any
	if err := json.Unmarshal(text, &made); err != nil {
		panic(err)
	}
	return map[string]any{field: made}
}

func fieldOf(what string, members map[string]any, into any) error {
	text, err := json.Marshal(members[field])
	if err != nil {
		return fmt.Errorf("%s is %w: %s", what, ErrMalformed, err.Error())
	}
	return strictly(what, text, into)
}

// CheckFleetName says whether a fleet may have this name, which is that of a SPIFFE
// trust domain: lower-case letters, digits, dots, dashes and underscores.
func CheckFleetName(name string) error {
	domain, err := spiffeid.TrustDomainFromString(name)
	if err == nil && domain.Name() != name {
		err = fmt.Errorf("only a name, such as example.net")
	}
	if err == nil && len(name) > 255 {
		err = fmt.Errorf("at most 255 characters")
	}
	if err != nil {
		return fmt.Errorf("name of a fleet %q: %w", name, err)
	}
	return nil
}

// root is a root.json, looked over.
type root struct {
	*metadata.Metadata[metadata.RootType]
	bytes []byte
	RootField
	cas  *x509.CertPool
	live []ed25519.PublicKey
}

func readRoot(data []byte) (*root, error) {
	if err := shaped("root.json", data, MaxRoot); err != nil {
		return nil, err
	}
	parsed, err := metadata.Root().FromBytes(data)
	if err != nil {
		return nil, told("root.json", err)
	}
	r := &root{Metadata: parsed, bytes: data, cas: x509.NewCertPool()}
	bad := func(format string, args ...any) (*root, error) {
		return nil, fmt.Errorf("root.json is %w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
	if parsed.Signed.Type != metadata.ROOT || parsed.Signed.Version < 1 {
		return bad("it is %s, version %d", parsed.Signed.Type, parsed.Signed.Version)
	}
	for id, key := range parsed.Signed.Keys {
		if _, err := publicKey(key); err != nil {
			return bad("key %s: %s", id, err.Error())
		}
		if real, err := key.ID(); err != nil || real != id {
			return bad("key %s is not that key", id)
		}
	}
	if err := fieldOf("root.json", parsed.Signed.UnrecognizedFields, &r.RootField); err != nil {
		return nil, err
	}
	if err := CheckFleetName(r.Fleet); err != nil {
		return bad("%s", err.Error())
	}
	for _, text := range r.Live {
		key, err := decodeKey(text)
		if err != nil {
			return bad("live key: %s", err.Error())
		}
		r.live = append(r.live, key)
	}
	for _, text := range r.CA {
		block, rest := pem.Decode([]byte(text))
		if block == nil || len(rest) > 0 {
			return bad("a CA that is not a certificate")
		}
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !ca.IsCA {
			return bad("a CA that is not a CA certificate")
		}
		r.cas.AddCert(ca)
	}
	return r, nil
}

func decodeKey(text string) (ed25519.PublicKey, error) {
	key, err := hex.DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%.80q is not an ed25519 key", text)
	}
	return key, nil
}

func publicKey(key *metadata.Key) (ed25519.PublicKey, error) {
	if key.Type != metadata.KeyTypeEd25519 || key.Scheme != metadata.KeySchemeEd25519 {
		return nil, fmt.Errorf("of type %q, and all are ed25519", key.Type)
	}
	return decodeKey(key.Value.PublicKey)
}

// keys of a role, and how many of them must sign.
func (r *root) keys(role string) ([]ed25519.PublicKey, int) {
	var keys []ed25519.PublicKey
	is, known := r.Signed.Roles[role]
	if !known {
		return nil, 1
	}
	for _, id := range is.KeyIDs {
		if key, known := r.Signed.Keys[id]; known {
			public, _ := publicKey(key) // readRoot has looked
			keys = append(keys, public)
		}
	}
	return keys, is.Threshold
}

// signed says whether a role's document has the signatures that it needs by this root:
// nil, ErrThreshold with some of them, ErrUnsigned with none.
func (r *root) signed(role string, document any) error {
	err := r.VerifyDelegate(role, document)
	if err == nil {
		return nil
	}
	what := role + ".json"
	needs, known := r.Signed.Roles[role]
	if known && needs.Threshold > 1 {
		one := *r.Metadata
		one.Signed.Roles = map[string]*metadata.Role{role: {KeyIDs: needs.KeyIDs, Threshold: 1}}
		if one.VerifyDelegate(role, document) == nil {
			return fmt.Errorf("%s is %w: it needs %d", what, ErrThreshold, needs.Threshold)
		}
	}
	return told(what, err)
}

// targets is a targets.json, looked over.
type targets struct {
	*metadata.Metadata[metadata.TargetsType]
	by *root // whose signatures were verified; nil of what is only kept
	TargetsField
	bundles []Bundle // by number
}

func readTargets(data []byte) (*targets, error) {
	if err := shaped("targets.json", data, MaxTargets); err != nil {
		return nil, err
	}
	parsed, err := metadata.Targets().FromBytes(data)
	if err != nil {
		return nil, told("targets.json", err)
	}
	t := &targets{Metadata: parsed}
	if parsed.Signed.Type != metadata.TARGETS || parsed.Signed.Version < 1 || parsed.Signed.Delegations != nil {
		return nil, fmt.Errorf("targets.json is %w: not a list of bundles", ErrMalformed)
	}
	if err := fieldOf("targets.json", parsed.Signed.UnrecognizedFields, &t.TargetsField); err != nil {
		return nil, err
	}
	if t.Incarnation < 1 || t.Incarnation > exact || t.Floor < 0 || t.Floor > exact {
		return nil, fmt.Errorf("targets.json is %w: incarnation %d, floor %d", ErrMalformed, t.Incarnation, t.Floor)
	}
	t.bundles, err = readBundles(t)
	return t, err
}

// online is a timestamp.json or snapshot.json, looked over: go-tuf dereferences what
// they say of the next document.
func shapedOnline(name string, data []byte, next string) error {
	if err := shaped(name, data, MaxOnline); err != nil {
		return err
	}
	var says struct {
		Signed struct {
			Meta map[string]any `json:"meta"`
		} `json:"signed"`
	}
	if err := json.Unmarshal(data, &says); err != nil {
		return fmt.Errorf("%s is %w: %s", name, ErrMalformed, err.Error())
	}
	if says.Signed.Meta[next] == nil {
		return fmt.Errorf("%s is %w: nothing about %s", name, ErrMalformed, next)
	}
	return nil
}

// until is when a document of a controller ends, without a look at its signature.
func until(data []byte) time.Time {
	var says struct {
		Signed struct {
			Expires time.Time `json:"expires"`
		} `json:"signed"`
	}
	if json.Unmarshal(data, &says) != nil {
		return time.Time{}
	}
	return says.Signed.Expires
}

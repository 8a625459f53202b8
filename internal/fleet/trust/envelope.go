package trust

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// Kinds of live entries.
const (
	KindMembers = "members" // of the sets by hosts and guests
	KindGuests  = "guests"  // of one host
)

// liveBody is what a live key signs.
type liveBody struct {
	Fleet       string          `json:"fleet"`
	Incarnation int64           `json:"incarnation"`
	Seq         int64           `json:"seq"`
	Payload     json.RawMessage `json:"payload"`
}

// documents are what those of a kind are called in errors.
func documents(kind string) string {
	if name, is := ListOf(kind); is {
		return "the contents of " + name
	}
	return "the " + kind
}

func payloadType(kind string) string { return "application/vnd.sluice." + kind + "+json" }

// dsseSigner lets package dsse sign and verify with a key of this package.
type dsseSigner struct {
	by     Signer
	public ed25519.PublicKey
}

func (s dsseSigner) Sign(_ context.Context, data []byte) ([]byte, error) { return s.by.Sign(data) }

func (s dsseSigner) Verify(_ context.Context, data, signature []byte) error {
	if !ed25519.Verify(s.public, data, signature) {
		return errors.New("signature does not fit")
	}
	return nil
}

// keyIDs are those of keys of roles, by the bytes of the key. There are few of them, and each
// is canonical JSON to make.
var keyIDs sync.Map

func (s dsseSigner) KeyID() (string, error) {
	if id, known := keyIDs.Load(string(s.public)); known {
		return id.(string), nil
	}
	_, id := roleKey(s.public)
	keyIDs.Store(string(s.public), id)
	return id, nil
}

func (s dsseSigner) Public() crypto.PublicKey { return s.public }

// seal signs an envelope.
func seal(kind string, body any, by ...Signer) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	var signers []dsse.Signer
	for _, s := range by {
		signers = append(signers, dsseSigner{s, s.Public()})
	}
	signer, err := dsse.NewEnvelopeSigner(signers...)
	if err != nil {
		return nil, err
	}
	sealed, err := signer.SignPayload(context.Background(), payloadType(kind), text)
	if err != nil {
		return nil, err
	}
	return json.Marshal(sealed)
}

// sealed is an envelope of a kind, of which nothing is verified.
func sealed(kind string, envelope []byte) (*dsse.Envelope, error) {
	what := documents(kind)
	if err := sized(what, envelope, MaxEnvelope); err != nil {
		return nil, err
	}
	is := &dsse.Envelope{}
	if err := strictly(what, envelope, is); err != nil {
		return nil, err
	}
	if is.PayloadType != payloadType(kind) {
		return nil, fmt.Errorf("%s are %w: the envelope is of %.80q", what, ErrMalformed, is.PayloadType)
	}
	return is, nil
}

// open verifies an envelope and decodes what is in it.
func open(kind string, envelope []byte, keys []ed25519.PublicKey, threshold int, into any) error {
	what := documents(kind)
	sealed, err := sealed(kind, envelope)
	if err != nil {
		return err
	}
	verifiers := make([]dsse.Verifier, 0, len(keys))
	for _, key := range keys {
		verifiers = append(verifiers, dsseSigner{public: key})
	}
	verifier, err := dsse.NewMultiEnvelopeVerifier(threshold, verifiers...)
	if err != nil {
		return fmt.Errorf("%s are %w: root.json names no key for them", what, ErrUnsigned)
	}
	accepted, text, err := verifier.VerifyAndDecode(context.Background(), sealed)
	switch {
	case err != nil && len(accepted) > 0:
		return fmt.Errorf("%s are %w: %d of %d", what, ErrThreshold, len(accepted), threshold)
	case err != nil:
		return fmt.Errorf("%s are %w", what, ErrUnsigned)
	}
	if kind == KindBans { // which are many, and of which ReadBans checks each field
		return strictly(what, text, into)
	}
	if err := shaped(what, text, MaxEnvelope); err != nil {
		return err
	}
	return strictly(what, text, into)
}

// Live opens an envelope of a live key and returns what is in it, and its number. An
// older one than was seen is ErrRolledBack; the same number again is none. What was seen of
// bans, which may come several times a second, is on the disk after Settle, of others at once.
func (h *Host) Live(kind string, envelope []byte) (payload []byte, seq int64, err error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	var body liveBody
	if err := open(kind, envelope, h.view.root.live, 1, &body); err != nil {
		return nil, 0, err
	}
	what := documents(kind)
	switch {
	case body.Fleet != h.view.root.Fleet:
		return nil, 0, foreign(what, body.Fleet, h.view.root.Fleet)
	case body.Incarnation > h.kept.Incarnation:
		return nil, 0, fmt.Errorf("%s are %w: incarnation %d, and %d is signed", what, ErrUnsigned, body.Incarnation, h.kept.Incarnation)
	case body.Incarnation < h.kept.Incarnation:
		return nil, 0, fmt.Errorf("%s are %w: incarnation %d after %d", what, ErrRolledBack, body.Incarnation, h.kept.Incarnation)
	case body.Seq < h.kept.Seen[kind]:
		return nil, 0, fmt.Errorf("%s are %w: number %d after %d", what, ErrRolledBack, body.Seq, h.kept.Seen[kind])
	case body.Seq > h.kept.Seen[kind]:
		next := h.kept
		next.Seen = maps.Clone(next.Seen)
		if next.Seen == nil {
			next.Seen = map[string]int64{}
		}
		next.Seen[kind] = body.Seq
		if kind == KindBans {
			h.kept, h.owed = next, true
			break
		}
		if err := h.keep(next, h.view); err != nil {
			return nil, 0, err
		}
	}
	return body.Payload, body.Seq, nil
}

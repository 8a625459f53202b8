package trust

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"sluice/internal/base/selector"
)

// Kinds of live entries.
const (
	KindMembers = "members" // of the sets by hosts and guests
)

// kindLabels is an order of the policy keys.
const kindLabels = "labels"

// liveBody is what a live key signs.
type liveBody struct {
	Fleet       string          `json:"fleet"`
	Incarnation int64           `json:"incarnation"`
	Seq         int64           `json:"seq"`
	Payload     json.RawMessage `json:"payload"`
}

// LabelOrder gives a host other labels.
type LabelOrder struct {
	Fleet   string            `json:"fleet"`
	Host    string            `json:"host"`
	Number  int64             `json:"number"` // each greater than the one before: Unix milliseconds
	Expires time.Time         `json:"expires"`
	Labels  map[string]string `json:"labels"`
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

func (s dsseSigner) KeyID() (string, error) {
	_, id := RoleKey(s.public)
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

// open verifies an envelope and decodes what is in it.
func open(kind string, envelope []byte, keys []ed25519.PublicKey, threshold int, into any) error {
	what := "the " + kind
	if err := shaped(what, envelope, MaxEnvelope); err != nil {
		return err
	}
	sealed := &dsse.Envelope{}
	if err := strictly(what, envelope, sealed); err != nil {
		return err
	}
	if sealed.PayloadType != payloadType(kind) {
		return fmt.Errorf("%s are %w: the envelope is of %.80q", what, ErrMalformed, sealed.PayloadType)
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
	if err := shaped(what, text, MaxEnvelope); err != nil {
		return err
	}
	return strictly(what, text, into)
}

// Live opens an envelope of a live key and returns what is in it, and its number. An
// older one than was seen is ErrRolledBack; the same number again is none.
func (h *Host) Live(kind string, envelope []byte) (payload []byte, seq int64, err error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	var body liveBody
	if err := open(kind, envelope, h.view.root.live, 1, &body); err != nil {
		return nil, 0, err
	}
	what := "the " + kind
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
		if err := h.keep(next, h.view); err != nil {
			return nil, 0, err
		}
	}
	return body.Payload, body.Seq, nil
}

// SealLabels signs an order that changes labels.
func SealLabels(order LabelOrder, by ...Signer) ([]byte, error) {
	return seal(kindLabels, order, by...)
}

// Labels opens an order of the policy keys for this host and returns the labels that it
// has from now on. The same order again is no error.
func (h *Host) Labels(envelope []byte, host string, now time.Time) (map[string]string, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	keys, threshold := h.view.root.keys("targets")
	var order LabelOrder
	if err := open(kindLabels, envelope, keys, threshold, &order); err != nil {
		return nil, err
	}
	const what = "the order of labels"
	switch {
	case order.Fleet != h.view.root.Fleet:
		return nil, foreign(what, order.Fleet, h.view.root.Fleet)
	case order.Host != host:
		return nil, fmt.Errorf("%s is %w, %q", what, ErrWrongHost, order.Host)
	case order.Number < h.kept.Order:
		return nil, fmt.Errorf("%s is %w: number %d after %d", what, ErrRolledBack, order.Number, h.kept.Order)
	case now.After(order.Expires):
		return nil, expired(what, order.Expires, now)
	}
	if err := CheckLabels(order.Labels); err != nil {
		return nil, err
	}
	if order.Number > h.kept.Order {
		next := h.kept
		next.Order = order.Number
		if err := h.keep(next, h.view); err != nil {
			return nil, err
		}
	}
	return order.Labels, nil
}

const maxLabels = 64

// CheckLabels says whether a host can have these labels: at most 64.
func CheckLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("labels are %w: %d, at most %d", ErrTooLarge, len(labels), maxLabels)
	}
	for name, value := range labels {
		if err := selector.CheckLabel(name, value); err != nil {
			return fmt.Errorf("label %.70q=%.70q is %w: %s", name, value, ErrMalformed, err.Error())
		}
	}
	return nil
}

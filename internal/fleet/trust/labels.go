package trust

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"sluice/internal/base/regular"
	"sluice/internal/base/selector"
)

// kindLabels is an order of the policy keys.
const kindLabels = "labels"

// LabelOrder gives a host other labels.
type LabelOrder struct {
	Fleet   string            `json:"fleet"`
	Host    string            `json:"host"`
	Number  int64             `json:"number"` // each greater than the one before: Unix milliseconds
	Expires time.Time         `json:"expires"`
	Labels  map[string]string `json:"labels"`
}

// SealLabels signs an order that changes labels.
func SealLabels(order LabelOrder, by ...Signer) ([]byte, error) {
	return seal(kindLabels, order, by...)
}

// ReadLabels reads an order without verifying it.
func ReadLabels(envelope []byte) (LabelOrder, error) {
	var order LabelOrder
	is, err := sealed(kindLabels, envelope)
	if err != nil {
		return order, err
	}
	text, err := is.DecodeB64Payload()
	if err == nil {
		err = json.Unmarshal(text, &order)
	}
	if err != nil {
		return order, fmt.Errorf("the %s are %w: %w", kindLabels, ErrMalformed, err)
	}
	return order, nil
}

// labels opens an order of the policy keys.
func (v *view) labels(envelope []byte) (LabelOrder, error) {
	keys, threshold := v.root.keys("targets")
	var order LabelOrder
	if len(envelope) > maxOrder {
		return order, fmt.Errorf("%s is %w: %d bytes, at most %d", orderOfLabels, ErrTooLarge, len(envelope), maxOrder)
	}
	if err := open(kindLabels, envelope, keys, threshold, &order); err != nil {
		return order, err
	}
	if order.Fleet != v.root.Fleet {
		return order, foreign(orderOfLabels, order.Fleet, v.root.Fleet)
	}
	return order, CheckLabels(order.Labels)
}

const (
	orderOfLabels = "the order of labels"
	maxOrder      = 64 << 10 // bytes, as the wire has it
)

// Labels opens an order of the policy keys for a host, as the host does that has taken none.
func (o *Online) Labels(envelope []byte, now time.Time) (LabelOrder, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	order, err := o.view.labels(envelope)
	if err == nil && now.After(order.Expires) {
		err = expired(orderOfLabels, order.Expires, now)
	}
	return order, err
}

// Labels opens an order of the policy keys for this host and returns the labels that it
// has from now on. The same order again is no error, nor is its end then.
func (h *Host) Labels(envelope []byte, host string, now time.Time) (map[string]string, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	order, err := h.view.labels(envelope)
	if err != nil {
		return nil, err
	}
	switch {
	case order.Host != host:
		return nil, fmt.Errorf("%s is %w, %q", orderOfLabels, ErrWrongHost, order.Host)
	case order.Number < h.kept.Order:
		return nil, fmt.Errorf("%s is %w: number %d after %d", orderOfLabels, ErrRolledBack, order.Number, h.kept.Order)
	case order.Number == h.kept.Order:
		return order.Labels, nil
	case now.After(order.Expires):
		return nil, expired(orderOfLabels, order.Expires, now)
	}
	next := h.kept
	next.Order = order.Number
	return order.Labels, h.keep(next, h.view)
}

const maxLabels = 64

// CheckLabels says whether a host can have these labels: at most 64.
func CheckLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("labels are %w: %d, and a host has at most %d: leave out those by which no part is selected", ErrTooLarge, len(labels), maxLabels)
	}
	for name, value := range labels {
		if err := selector.CheckLabel(name, value); err != nil {
			return fmt.Errorf("label %.70q=%.70q is %w: %s", name, value, ErrMalformed, err.Error())
		}
	}
	return nil
}

const labelsFolder = "labels"

func (r *Repository) labelsPath(host string) string {
	return filepath.Join(r.dir, labelsFolder, host+".json")
}

// LabelOrders are the orders that were signed last, by host.
func (r *Repository) LabelOrders() (map[string][]byte, error) {
	out := map[string][]byte{}
	entries, err := os.ReadDir(filepath.Join(r.dir, labelsFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if host, is := strings.CutSuffix(e.Name(), ".json"); is && CheckHostID(host) == nil {
			if out[host], err = regular.Read(r.labelsPath(host), MaxEnvelope); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// SignedLabels is an order with its signatures.
type SignedLabels struct {
	LabelOrder
	Signatures int `json:"signatures"` // that count
	Needed     int `json:"needed"`
}

// SignLabels signs that a host has these labels from now on, until the order ends in place
// of all that it had. Where the last order says so and lacks signatures, they are
// added to it.
func (r *Repository) SignLabels(host string, labels map[string]string, now time.Time, by ...Signer) (SignedLabels, error) {
	keys, needed := r.root.keys("targets")
	out := SignedLabels{Needed: needed}
	if err := errors.Join(CheckHostID(host), CheckLabels(labels), signers(keys, by)); err != nil {
		return out, err
	}
	out.LabelOrder = LabelOrder{r.root.Fleet, host, now.UnixMilli(), now.Add(BundleFor).UTC().Truncate(time.Second), labels}
	var with []dsse.Signature
	old, err := regular.Read(r.labelsPath(host), MaxEnvelope)
	switch {
	case err == nil:
		last, err := ReadLabels(old)
		if err != nil {
			return out, fmt.Errorf("%s: %w", r.labelsPath(host), err)
		}
		is, err := sealed(kindLabels, old)
		if err != nil {
			return out, err
		}
		out.Number = max(out.Number, last.Number+1)
		if n := r.labelSignatures(old); n > 0 && n < needed && now.Before(last.Expires) && last.Fleet == out.Fleet && last.Host == host && maps.Equal(last.Labels, labels) {
			out.LabelOrder, with = last, is.Signatures
		}
	case !errors.Is(err, fs.ErrNotExist):
		return out, err
	}
	envelope, err := SealLabels(out.LabelOrder, by...)
	if err != nil {
		return out, err
	}
	is, err := sealed(kindLabels, envelope)
	if err != nil {
		return out, err
	}
	for _, s := range with {
		if !slices.ContainsFunc(is.Signatures, func(o dsse.Signature) bool { return o.KeyID == s.KeyID }) {
			is.Signatures = append(is.Signatures, s)
		}
	}
	if envelope, err = json.Marshal(is); err != nil {
		return out, err
	}
	out.Signatures = r.labelSignatures(envelope)
	if err := os.MkdirAll(filepath.Join(r.dir, labelsFolder), 0o755); err != nil {
		return out, err
	}
	return out, writeFile(r.labelsPath(host), append(envelope, '\n'), 0o644)
}

// labelSignatures is how many signatures of an order count.
func (r *Repository) labelSignatures(envelope []byte) int {
	keys, _ := r.root.keys("targets")
	is, err := sealed(kindLabels, envelope)
	if err != nil {
		return 0
	}
	n := 0
	for _, key := range keys {
		verifier, err := dsse.NewEnvelopeVerifier(dsseSigner{public: key})
		if err != nil {
			continue
		}
		if _, err := verifier.Verify(context.Background(), is); err == nil {
			n++
		}
	}
	return n
}

// signers says whether all that sign have one of these keys.
func signers(keys []ed25519.PublicKey, by []Signer) error {
	for _, signer := range by {
		if !slices.ContainsFunc(keys, func(k ed25519.PublicKey) bool { return k.Equal(signer.Public()) }) {
			return fmt.Errorf("the key %s is %w", KeyName(signer.Public()), ErrUnsigned)
		}
	}
	return nil
}

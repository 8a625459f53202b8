package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sluice/internal/base/regular"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

const (
	mostDocument = 16 << 20  // bytes
	setsName     = "members" // the folder of what sets hold, by hash
)

// document gives what a live key has signed: what is kept, or what the controller says is
// newer, with the envelope that is to be kept by whoever has all that it names. No payload: there
// is no document.
func (m *Member) document(ctx context.Context, kind string, at *wire.Document) (payload, envelope []byte, err error) {
	kept, err := regular.Read(m.kindFile(kind), mostDocument)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if err == nil {
		payload, _, err = m.Trust.Live(kind, kept)
		if at == nil || err == nil && wire.Hash(payload) == at.Content {
			return payload, nil, err
		}
	}
	if at == nil {
		return nil, nil, nil
	}
	if envelope, err = m.blob(ctx, at.Sha256, min(at.Size, mostDocument), kept); err != nil {
		return nil, nil, err
	}
	if payload, _, err = m.Trust.Live(kind, envelope); err != nil {
		return nil, nil, err
	}
	if wire.Hash(payload) != at.Content {
		return nil, nil, fmt.Errorf("the %s are %w: their content is not what the controller says", kind, trust.ErrHash)
	}
	return payload, envelope, nil
}

// keep records a document, unless it is the one that is kept.
func (m *Member) keep(kind string, envelope []byte) error {
	if envelope == nil {
		return nil
	}
	return writeFile(m.kindFile(kind), envelope)
}

func (m *Member) kindFile(kind string) string { return filepath.Join(m.Dir, kind+".json") }

// kept is the content of a document that is kept, "" without one.
func (m *Member) kept(kind string) string {
	envelope, err := regular.Read(m.kindFile(kind), mostDocument)
	if err != nil {
		return ""
	}
	payload, _, err := m.Trust.Live(kind, envelope)
	if err != nil {
		return ""
	}
	return wire.Hash(payload)
}

// guests gives the machines on this host.
func (m *Member) guests(ctx context.Context, at *wire.Document) (map[string]trust.Guest, error) {
	payload, envelope, err := m.document(ctx, trust.KindGuests, at)
	if payload == nil || err != nil {
		return nil, err
	}
	all, err := trust.ReadGuests(payload, m.Host)
	if err != nil {
		return nil, err
	}
	return all.Guests, m.keep(trust.KindGuests, envelope)
}

// members gives what sets by hosts and guests hold now.
func (m *Member) members(ctx context.Context, at *wire.Document) (map[string][]string, error) {
	before := m.setsBefore()
	payload, envelope, err := m.document(ctx, trust.KindMembers, at)
	if payload == nil || err != nil {
		return nil, err
	}
	all, err := trust.ReadMembers(payload)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(m.Dir, setsName), 0o700); err != nil {
		return nil, err
	}
	out := map[string][]string{}
	used := map[string]bool{}
	for name, content := range all.Sets {
		if out[name], err = m.set(ctx, content, before[name]); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
		used[content.SHA256] = true
	}
	if err := m.keep(trust.KindMembers, envelope); err != nil {
		return nil, err
	}
	for _, old := range before {
		if !used[old.SHA256] {
			if err := os.Remove(m.setFile(old)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				m.note(err)
			}
		}
	}
	return out, nil
}

func (m *Member) setFile(c trust.Content) string { return filepath.Join(m.Dir, setsName, c.SHA256) }

// setsBefore is what sets hold by the document that is kept, which those are fetched against
// that have changed.
func (m *Member) setsBefore() map[string]trust.Content {
	envelope, err := regular.Read(m.kindFile(trust.KindMembers), mostDocument)
	if err != nil {
		return nil
	}
	payload, _, err := m.Trust.Live(trust.KindMembers, envelope)
	if err != nil {
		return nil
	}
	all, err := trust.ReadMembers(payload)
	if err != nil {
		return nil
	}
	return all.Sets
}

// set gives what one set holds: what is kept of that content, or what the controller has.
func (m *Member) set(ctx context.Context, is, before trust.Content) ([]string, error) {
	if is.Size == 0 {
		return is.Read(nil)
	}
	text, err := regular.Read(m.setFile(is), is.Size)
	if err == nil {
		if lines, err := is.Read(text); err == nil {
			return lines, nil
		}
	}
	old, _ := regular.Read(m.setFile(before), before.Size) // without it, all is fetched
	if text, err = m.blob(ctx, is.SHA256, is.Size, old); err != nil {
		return nil, err
	}
	lines, err := is.Read(text)
	if err != nil {
		return nil, err
	}
	return lines, writeFile(m.setFile(is), text)
}

package engine

import (
	"context"
	"path/filepath"

	"sluice/internal/backend"
	"sluice/internal/engine/apply"
	"sluice/internal/system/kernel/netns"
)

// Host is one network namespace with its state. Its fields are set before its methods
// are called, and the methods are safe for concurrent use, as far as its functions are.
type Host struct {
	*apply.Host
	State string            // the tool's own state directory: country data, lists, the calibration
	Fetch []string          // command line of the process that asks for lists; none: this one does, from its own network namespace, whatever Netns is
	Warn  func(text string) // may be nil; what does not keep a policy from being loaded, and should be read
	// Download is told how far a download of country data is, in bytes; total is -1 where the
	// server does not say. It may be nil, as Publishers, which says of whom newer data are
	// asked for where nobody is named.
	Download   func(from string, done, total int64)
	Publishers func() ([]string, error)
	// Guard is the file of what the host expects of every policy; where it is missing, nothing.
	Guard string
	// Netns is where its methods speak to the kernel, whatever else the process works on;
	// nil: in the network namespace of the caller.
	Netns *netns.Namespace
}

// NewHost is the host, or the network namespace, that the caller is in, with its state
// below the tool's own state directory. Version is that of the program, for what it
// records.
func NewHost(state, namespace, version string) (*Host, error) {
	base, err := filepath.Abs(state)
	if err != nil {
		return nil, err
	}
	dir, err := apply.Dir(base, namespace)
	if err != nil {
		return nil, err
	}
	all := Backends()
	by, session := apply.Me()
	h := &Host{State: state, Guard: GuardFile(namespace), Host: &apply.Host{
		Dir: dir, Namespace: namespace, Backend: all[0], Others: all[1:],
		Version: version, By: by, Session: session,
		Capabilities: func(ctx context.Context, b backend.Backend) backend.Capabilities { return Capabilities(ctx, state, b) },
	}}
	h.Reaching = (&reaching{host: h}).now
	return h, nil
}

// sources is where a policy of this host takes its names from.
func (h *Host) sources() *Sources {
	return &Sources{State: h.State, Fetch: h.Fetch, Warn: h.Warn, Words: h.Words}
}

func (h *Host) warn(text string) {
	if h.Warn != nil {
		h.Warn(text)
	}
}

func (h *Host) note(text string) {
	if h.Note != nil {
		h.Note(text)
	}
}

// wordsOf is the text of an error by the words of who called, where there are such.
func wordsOf(err error, words func(error) string) string {
	if words != nil {
		return words(err)
	}
	return err.Error()
}

func (h *Host) progress(p apply.Progress) {
	if h.Progress != nil {
		h.Progress(p)
	}
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/fleet/trust"
	"sluice/internal/language/apart"
	"sluice/internal/language/lists"
	"sluice/internal/words"
)

// signing asks for the lists that are to be signed, as hosts ask for theirs. What was signed
// last is what a new list is held against, and is signed again where none can be had.
type signing struct {
	ctx            context.Context
	cmd            *cobra.Command
	repository     *trust.Repository
	last           map[string]string // hashes of the newest bundle's files, by path
	store          lists.Store
	offline, force bool
}

func newSigning(ctx context.Context, cmd *cobra.Command, r *trust.Repository) (*signing, error) {
	from, err := sources(cmd)
	if err != nil {
		return nil, err
	}
	s := &signing{ctx: ctx, cmd: cmd, repository: r, offline: from.Offline, last: map[string]string{}}
	s.force, _ = cmd.Flags().GetBool("force")
	s.store = lists.Store{Dir: filepath.Join(from.State, "lists"), Context: ctx, Child: from.Fetch, Unconfined: apart.Once(from.Warn)}
	_, last, err := r.Newest()
	if err != nil || last == nil {
		return s, err
	}
	for _, f := range last.Lists {
		s.last[f.Path] = f.SHA256
	}
	return s, nil
}

// list is a bundle.Lister.
func (s *signing) list(path, set, url string) ([]byte, error) {
	was, err := s.signed(path, url)
	if err != nil {
		return nil, err
	}
	if !s.offline {
		err = s.fetch(url)
	}
	switch {
	case err != nil && was != nil:
		w := s.cmd.ErrOrStderr()
		fmt.Fprintf(w, "%s set %s stays as it was signed: %s\n", command.Paint(w, "33", "warning:"), set, command.StyleHints(words.Hinted(err, "")))
		return was, nil
	case err != nil:
		return nil, err
	}
	addresses, err := s.store.Addresses(url)
	return addresses.Lines(), err
}

// signed is what the newest bundle has of a list, nil for none, which becomes the copy.
func (s *signing) signed(path, url string) ([]byte, error) {
	hash, is := s.last[path]
	if !is {
		return nil, nil
	}
	text, err := s.repository.Blob(hash)
	if errors.Is(err, fs.ErrNotExist) && !s.offline {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return text, s.store.Put(url, text)
}

func (s *signing) fetch(url string) error {
	staging := s.store.Stage()
	defer staging.Discard()
	_, err := staging.Fetch(s.ctx, url, s.force)
	if err == nil {
		err = staging.Keep()
	}
	return err
}

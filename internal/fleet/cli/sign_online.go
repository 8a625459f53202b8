package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
)

// onlineSigner signs drafts in place of an operator, by the commands that operators have.
type onlineSigner struct {
	repository, controller string // folders
	keys                   []string

	mutex sync.Mutex // one draft at a time: they are files of one repository
}

func addOnlineSigning(cmd *cobra.Command) {
	cmd.Flags().String("sign-in", "", "sign drafts that admins roll out in the repository `DIR`, with --key, where fleet.yaml says signing: controller")
	command.Must(cmd.MarkFlagDirname("sign-in"))
	addKeys(cmd)
	cmd.MarkFlagsRequiredTogether("sign-in", "key")
}

// onlineSigning is what the flags say of it, nil where they say nothing. The keys are tried.
func onlineSigning(cmd *cobra.Command, controller string) (func(ctx context.Context, draft string) (*api.Publish, error), error) {
	s := onlineSigner{controller: controller}
	if s.repository, _ = cmd.Flags().GetString("sign-in"); s.repository == "" {
		return nil, nil
	}
	s.keys, _ = cmd.Flags().GetStringArray("key")
	r, err := openFleet(s.repository)
	if err != nil {
		return nil, err
	}
	role := r.Role("targets")
	signers, done, err := signersOf(cmd, role.Keys)
	done()
	if err == nil && len(signers) < role.Threshold {
		err = fmt.Errorf("policies of this fleet require %s, and --key names fewer: operators sign them", english.Plural(role.Threshold, "signature"))
	}
	return s.sign, err
}

// sign signs the repository with a draft. A repository that has other changes is left alone: who
// looked at the draft has not seen them.
func (s *onlineSigner) sign(ctx context.Context, draft string) (*api.Publish, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	changed, err := s.run(ctx, "--dry-run")
	if err != nil {
		return nil, err
	}
	if len(changed.Changed) > 0 {
		return nil, fmt.Errorf("the repository has changes that are in no bundle: %s\nhint: sluice-controller sign, in %s, shows and signs them", english.Few(changed.Changed, 5), s.repository)
	}
	if err := s.unpublished(ctx); err != nil {
		return nil, err
	}
	d, err := api.NewClient(s.controller).Draft(ctx, draft)
	if err != nil {
		return nil, err
	}
	is, err := draftIn(s.repository, d)
	if err != nil {
		return nil, err
	}
	names := is.names()
	signed, err := s.run(ctx, draft, "--yes")
	if err != nil {
		return nil, errors.Join(err, is.undo())
	}
	for _, c := range signed.Changed {
		if !slices.Contains(names, c[1:]) {
			return nil, fmt.Errorf("%s was changed while draft %s was signed: bundle %d is not published\nhint: look at it in %s, and sluice-controller publish it there", c[1:], draft, signed.Bundle.Number, s.repository)
		}
	}
	r, err := openFleet(s.repository)
	if err != nil {
		return nil, err
	}
	p, err := publicationOf(s.repository, r)
	if err != nil {
		return nil, err
	}
	return &p.Publish, send(ctx, api.NewClient(s.controller), r, p.files, p.older, &published{})
}

// unpublished is the error of a repository whose newest bundle the controller has not: it would be
// published with a draft, by whoever has not seen it.
func (s *onlineSigner) unpublished(ctx context.Context) error {
	r, err := openFleet(s.repository)
	if err != nil {
		return err
	}
	newest, _, err := r.Newest()
	if err != nil {
		return err
	}
	has, err := api.NewClient(s.controller).Policy(ctx)
	if err != nil {
		return err
	}
	if newest == nil || newest.Number != has.Bundle {
		return fmt.Errorf("the newest bundle in %s is not bundle %d, which was published last\nhint: sluice-controller publish, in %[1]s, publishes what is signed there", s.repository, has.Bundle)
	}
	return nil
}

// run is "sluice-controller sign" with more arguments; lists stay as they were signed.
func (s *onlineSigner) run(ctx context.Context, more ...string) (*signedJSON, error) {
	args := []string{"sign", "--json", "--offline", "--dir", s.controller, "--repository", s.repository}
	for _, k := range s.keys {
		args = append(args, "--key", k)
	}
	root := Root()
	var out bytes.Buffer
	root.SetArgs(append(args, more...))
	root.SetOut(&out)
	root.SetErr(os.Stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		return nil, err
	}
	is := &signedJSON{}
	return is, json.Unmarshal(out.Bytes(), is)
}

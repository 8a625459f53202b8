package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sluice/internal/base/tool"
	"sluice/internal/fleet/bundle"
)

// revision is the files of a folder as they are in a revision of git, under the names that
// they have in the folder.
type revision struct {
	*bundle.Folder
	dir  string // the folder, as it was named
	root *os.Root
	temp string
}

// checkOut takes a revision out of git, into a folder that Close removes: what git makes of it
// for whoever works on that revision, with the attributes that it has itself. "git archive"
// would leave out what these name. It is as large as what is checked out already, so nothing
// bounds it.
func checkOut(ctx context.Context, dir, name string) (*revision, error) {
	hash, err := git(ctx, dir, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("%q is not a revision of the repository that %s is in: %w", name, dir, err)
	}
	place, err := git(ctx, dir, nil, "rev-parse", "--absolute-git-dir", "--show-prefix")
	if err != nil {
		return nil, err
	}
	gitDir, prefix, _ := strings.Cut(place, "\n")
	temp, err := os.MkdirTemp("", "sluice-controller-")
	if err != nil {
		return nil, err
	}
	r := &revision{dir: dir, temp: temp}
	tree := filepath.Join(temp, "tree")
	folder := filepath.Join(tree, filepath.FromSlash(prefix))
	if err = os.Mkdir(tree, 0o700); err == nil {
		_, err = git(ctx, tree, []string{"GIT_INDEX_FILE=" + filepath.Join(temp, "index"), "GIT_DIR=" + gitDir, "GIT_WORK_TREE=" + tree},
			"read-tree", "--reset", "-u", "--no-sparse-checkout", "--no-recurse-submodules", hash)
	}
	if err == nil {
		err = os.MkdirAll(folder, 0o700) // which the revision may lack
	}
	if err == nil {
		r.root, err = os.OpenRoot(folder)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s as it was in %s: %w", dir, name, err), r.Close())
	}
	if r.Folder, err = bundle.Open(dir, r.root); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// git runs git in a folder, with more in its environment, and says what it printed. The error
// has what it wrote.
func git(ctx context.Context, dir string, more []string, args ...string) (string, error) {
	var out, errOut bytes.Buffer
	cmd := tool.Command(ctx, "git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(cmd.Environ(), more...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := tool.Run(cmd); err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(errOut.String()), "\n")
		if said == "" {
			return "", err
		}
		return "", errors.New(said)
	}
	return strings.TrimSpace(out.String()), nil
}

// Close removes the files.
func (r *revision) Close() error {
	var err error
	if r.root != nil {
		err = r.root.Close()
	}
	return errors.Join(err, os.RemoveAll(r.temp))
}

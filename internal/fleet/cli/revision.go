package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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

// largestRevision is how many bytes the files of a revision may have.
const largestRevision = 1 << 30

// checkOut takes a revision out of git, into a folder that Close removes.
func checkOut(ctx context.Context, dir, name string) (*revision, error) {
	hash, err := git(ctx, dir, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("%q is no revision of the repository that %s is in: %w", name, dir, err)
	}
	files, err := git(ctx, dir, "archive", "--format=tar", strings.TrimSpace(string(hash)))
	if err != nil {
		return nil, fmt.Errorf("read %s as it was in %s: %w", dir, name, err)
	}
	temp, err := os.MkdirTemp("", "sluice-controller-")
	if err != nil {
		return nil, err
	}
	r := &revision{dir: dir, temp: temp}
	if r.root, err = os.OpenRoot(temp); err == nil {
		err = r.unpack(tar.NewReader(bytes.NewReader(files)))
	}
	if err == nil {
		r.Folder, err = bundle.Open(dir, r.root)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// git runs git in a folder. The error has what it wrote.
func git(ctx context.Context, dir string, args ...string) ([]byte, error) {
	var out, errOut bytes.Buffer
	cmd := tool.Command(ctx, "git", append([]string{"-C", dir}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := tool.Run(cmd); err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(errOut.String()), "\n")
		if said == "" {
			return nil, err
		}
		return nil, errors.New(said)
	}
	if out.Len() > largestRevision {
		return nil, fmt.Errorf("it has more than %d MiB", largestRevision>>20)
	}
	return out.Bytes(), nil
}

// unpack writes files and links, which os.Root keeps in their folder.
func (r *revision) unpack(t *tar.Reader) error {
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.FromSlash(strings.TrimSuffix(h.Name, "/"))
		switch h.Typeflag {
		case tar.TypeDir:
			err = r.root.MkdirAll(name, 0o700)
		case tar.TypeSymlink:
			err = r.root.Symlink(h.Linkname, name)
		case tar.TypeReg:
			var data []byte
			if data, err = io.ReadAll(t); err == nil {
				err = r.root.WriteFile(name, data, 0o600)
			}
		}
		if err != nil {
			return err
		}
	}
}

// Close removes the files.
func (r *revision) Close() error {
	var err error
	if r.root != nil {
		err = r.root.Close()
	}
	return errors.Join(err, os.RemoveAll(r.temp))
}

package trust

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"sluice/internal/base/regular"
)

// blobsName is the folder of what the listed bundles are made of, each file named by its
// SHA-256. The files of older bundles are nowhere else once they were changed, and a
// controller whose database was restored needs them again.
const blobsName = "blobs"

func (r *Repository) blobPath(hash string) string { return filepath.Join(r.dir, blobsName, hash) }

// Blob is a file or a list of a listed bundle, as it was signed; fs.ErrNotExist says that
// it was not kept.
func (r *Repository) Blob(hash string) ([]byte, error) {
	text, err := regular.Read(r.blobPath(hash), MaxList)
	if err != nil {
		return nil, err
	}
	return text, checkHash(r.blobPath(hash), hash, int64(len(text)), text)
}

// keep writes what a bundle is made of, where it is not there yet.
func (r *Repository) keep(texts map[string][]byte) error {
	if len(texts) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(r.dir, blobsName), 0o755); err != nil {
		return err
	}
	for hash, text := range texts {
		if _, err := r.Blob(hash); err == nil {
			continue
		}
		if err := writeFile(r.blobPath(hash), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tidy removes what no listed bundle is made of any more.
func (r *Repository) tidy() error {
	entries, err := os.ReadDir(filepath.Join(r.dir, blobsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, b := range r.Bundles() {
		text, err := r.manifestOf(b)
		if err != nil {
			return err
		}
		m, err := b.Manifest(text)
		if err != nil {
			return err
		}
		for _, f := range m.Files() {
			needed[f.SHA256] = true
		}
	}
	for _, e := range entries {
		if isHash(e.Name()) && !needed[e.Name()] {
			if err := os.Remove(r.blobPath(e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

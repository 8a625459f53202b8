package kernels

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

var (
	// errNoStatus: the guest has written nothing onto its disk.
	errNoStatus = errors.New("no exit status")
	// errCutOff: it was not done with writing.
	errCutOff = errors.New("the guest's results are cut off")
)

// longestStatus is more than a number needs.
const longestStatus = 16

// unpack reads the disk that the guest wrote: the command's exit status, and the
// results, which go where they are wanted.
func unpack(disk string, results map[string]string) (status int, err error) {
	f, err := os.Open(disk)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	missing := map[string]bool{}
	to := map[string]string{}
	for from, place := range results {
		to[inGuest(from)] = place
		missing[inGuest(from)] = true
	}
	r := tar.NewReader(f)
	known, whole := false, false
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return status, fmt.Errorf("read the guest's results: %w", err)
		}
		name := path.Clean(h.Name)
		if name == "lab/status" {
			text, err := io.ReadAll(io.LimitReader(r, longestStatus))
			if err != nil {
				return 0, err
			}
			if status, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
				return 0, fmt.Errorf("read the guest's exit status: %w", err)
			}
			known = true
			continue
		}
		if name == "lab/end" {
			whole = true
			break
		}
		for from, place := range to {
			if inside, ok := below(name, from); ok {
				delete(missing, from)
				if err := write(h, r, filepath.Join(place, inside)); err != nil {
					return status, err
				}
			}
		}
	}
	switch {
	case !known:
		return 0, errNoStatus
	case !whole:
		return status, errCutOff
	}
	for from := range missing {
		return status, fmt.Errorf("the command made no /%s", from)
	}
	return status, nil
}

// below is the path of a file within a directory; "" is the directory itself.
func below(name, dir string) (inside string, ok bool) {
	if name == dir {
		return "", true
	}
	inside, ok = strings.CutPrefix(name, dir+"/")
	return inside, ok && filepath.IsLocal(inside)
}

func write(h *tar.Header, r io.Reader, file string) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(file, 0o755)
	case tar.TypeReg:
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, os.FileMode(h.Mode).Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	}
	return nil // links and devices are no results
}

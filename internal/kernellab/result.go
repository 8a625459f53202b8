package kernellab

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

// errNoStatus: the guest has written nothing onto its disk.
var errNoStatus = errors.New("no exit status")

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
	known := false
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
			text, err := io.ReadAll(r)
			if err != nil {
				return 0, err
			}
			if status, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
				return 0, fmt.Errorf("read the guest's exit status: %w", err)
			}
			known = true
			continue
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
	if !known {
		return 0, errNoStatus
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

// Package archive is several files in one: a tar, compressed by zstd, whose first member
// says what the file is and has the SHA-256 of each of the others. Copies of a controller
// and bundles for a controller without a network are such files. Callers: the commands of
// sluice-controller that write and read them.
package archive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// Why a file is not read.
var (
	ErrForeign = errors.New("not a file of this kind")
	ErrNewer   = errors.New("it was written by a newer version of this program")
	ErrDamaged = errors.New("it is damaged")
)

const (
	headName   = "sluice.json"
	mostHead   = 4 << 20
	mostFiles  = 100_000
	mostMemory = 32 << 20 // of zstd's window
)

// File is one of the files, as the first member reports it.
type File struct {
	Path   string      `json:"path"`
	Mode   fs.FileMode `json:"mode"`
	Size   int64       `json:"size"`
	SHA256 string      `json:"sha256"`
}

// head is the first member.
type head struct {
	Kind    string          `json:"kind"`
	Version int             `json:"version"` // of the kind: what a program does not know, it does not read
	About   json.RawMessage `json:"about"`
	Files   []File          `json:"files"`
}

// Source is a file that is to be written. It is read twice, and must not change.
type Source struct {
	Path string // relative, with slashes
	Mode fs.FileMode
	Open func() (io.ReadCloser, error)
}

// Bytes are a file that is in memory.
func Bytes(path string, mode fs.FileMode, data []byte) Source {
	return Source{path, mode, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }}
}

// Write writes an archive. The same content gives the same bytes.
func Write(w io.Writer, kind string, version int, about any, sources []Source) (err error) {
	h := head{Kind: kind, Version: version, Files: []File{}}
	if h.About, err = json.Marshal(about); err != nil {
		return err
	}
	for _, s := range sources {
		f := File{Path: s.Path, Mode: s.Mode}
		if f.Size, f.SHA256, err = s.copyTo(io.Discard); err != nil {
			return err
		}
		h.Files = append(h.Files, f)
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(text) > mostHead || len(h.Files) > mostFiles {
		return fmt.Errorf("%d files are too many for one", len(h.Files))
	}
	packed, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true))
	if err != nil {
		return err
	}
	out := tar.NewWriter(packed)
	if err := member(out, File{Path: headName, Mode: 0o600, Size: int64(len(text))}); err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	for i, s := range sources {
		if err := member(out, h.Files[i]); err != nil {
			return err
		}
		if size, sum, err := s.copyTo(out); err != nil {
			return err
		} else if size != h.Files[i].Size || sum != h.Files[i].SHA256 {
			return fmt.Errorf("%s was changed while it was read", s.Path)
		}
	}
	return errors.Join(out.Close(), packed.Close())
}

func member(out *tar.Writer, f File) error {
	return out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: int64(f.Mode.Perm()), Size: f.Size, Format: tar.FormatPAX})
}

func (s Source) copyTo(w io.Writer) (size int64, sum string, err error) {
	r, err := s.Open()
	if err != nil {
		return 0, "", err
	}
	hash := sha256.New()
	size, err = io.Copy(io.MultiWriter(w, hash), r)
	return size, hex.EncodeToString(hash.Sum(nil)), errors.Join(err, r.Close())
}

// Reader reads an archive.
type Reader struct {
	// Files are those that follow, in their order.
	Files []File

	about json.RawMessage
	tar   *tar.Reader
	zstd  *zstd.Decoder
}

// Open reads the first member of a file that is to be of a kind: [ErrForeign] and
// [ErrNewer] say why not. Close lets go of its memory, and does not close r.
func Open(r io.Reader, kind string, version int) (*Reader, error) {
	packed, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(mostMemory))
	if err != nil {
		return nil, err
	}
	a := &Reader{tar: tar.NewReader(packed), zstd: packed}
	if err := a.head(kind, version); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

func (a *Reader) head(kind string, version int) error {
	first, err := a.tar.Next()
	if errors.Is(err, io.EOF) || errors.Is(err, zstd.ErrMagicMismatch) || errors.Is(err, tar.ErrHeader) {
		return ErrForeign
	}
	if err != nil {
		return damaged(err)
	}
	if first.Name != headName || first.Size > mostHead {
		return ErrForeign
	}
	text, err := io.ReadAll(a.tar)
	if err != nil {
		return damaged(err)
	}
	var h head
	if err := json.Unmarshal(text, &h); err != nil {
		return damaged(err)
	}
	switch {
	case h.Kind != kind:
		return fmt.Errorf("%w, but of the kind %.40q", ErrForeign, h.Kind)
	case h.Version > version:
		return fmt.Errorf("%w: its format has version %d, and this program knows %d", ErrNewer, h.Version, version)
	case len(h.Files) > mostFiles:
		return damaged(fmt.Errorf("%d files", len(h.Files)))
	}
	seen := map[string]bool{}
	for _, f := range h.Files {
		if !filepath.IsLocal(f.Path) || seen[f.Path] || f.Size < 0 || f.Mode&^fs.ModePerm != 0 {
			return damaged(fmt.Errorf("a file %.200q", f.Path))
		}
		seen[f.Path] = true
	}
	a.Files, a.about = h.Files, h.About
	return nil
}

// About reads into v what was given to [Write].
func (a *Reader) About(v any) error {
	if err := json.Unmarshal(a.about, v); err != nil {
		return damaged(err)
	}
	return nil
}

// Each gives the files to f, each with its content, which f reads as far as it wants. That
// all of it is what was written is known when Each has returned without an error
// ([ErrDamaged]).
func (a *Reader) Each(f func(File, io.Reader) error) error {
	for _, want := range a.Files {
		next, err := a.tar.Next()
		if err != nil {
			return damaged(err)
		}
		if next.Name != want.Path || next.Size != want.Size {
			return damaged(fmt.Errorf("%.200q is where %s was written", next.Name, want.Path))
		}
		hash := sha256.New()
		content := &checked{r: io.TeeReader(a.tar, hash)}
		err = f(want, content)
		if content.err != nil { // f may have wrapped it in words of its own
			return damaged(content.err)
		}
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return damaged(err)
		}
		if hex.EncodeToString(hash.Sum(nil)) != want.SHA256 {
			return damaged(fmt.Errorf("%s is not what was written", want.Path))
		}
	}
	if _, err := a.tar.Next(); !errors.Is(err, io.EOF) {
		return damaged(errors.Join(errors.New("there is data after its last file"), err))
	}
	if n, err := io.Copy(io.Discard, a.zstd); err != nil || n > mostHead { // up to its checksum
		return damaged(errors.Join(errors.New("there is data after its last file"), err))
	}
	return nil
}

// checked keeps the error of reading.
type checked struct {
	r   io.Reader
	err error
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// Close frees what reading took.
func (a *Reader) Close() { a.zstd.Close() }

func damaged(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: its end is missing", ErrDamaged)
	}
	return fmt.Errorf("%w: %s", ErrDamaged, err.Error())
}

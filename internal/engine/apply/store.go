package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/renameio/v2"
	"github.com/klauspost/compress/zstd"

	"sluice/internal/base/regular"
)

// store is the state directory of one network namespace:
//
//	lock                     held while something changes
//	current.json             what runs, what boots, what waits
//	journal.json             only while a change is under way
//	journal.step             how far it is
//	tuned.json               what commands have set beside any policy
//	generations/N.json       one generation
//	blobs/SHA256.zst         texts, artifacts and programs, shared
type store struct {
	dir  string
	soft *unsaved // nil: what cannot be written is an error
}

const (
	currentFile    = "current.json"
	journalFile    = "journal.json"
	stepFile       = "journal.step"
	generationsDir = "generations"
	blobsDir       = "blobs"
	blobSuffix     = ".zst"
)

// NewerError says that a newer Sluice wrote the state.
type NewerError struct {
	Path   string
	Format int
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s has format %d, this sluice reads up to %d", e.Path, e.Format, format)
}

// DamagedError says that a file of the state cannot be used.
type DamagedError struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string { return fmt.Sprintf("%s is damaged: %v", e.Path, e.Err) }
func (e *DamagedError) Unwrap() error { return e.Err }

// MissingError is for a generation that never was, or was forgotten.
type MissingError struct{ Generation int }

func (e *MissingError) Error() string {
	return fmt.Sprintf("there is no generation %d", e.Generation)
}

// Is makes it a file that is not there.
func (e *MissingError) Is(target error) bool { return target == fs.ErrNotExist }

func (s store) make() error {
	for _, dir := range []string{s.dir, filepath.Join(s.dir, generationsDir), filepath.Join(s.dir, blobsDir)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the state directory: %w", err)
		}
	}
	return nil
}

// What a file of the state holds at most, in bytes. A record names a few thousand
// blobs and addresses; a blob has the elements of large sets, some 100 bytes each.
const (
	mostRecord = 64 << 20
	mostBlob   = 1 << 30 // packed, and unpacked
)

// readState reads a file of the state. What is not a file, or larger than what is
// written there, is damaged.
func readState(path string, most int64) ([]byte, error) {
	data, err := regular.Read(path, most)
	switch {
	case regular.Unfit(err):
		return nil, &DamagedError{path, errors.Unwrap(err)}
	case err != nil:
		return nil, fmt.Errorf("read the state: %w", err)
	}
	return data, nil
}

// readJSON reads a versioned file; fs.ErrNotExist where it is not there.
func (s store) readJSON(name string, v any) error {
	path := filepath.Join(s.dir, name)
	data, err := readState(path, mostRecord)
	if err != nil {
		return err
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return &DamagedError{path, err}
	}
	switch {
	case version.Format > format:
		return &NewerError{path, version.Format}
	case version.Format < 1:
		return &DamagedError{path, errors.New("it has no format number")}
	}
	if err := json.Unmarshal(data, v); err != nil {
		return &DamagedError{path, err}
	}
	return nil
}

func (s store) writeJSON(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return s.write(name, append(data, '\n'))
}

// writeFile is [os.WriteFile] for what need not survive a crash. What lies there and is
// no file is replaced.
func writeFile(path string, data []byte) error {
	file, err := regular.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if errors.Is(err, regular.Err) && os.Remove(path) == nil {
		file, err = regular.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	}
	if err != nil {
		return err
	}
	err = file.Truncate(0)
	if err == nil {
		_, err = file.Write(data)
	}
	return errors.Join(err, file.Close())
}

// write replaces a file so that a crash leaves the old or the new one.
func (s store) write(name string, data []byte) error {
	path := filepath.Join(s.dir, name)
	if err := renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return s.refuse(s.unwritable(err))
	}
	return s.refuse(syncDir(filepath.Dir(path)))
}

func (s store) remove(name string) error {
	path := filepath.Join(s.dir, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.refuse(s.unwritable(err))
	}
	return s.refuse(syncDir(filepath.Dir(path)))
}

func syncDir(path string) error {
	if err := regular.SyncDir(path); err != nil {
		return fmt.Errorf("sync the state: %w", err)
	}
	return nil
}

// current is a fresh one where the state has nothing at all, and one rebuilt where
// it was lost. The error is a *NewerError.
func (s store) current() (*current, error) {
	c := &current{}
	err := s.readJSON(currentFile, c)
	if err == nil {
		if err = c.whole(); err == nil {
			return c, nil
		}
		err = &DamagedError{filepath.Join(s.dir, currentFile), err}
	}
	var newer *NewerError
	switch {
	case errors.As(err, &newer):
		return nil, err
	case errors.Is(err, fs.ErrNotExist) && !s.known():
		return &current{Format: format, Next: 1}, nil
	}
	return s.recovered(err), nil
}

func (s store) saveCurrent(c *current) error { return s.writeJSON(currentFile, c) }

// journal is nil where no change is under way.
func (s store) journal() (*journal, error) {
	var j journal
	err := s.readJSON(journalFile, &j)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if step, err := regular.Read(filepath.Join(s.dir, stepFile), mostRecord); err == nil {
		j.Step = string(step)
	}
	return &j, nil
}

func (s store) saveJournal(j *journal) error { return s.writeJSON(journalFile, j) }

// saveStep notes how far a change is. It is for the reader alone, who asks before
// the next boot, so it does not wait for the disk.
func (s store) saveStep(text string) error {
	if err := writeFile(filepath.Join(s.dir, stepFile), []byte(text)); err != nil {
		return s.refuse(s.unwritable(err))
	}
	return nil
}

func (s store) endJournal() error {
	if err := s.remove(stepFile); err != nil {
		return err
	}
	return s.remove(journalFile)
}

func generationName(n int) string {
	return filepath.Join(generationsDir, strconv.Itoa(n)+".json")
}

func (s store) generation(n int) (*Generation, error) {
	var g Generation
	if err := s.readJSON(generationName(n), &g); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &MissingError{n}
		}
		return nil, err
	}
	return &g, nil
}

func (s store) saveGeneration(g *Generation) error { return s.writeJSON(generationName(g.Number), g) }

// numbers lists the generations that are kept, in order.
func (s store) numbers() ([]int, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, generationsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list generations: %w", err)
	}
	var numbers []int
	for _, e := range entries {
		name, isJSON := strings.CutSuffix(e.Name(), ".json")
		if n, err := strconv.Atoi(name); err == nil && isJSON {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// A packer's tables are larger than most of what it packs, so all blobs share one.
var (
	packer = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true))
	})
	unpacker = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(mostBlob))
	})
)

// putBlob keeps data under its hash, compressed; equal data are kept once, and
// damaged ones replaced.
func (s store) putBlob(data []byte) (string, error) {
	id := blobID(data)
	return id, s.putNamed(id, data)
}

// putNamed is putBlob for data whose hash is known.
func (s store) putNamed(id string, data []byte) error {
	name := filepath.Join(blobsDir, id+blobSuffix)
	if len(data) > mostBlob {
		return remedied(SmallerSets, fmt.Errorf("write the state: %s would be larger than %d MiB", name, mostBlob>>20))
	}
	if _, err := s.blob(id); err == nil {
		return nil
	}
	w, err := packer()
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	return s.write(name, w.EncodeAll(data, nil))
}

func (s store) blobPath(id string) string { return filepath.Join(s.dir, blobsDir, id+blobSuffix) }

func (s store) blob(id string) ([]byte, error) {
	path := s.blobPath(id)
	packed, err := readState(path, mostBlob)
	if err != nil {
		return nil, err
	}
	r, err := unpacker()
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	data, err := r.DecodeAll(packed, nil)
	if err != nil {
		return nil, &DamagedError{path, err}
	}
	if blobID(data) != id {
		return nil, &DamagedError{path, errors.New("its contents do not match the hash in its name")}
	}
	return data, nil
}

// keep is how many generations history holds at least.
const keep = 20

// prune forgets the oldest generations, never those in spare, and the blobs
// that no generation needs. Generations that were written and never applied go
// as well: the command that wrote them was killed.
func (s store) prune(spare ...int) error {
	numbers, err := s.numbers()
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for i, n := range numbers {
		needed := slices.Contains(spare, n)
		g, err := s.generation(n)
		var damaged *DamagedError
		switch {
		case errors.As(err, &damaged) && needed:
			return nil // its blobs cannot be told from others, so none goes
		case errors.As(err, &damaged), err == nil && !needed && (g.Applied.IsZero() || i < len(numbers)-keep):
			if err := s.remove(generationName(n)); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		needs := g.blobs()
		if g.Fitted != nil {
			needs = append(append(needs, g.Fitted.Artifact), g.Fitted.Parts...)
		}
		for _, id := range needs {
			used[id] = true
		}
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, blobsDir))
	if err != nil {
		return fmt.Errorf("list the state: %w", err)
	}
	for _, e := range entries {
		if !used[strings.TrimSuffix(e.Name(), blobSuffix)] {
			if err := s.remove(filepath.Join(blobsDir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

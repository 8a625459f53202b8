package policy

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sluice/internal/language/source"
)

// edited are files of which texts stand for some, by their absolute names, whether there are
// such files or not. What is opened is that of the disk: so are lists that sets take from files.
type edited struct {
	Files
	texts map[string][]byte
}

// editedOf is nil where there is no text.
func editedOf(files Files, texts map[string][]byte) (*edited, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	out := &edited{Files: files, texts: map[string][]byte{}}
	for name, text := range texts {
		path, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		out.texts[path] = text
	}
	return out, nil
}

// text is what is read in place of a file.
func (e *edited) text(name string) (text []byte, is bool) {
	if e == nil {
		return nil, false
	}
	path, err := filepath.Abs(name)
	if err == nil {
		text, is = e.texts[path]
	}
	return text, is
}

// read is the text, or else what the file has.
func (e *edited) read(name string, open func(string) (*os.File, error)) ([]byte, error) {
	if text, is := e.text(name); is {
		return text, nil
	}
	return source.ReadFrom(open, name, dialect.MaxSize)
}

func (e *edited) Real(name string) (string, error) {
	path, err := e.Files.Real(name)
	if _, is := e.text(name); is && err != nil {
		return filepath.Abs(name)
	}
	return path, err
}

// Glob finds the texts without a file too.
func (e *edited) Glob(pattern string) ([]string, error) {
	names, err := e.Files.Glob(pattern)
	if err != nil {
		return nil, err
	}
	at, full := "", pattern
	if !filepath.IsAbs(pattern) {
		if at, err = os.Getwd(); err != nil {
			return nil, err
		}
		at = strings.TrimSuffix(at, "/") + "/"
		full = escapePattern(at) + pattern
	}
	for _, path := range slices.Sorted(maps.Keys(e.texts)) {
		if matches, err := filepath.Match(full, path); err == nil && matches {
			names = append(names, strings.TrimPrefix(path, at))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

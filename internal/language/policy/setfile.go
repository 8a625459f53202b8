package policy

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Files are the names of the files that the policy was read from, and of those of its
// sets.
func (p *Policy) Files() (texts, sets []string) {
	for _, s := range p.Sets {
		if s.File != nil {
			sets = append(sets, s.FilePath())
		}
	}
	return append([]string{p.File}, p.Includes...), sets
}

// FilePath is the name of the set's file, which is relative to the file that names it.
// The set is one of a file.
func (s *Set) FilePath() string {
	if filepath.IsAbs(s.File.Text) {
		return s.File.Text
	}
	return filepath.Join(filepath.Dir(s.File.Pos.File), s.File.Text)
}

// Open opens a file of the policy, such as that of a set, where it is by the policy's
// Dir. Errors are those of [regular.Open] and name it as it was given.
func (p *Policy) Open(name string) (*os.File, error) {
	f, err := p.where().Open(p.Path(name))
	var failed *fs.PathError
	if errors.As(err, &failed) {
		failed.Path = name
	}
	return f, err
}

// Path is where a file of the policy is, by the policy's Dir.
func (p *Policy) Path(name string) string {
	if p.Dir == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(p.Dir, name)
}

package compile_test

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"time"
)

// fileLists serves a URL from the file of a folder that bears its last name.
type fileLists string

func (dir fileLists) Open(url string, _ time.Duration) (io.ReadCloser, string, error) {
	f, err := os.Open(filepath.Join(string(dir), path.Base(url)))
	return f, url, err
}

package operator

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/fleet/trust"
)

func TestMain(m *testing.M) {
	work = 10
	os.Exit(m.Run())
}

func TestKeyFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, passphrase := range []string{"", "correct horse"} {
		path := filepath.Join(dir, "key"+strings.ReplaceAll(passphrase, " ", "-"))
		if err := writeKey(path, key, passphrase); err != nil {
			t.Fatal(err)
		}
		if err := writeKey(path, key, ""); !errors.Is(err, os.ErrExist) {
			t.Errorf("wrote over a key: %v", err)
		}
		read, err := ReadKey(path, func(string) (string, error) { return passphrase, nil })
		if err != nil || !read.Public().Equal(key.Public()) {
			t.Errorf("read with %q: %v", passphrase, err)
		}
		if passphrase == "" {
			continue
		}
		for _, wrong := range []string{"", "wrong"} {
			if _, err := ReadKey(path, func(string) (string, error) { return wrong, nil }); !errors.Is(err, ErrPassphrase) {
				t.Errorf("read with %q: %v", wrong, err)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cut := filepath.Join(dir, "cut")
		if err := os.WriteFile(cut, text[:len(text)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadKey(cut, func(string) (string, error) { return passphrase, nil }); !errors.Is(err, trust.ErrMalformed) {
			t.Errorf("read half a key: %v", err)
		}
	}
}

package archive

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func written(t testing.TB, kind string, version int) []byte {
	t.Helper()
	var out bytes.Buffer
	files := []Source{Bytes("fleet.db", 0o600, bytes.Repeat([]byte("rows "), 50_000)), Bytes("keys/live.pem", 0o600, []byte("a key")), Bytes("empty", 0o644, nil)}
	if err := Write(&out, kind, version, map[string]string{"fleet": "example.net"}, files); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func read(data []byte) (files, about map[string]string, err error) {
	a, err := Open(bytes.NewReader(data), "test", 2)
	if err != nil {
		return nil, nil, err
	}
	defer a.Close()
	if err := a.About(&about); err != nil {
		return nil, nil, err
	}
	files = map[string]string{}
	return files, about, a.Each(func(f File, r io.Reader) error {
		text, err := io.ReadAll(r)
		files[f.Path] = string(text)
		return err
	})
}

func TestWholeOrDamaged(t *testing.T) {
	t.Parallel()
	good := written(t, "test", 2)
	if !bytes.Equal(good, written(t, "test", 2)) {
		t.Error("the same content gives other bytes")
	}
	files, about, err := read(good)
	if err != nil || len(files) != 3 || files["keys/live.pem"] != "a key" || len(files["fleet.db"]) != 250_000 || about["fleet"] != "example.net" {
		t.Fatalf("%v %v %v", err, about, len(files))
	}
	// Cut anywhere, or with a bit that is another one, it is not read without an error.
	for at := range good {
		if _, _, err := read(good[:at]); err == nil {
			t.Fatalf("cut after %d of %d bytes, it is read", at, len(good))
		}
		bad := bytes.Clone(good)
		bad[at] ^= 0x10
		if files, _, err := read(bad); err == nil && (len(files) != 3 || files["keys/live.pem"] != "a key") {
			t.Fatalf("with byte %d changed, it is read: %v", at, files)
		}
	}
	for want, data := range map[error][]byte{
		ErrForeign: written(t, "another", 1), ErrNewer: written(t, "test", 3), ErrDamaged: good[:len(good)-5],
	} {
		if _, _, err := read(data); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	for _, text := range []string{"", "PK\x03\x04", strings.Repeat("x", 2000)} {
		if _, _, err := read([]byte(text)); !errors.Is(err, ErrForeign) {
			t.Errorf("%.10q: %v", text, err)
		}
	}
	var out bytes.Buffer
	if err := Write(&out, "test", 2, nil, []Source{Bytes("../out", 0o600, nil)}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := read(out.Bytes()); !errors.Is(err, ErrDamaged) {
		t.Errorf("a file above the folder: %v", err)
	}
	n := 0
	changing := Source{"log", 0o600, func() (io.ReadCloser, error) {
		n++
		return io.NopCloser(strings.NewReader(strings.Repeat("x", n))), nil
	}}
	if err := Write(io.Discard, "test", 2, nil, []Source{changing}); err == nil {
		t.Error("a file that changes is written")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(written(f, "test", 2))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _, _ = read(data) })
}

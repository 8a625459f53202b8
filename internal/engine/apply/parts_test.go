package apply

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"sluice/internal/backend"
)

// TestParts: what is made of parts comes back, large ones are kept once, and only
// as long as a generation needs them.
func TestParts(t *testing.T) {
	s := testStore(t)
	large, other := bytes.Repeat([]byte("large"), apartFrom), bytes.Repeat([]byte("other"), apartFrom)
	count := func() int {
		entries, err := os.ReadDir(s.blobPath("")[:len(s.blobPath(""))-len("/"+blobSuffix)])
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	keep := func(data []byte) (string, []string) {
		t.Helper()
		id, parts, err := s.putWhole(data)
		if err != nil {
			t.Fatal(err)
		}
		if id != wholeID(data) {
			t.Errorf("it is named %s, not %s", id, wholeID(data))
		}
		if got, err := s.whole(id); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes come back as %d, %v", len(data), len(got), err)
		}
		return id, parts
	}
	first, firstParts := keep(backend.Join([]byte("one"), large, nil))
	if n := count(); n != 2 || len(firstParts) != 1 {
		t.Errorf("%d blobs, parts %v", n, firstParts)
	}
	second, secondParts := keep(backend.Join([]byte("two"), large, nil, other))
	if n := count(); n != 4 || len(secondParts) != 1 {
		t.Errorf("%d blobs beside, parts %v", n, secondParts)
	}
	if _, parts := keep(backend.Join(large, []byte("three"))); count() != 5 || len(parts) != 1 || parts[0] != firstParts[0] {
		t.Errorf("%d blobs with the same large part, %v", count(), parts)
	}
	if err := s.remove(filepath.Join(blobsDir, wholeID(backend.Join(large, []byte("three")))+blobSuffix)); err != nil {
		t.Fatal(err)
	}
	whole, wholeParts := keep(bytes.Repeat([]byte("not made of parts"), largePart))
	if n := count(); n != 5 || len(wholeParts) != 0 {
		t.Errorf("%d blobs beside what has none, parts %v", n, wholeParts)
	}
	few, fewParts := keep(backend.Join([]byte("few"), bytes.Repeat([]byte{'x'}, largePart)))
	if n := count(); n != 6 || len(fewParts) != 0 {
		t.Errorf("%d blobs beside a part that is not worth its own, parts %v", n, fewParts)
	}
	if err := s.remove(filepath.Join(blobsDir, few+blobSuffix)); err != nil {
		t.Fatal(err)
	}
	for n, g := range []*Generation{
		{Artifact: first, Program: whole, Parts: firstParts},
		{Fitted: &Fitted{Artifact: second, Parts: secondParts}},
	} {
		g.Format, g.Number, g.Applied = format, n+1, g.Created.AddDate(1, 0, 0)
		if err := s.saveGeneration(g); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.prune(1, 2); err != nil || count() != 5 {
		t.Errorf("%d blobs of two generations, %v", count(), err)
	}
	if err := s.remove(generationName(1)); err != nil {
		t.Fatal(err)
	}
	if err := s.prune(2); err != nil || count() != 2 {
		t.Errorf("%d blobs of one generation, %v", count(), err)
	}
	if _, err := s.whole(second); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(s.blobPath(secondParts[0]), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	var damaged *DamagedError
	if _, err := s.whole(second); !errors.As(err, &damaged) {
		t.Errorf("a damaged part: %v", err)
	}
	keep(backend.Join([]byte("two"), large, nil, other))
}

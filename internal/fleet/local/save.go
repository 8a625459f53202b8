package local

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/base/regular"
)

// mostFile bounds a file of a policy that is saved, in bytes.
const mostFile = 16 << 20

// saved is what is to be saved: a file of a policy, which is there.
type saved struct {
	File string `json:"file"` // absolute
	Was  string `json:"was"`  // SHA-256, in hexadecimal, of the text that it was edited from
	Text string `json:"text"`
}

// save gives a file of a policy another text, as the caller and in one step, where it has the
// text still that it was edited from.
func (s *Server) save(w http.ResponseWriter, r *http.Request) {
	in := saved{}
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, 2*mostFile))
	body.DisallowUnknownFields()
	if err := body.Decode(&in); err != nil {
		fail(w, http.StatusBadRequest, "the request cannot be read: "+err.Error())
		return
	}
	if err := in.save(); err != nil {
		fail(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (in *saved) save() error {
	if !filepath.IsAbs(in.File) || !slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(in.File)) || len(in.Text) > mostFile {
		return fmt.Errorf("%s is not a policy file, which ends in .yaml", in.File)
	}
	f, err := regular.Open(in.File)
	if err != nil {
		return err
	}
	defer f.Close()
	// sluice edit holds the same lock.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("somebody is editing %s with sluice edit; save it when they have finished", in.File)
	}
	text, err := regular.ReadAll(f, in.File, mostFile)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != in.Was {
		return fmt.Errorf("%s was changed by somebody else meanwhile; nothing was written", in.File)
	}
	return regular.Replace(in.File, []byte(in.Text))
}

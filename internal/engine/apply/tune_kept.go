package apply

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"sluice/internal/base/regular"
)

// tunedFile is the record of what commands have set.
const tunedFile = "tuned.json"

// tuning is that record.
type tuning struct {
	Format int    `json:"format"`
	BootID string `json:"boot-id"` // of which Before and Pending are
	Tuned
	Unset   bool   `json:"unset,omitempty"`   // not all of them is set yet
	Persist string `json:"persist,omitempty"` // what is for this is for the next boots too, once it is kept
	// Replaced is what stood in place of Files, by their names; nil: nothing did.
	Replaced map[string][]byte `json:"replaced,omitempty"`
}

func (s store) tuning() (*tuning, error) {
	k := &tuning{Format: format, Tuned: Tuned{Settings: []TunedSetting{}}}
	if err := s.readJSON(tunedFile, k); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return k, nil
}

// saveTuning removes the record where nothing is set.
func (s store) saveTuning(k *tuning) error {
	if len(k.Settings) == 0 && len(k.Files) == 0 && k.Pending == nil {
		return s.remove(tunedFile)
	}
	return s.writeJSON(tunedFile, k)
}

// Where the next boots find what was set. The settings of the table are there only when its
// module is, so that is loaded before systemd-sysctl.service runs; a table that is made with
// its buckets needs no second one.
const (
	sysctlConf   = "sysctl.d/60-sluice.conf"
	modulesConf  = "modules-load.d/sluice.conf"
	modprobeConf = "modprobe.d/sluice.conf"
)

const bootHead = "# Written by Sluice, which keeps the old values and can restore them.\n"

// bootFiles are the texts by name below /etc.
func (k *tuning) bootFiles() map[string]string {
	out := map[string]string{}
	var settings strings.Builder
	for _, t := range k.Settings {
		if !t.Persist {
			continue
		}
		value := cmp.Or(t.Before, t.New) // until it is confirmed
		fmt.Fprintf(&settings, "%s = %s\n", t.Name, value)
		if strings.HasPrefix(t.Name, "net.netfilter.nf_conntrack_") {
			out[modulesConf] = bootHead + "nf_conntrack\n"
		}
		if t.Name == tableBuckets {
			out[modprobeConf] = bootHead + "options nf_conntrack hashsize=" + value + "\n"
		}
	}
	if settings.Len() > 0 {
		out[sysctlConf] = bootHead + settings.String()
	}
	return out
}

// persist brings the files of boot to what is kept. What it replaces is on disk before.
func (s *session) persist(k *tuning) error {
	want := k.bootFiles()
	for _, name := range []string{sysctlConf, modulesConf, modprobeConf} {
		if _, wanted := want[name]; !wanted || slices.Contains(k.Files, name) {
			continue
		}
		before, err := regular.Read(s.bootFile(name), mostRecord)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if bytes.HasPrefix(before, []byte(bootHead)) {
			before = nil // of a state that is gone
		}
		if k.Replaced == nil {
			k.Replaced = map[string][]byte{}
		}
		if before != nil {
			k.Replaced[name] = before
		}
		k.Files = append(k.Files, name)
	}
	if err := s.saveTuning(k); err != nil {
		return err
	}
	s.point("files recorded")
	for _, name := range slices.Clone(k.Files) {
		text, wanted := want[name]
		path := s.bootFile(name)
		var err error
		switch before, replaced := k.Replaced[name]; {
		case wanted:
			err = writeBoot(path, []byte(text))
		case replaced:
			err = writeBoot(path, before)
		default:
			if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		if err != nil {
			return err
		}
		s.point("file " + name)
		if !wanted {
			k.Files = slices.DeleteFunc(k.Files, func(n string) bool { return n == name })
			delete(k.Replaced, name)
		}
	}
	return s.saveTuning(k)
}

func (h *Host) bootFile(name string) string {
	dir := h.etc
	if dir == "" {
		dir = "/etc"
	}
	return filepath.Join(dir, name)
}

// writeBoot replaces a file so that a crash leaves the old or the new one.
func writeBoot(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := renameio.WriteFile(path, text, 0o644, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o644)); err != nil {
		return err
	}
	return regular.SyncDir(filepath.Dir(path))
}

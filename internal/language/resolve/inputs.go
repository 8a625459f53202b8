package resolve

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strconv"

	"sluice/internal/language/policy"
)

// Inputs is what the names of a policy were resolved from, beside the policy and
// the facts of the host: a hash of every set file and list, the checksum of the
// country data, the number of every user. Of equal inputs comes the same.
type Inputs map[string]string

// InputsOf gives the inputs that Resolve would have at this moment, without
// parsing them. It fails where Resolve would, and for a set file that can be read
// only once.
func InputsOf(p *policy.Policy, opt Options) (Inputs, error) {
	if opt.User == nil {
		opt.User = hostUser
	}
	in := Inputs{}
	for _, s := range p.Sets {
		if s.Live && s.File != nil {
			if err := in.hashLive(p, s, opt.Live); err != nil {
				return nil, err
			}
			continue
		}
		if s.File != nil {
			if err := in.hashFile(p, s.FilePath()); err != nil {
				return nil, err
			}
		}
		if s.URL != nil && s.File == nil {
			if err := in.hashList(s, opt.Lists); err != nil {
				return nil, err
			}
		}
		if _, known := in[CountryData]; !known && len(s.Countries)+len(s.Continents) > 0 {
			if opt.Geo == nil {
				return nil, errNoGeo
			}
			d, err := opt.Geo()
			if err != nil {
				return nil, err
			}
			in.add(CountryData, d.Sum())
		}
	}
	for _, name := range userNames(p) {
		id, err := opt.User(name.Text)
		if err != nil {
			return nil, err
		}
		in.addUser(name.Text, id)
	}
	return in, nil
}

// CountryData is what the sum of the country data is called among the inputs.
const CountryData = "countries"

func fileInput(path string) string { return "file " + path }
func listInput(url string) string  { return "list " + url }

// add notes a hash. What was read twice and differed is like nothing else, since
// it cannot be told which of the two a set was made of.
func (in Inputs) add(name string, sum [sha256.Size]byte) {
	text := hex.EncodeToString(sum[:])
	if before, twice := in[name]; twice && before != text {
		text = "it changed while it was read"
	}
	in[name] = text
}

func (in Inputs) addUser(name string, id uint32) {
	in["user "+name] = strconv.FormatUint(uint64(id), 10)
}

func (in Inputs) hashFile(p *policy.Policy, path string) error {
	f, err := p.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return in.hash(fileInput(path), f)
}

func (in Inputs) hashLive(p *policy.Policy, s *policy.Set, live func(url string) (io.ReadCloser, error)) error {
	text, _, err := openLive(p, s, live)
	if err != nil {
		return err
	}
	defer text.Close()
	return in.hash(listInput(LiveCopy(s.URL.Text)), text)
}

func (in Inputs) hashList(s *policy.Set, lists Lists) error {
	if lists == nil {
		return fmt.Errorf("no copy of %s on this host", s.URL.Text)
	}
	text, _, err := lists.Open(s.URL.Text, s.Refresh)
	if err != nil {
		return err
	}
	defer text.Close()
	return in.hash(listInput(s.URL.Text), text)
}

func (in Inputs) hash(name string, text io.Reader) error {
	h := newHashing(text)
	_, err := io.Copy(io.Discard, h)
	in.add(name, h.sum())
	return err
}

// hashing is a reader that hashes what is read through it.
type hashing struct {
	io.Reader
	hash hash.Hash
}

func newHashing(text io.Reader) hashing {
	h := sha256.New()
	return hashing{io.TeeReader(text, h), h}
}

func (h hashing) sum() [sha256.Size]byte { return [sha256.Size]byte(h.hash.Sum(nil)) }

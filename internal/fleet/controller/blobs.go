package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"sluice/internal/base/addrset"
	"sluice/internal/base/selector"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// contents keeps what bundles are made of, which never changes.
type contents struct {
	mutex   sync.Mutex
	bundles map[int64]*content
}

// content is what a bundle is made of.
type content struct {
	manifest  trust.Manifest
	selectors []*selector.Selector // of files that are not for every host
	blobs     map[string][]*selector.Selector
	sha256    string // of the manifest
	size      int64

	mutex             sync.Mutex
	news              map[string][]string // hashes, for hosts that are alike and run the same
	read              bool                // what follows is known
	groups            []group
	lists             []liveList
	addresses, public addrset.Set                // that guests may have
	words             map[string]map[string]bool // by the path of a file
	unions            map[string][]string        // of which sets a set is made
	used              map[string][]group         // by the class of a host
	fleet             *policy.Fleet              // nil: not read yet
	at                int64                      // classes are of the hosts of this revision
	classes           map[string]string
}

// everyone is a selector that matches every host.
var everyone *selector.Selector

func (cs *contents) of(ctx context.Context, from *store.Store, bundle int64) (*content, error) {
	cs.mutex.Lock()
	has := cs.bundles[bundle]
	cs.mutex.Unlock()
	if has != nil {
		return has, nil
	}
	b, err := from.Bundle(ctx, bundle)
	if err != nil {
		return nil, err
	}
	made := &content{sha256: b.SHA256, size: int64(len(b.Manifest))}
	m := &made.manifest
	if err := json.Unmarshal(b.Manifest, m); err != nil { // it was verified when it was published
		return nil, fmt.Errorf("the manifest of bundle %d: %w", bundle, err)
	}
	made.blobs = map[string][]*selector.Selector{b.SHA256: {everyone}}
	for _, f := range m.Files() {
		is := everyone
		if f.Selector != "" {
			if is, err = selector.Parse(f.Selector); err != nil {
				return nil, fmt.Errorf("%s of bundle %d: %w", f.Path, bundle, err)
			}
			made.selectors = append(made.selectors, is)
		}
		made.blobs[f.SHA256] = append(made.blobs[f.SHA256], is)
	}
	cs.mutex.Lock()
	defer cs.mutex.Unlock()
	if has := cs.bundles[bundle]; has != nil { // of somebody who read it meanwhile, and perhaps more of it
		return has, nil
	}
	cs.bundles[bundle] = made
	return made, nil
}

// class is the same for hosts that the same files are for.
func (of *content) class(v *view, id string) string {
	of.mutex.Lock()
	defer of.mutex.Unlock()
	if of.classes == nil || of.at != v.hostsAt {
		of.at, of.classes = v.hostsAt, map[string]string{}
	}
	if class, has := of.classes[id]; has {
		return class
	}
	all := named(id, v.hosts[id].Labels)
	var is strings.Builder
	for _, s := range of.selectors {
		if s.Match(all) {
			is.WriteByte('1')
		} else {
			is.WriteByte('0')
		}
	}
	of.classes[id] = is.String()
	return is.String()
}

// mayFetch says whether a blob is of a file that is for this host, or for all.
func (c *Controller) mayFetch(ctx context.Context, host, hash string) (bool, error) {
	v := c.view.Load()
	if c.documents.text(hash) != nil {
		return true, nil
	}
	if is, err := c.mayHaveList(ctx, v, host, hash); is || err != nil {
		return is, err
	}
	for _, number := range *c.listed.Load() {
		if _, published := v.bundles[number]; !published {
			continue
		}
		of, err := c.contents.of(ctx, c.Store, number)
		if err != nil {
			return false, err
		}
		for _, s := range of.blobs[hash] {
			if s == everyone || s.Match(named(host, v.hosts[host].Labels)) {
				return true, nil
			}
		}
	}
	return false, nil
}

// patches keeps those that were made last: all hosts want the same at once.
type patches struct {
	making singleflight.Group
	slots  chan struct{} // of those that are made at once
	wait   time.Duration // for one
	mutex  sync.Mutex
	made   []made
}

type made struct {
	of    string
	patch []byte
	is    string // its media type
}

const (
	leastPatch  = 4 << 10  // bytes of a blob that a patch is made for
	mostPatch   = 16 << 20 // of one that is held in memory for it
	keptPatches = 8

	mostPatching = 2 // each takes three times mostPatch in memory, whoever asks
	patchWait    = 10 * time.Second
)

// blob gives a blob, or what makes it of one that the host has.
func (c *Controller) blob(w http.ResponseWriter, r *http.Request, host string) {
	hash, from := r.PathValue("sha256"), r.URL.Query().Get("from")
	if err := wire.CheckSHA256(hash); err != nil || from != "" && wire.CheckSHA256(from) != nil {
		wire.Fail(w, &wire.Failure{Text: "a blob is named by its SHA-256", Kind: wire.KindBadRequest})
		return
	}
	answer, until := http.NewResponseController(w), time.Now().Add(blobTime)
	_ = errors.Join(answer.SetWriteDeadline(until), answer.SetReadDeadline(until))
	may, err := c.mayFetch(r.Context(), host, hash)
	if err == nil && !may {
		err = &wire.Failure{Text: fmt.Sprintf("no bundle has a blob %.12s for %s", hash, host), Kind: wire.KindNotFound}
	}
	if err == nil && from != "" {
		if has, err := c.mayFetch(r.Context(), host, from); err != nil || !has {
			from = ""
		}
	}
	if err != nil {
		c.fail(w, err)
		return
	}
	content, size, err := c.open(r.Context(), hash)
	if err != nil {
		c.fail(w, err)
		return
	}
	if from != "" && size >= leastPatch && size <= mostPatch {
		lists := strings.Contains(r.Header.Get("Accept"), wire.ListPatchType)
		if m := c.patch(r.Context(), from, hash, lists, content); m.patch != nil {
			w.Header().Set("Content-Type", m.is)
			_, _ = w.Write(m.patch)
			return
		}
		if _, err := content.Seek(0, io.SeekStart); err != nil {
			c.fail(w, err)
			return
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, content)
}

// open finds a blob: what the live key signed is in memory.
func (c *Controller) open(ctx context.Context, hash string) (io.ReadSeeker, int64, error) {
	if text := c.documents.text(hash); text != nil {
		return bytes.NewReader(text), int64(len(text)), nil
	}
	if text := c.held.get(hash); text != nil {
		return bytes.NewReader(text), int64(len(text)), nil
	}
	b, err := c.Store.OpenBlob(ctx, hash)
	if err != nil || b.Size > mostHeld {
		return b, sizeOf(b), err
	}
	text, err := io.ReadAll(b)
	if err != nil {
		return nil, 0, err
	}
	c.held.put(hash, text)
	return bytes.NewReader(text), int64(len(text)), nil
}

func sizeOf(b *store.Blob) int64 {
	if b == nil {
		return 0
	}
	return b.Size
}

const (
	mostHeld = 128 << 10 // bytes of a blob that is kept in memory
	allHeld  = 4 << 20   // of all of them
)

// held keeps small blobs: all hosts want the same few at once.
type held struct {
	mutex sync.Mutex
	of    map[string][]byte
	bytes int
}

func (h *held) get(hash string) []byte {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.of[hash]
}

func (h *held) put(hash string, text []byte) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.of == nil || h.bytes+len(text) > allHeld {
		h.of, h.bytes = map[string][]byte{}, 0
	}
	h.of[hash] = text
	h.bytes += len(text)
}

// patch makes one of two blobs, that of a list where lists says so and they are such; it is nil
// where there is none to be made, or too many are asked for.
func (c *Controller) patch(ctx context.Context, from, to string, lists bool, content io.Reader) made {
	of := fmt.Sprint(from, to, lists)
	c.patches.mutex.Lock()
	for _, m := range c.patches.made {
		if m.of == of {
			c.patches.mutex.Unlock()
			return m
		}
	}
	c.patches.mutex.Unlock()
	got, err, _ := c.patches.making.Do(of, func() (any, error) {
		waiting, stop := context.WithTimeout(ctx, c.patches.wait)
		defer stop()
		select {
		case c.patches.slots <- struct{}{}:
			defer func() { <-c.patches.slots }()
		case <-waiting.Done():
			return nil, waiting.Err()
		}
		old, size, err := c.open(ctx, from)
		if err != nil || size > mostPatch {
			return nil, errors.Join(err, store.ErrTooLarge)
		}
		a, err := io.ReadAll(old)
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(content)
		if err != nil {
			return nil, err
		}
		m := made{of: of, is: wire.ListPatchType}
		if lists {
			if m.patch, err = wire.ListPatch(a, b); err != nil {
				return nil, err
			}
		}
		if m.patch == nil {
			m.is = wire.PatchType
			if m.patch, err = wire.Patch(a, b); err != nil {
				return nil, err
			}
		}
		if len(m.patch) >= len(b) {
			m.patch = nil
		}
		c.patches.mutex.Lock()
		defer c.patches.mutex.Unlock()
		c.patches.made = append(c.patches.made, m)
		c.patches.made = c.patches.made[max(0, len(c.patches.made)-keptPatches):]
		return m, nil
	})
	if err != nil {
		return made{}
	}
	m, _ := got.(made)
	return m
}

package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"

	"sluice/internal/system/host"
	"sluice/internal/system/kernel/link"
	"sluice/internal/system/kernel/socket"
)

// Source is one file that the policy was made of. Text is nil where the text is
// not kept.
type Source struct {
	Name   string
	Size   int64
	SHA256 string
	Text   []byte
}

// SourceOf is a text of a policy, which is kept whole.
func SourceOf(name string, text []byte) Source {
	sum := sha256.Sum256(text)
	return Source{Name: name, Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:]), Text: text}
}

// HashFile reads of a set's file, which may hold millions of lines, what tells it from
// another. Open is regular.Open, or that of the policy.
func HashFile(open func(string) (*os.File, error), name string) (Source, error) {
	file, err := open(name)
	if err != nil {
		return Source{}, err
	}
	defer file.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, file)
	if err != nil {
		return Source{}, fmt.Errorf("read %s: %w", name, err)
	}
	return Source{Name: name, Size: size, SHA256: hex.EncodeToString(hash.Sum(nil))}, nil
}

// putSources keeps the texts among the sources.
func (s store) putSources(sources []Source) (out []File, err error) {
	for _, f := range sources {
		file := File{Name: f.Name, Size: f.Size, SHA256: f.SHA256}
		if f.Text != nil {
			if file.Blob, err = s.putBlob(f.Text); err != nil {
				return nil, err
			}
		}
		out = append(out, file)
	}
	return out, nil
}

// keepSources records what the running generation is made of now, where that became
// the same rules: another comment, or what only the agent goes by.
func (s *session) keepSources(in Input) {
	g, err := s.generation(s.cur.Running)
	if err == nil {
		was := *g
		g.Dir, _ = os.Getwd()
		g.Inputs = in.Sources
		g.Broken = in.Broken
		g.except(in)
		if g.Files, err = s.putSources(in.Files); err == nil &&
			(g.Dir != was.Dir || !slices.Equal(g.Files, was.Files) || !slices.Equal(g.Broken, was.Broken) ||
				!slices.Equal(g.Exceptions, was.Exceptions) || !slices.Equal(g.LeftOut, was.LeftOut) || !maps.Equal(g.Inputs, was.Inputs)) {
			err = s.saveGeneration(g)
		}
	}
	if err != nil {
		s.note("the new files of generation %d are not recorded: %v", s.cur.Running, err)
	}
}

// SSHClients are those who manage the host over ssh: as the facts say, and who runs
// this process; each with the flows that carry its packets through tunnels.
func SSHClients(f host.Facts) []SSHClient {
	var peers []SSHClient
	routing := link.NewRouting()
	for _, p := range f.SSHClients {
		peers = append(peers, peerOf(routing, p))
	}
	for _, o := range f.OuterFlows {
		peers = append(peers, SSHClient{Remote: o.Remote, Local: o.Local, Interface: o.Interface, Outer: o})
	}
	return peers
}

// SSHPorts are the ports that a server for administrators listens on at this
// moment; none at boot, before it is up.
func SSHPorts() []uint16 {
	sockets, err := socket.TCP()
	if err != nil {
		return nil
	}
	owners, err := host.SSHServers(sockets)
	if err != nil {
		return nil
	}
	return host.SSHPorts(sockets, owners)
}

// FreeMemory is how many bytes the machine can still give, 0 where it does not
// say.
func FreeMemory() uint64 {
	free, _ := host.Memory("MemAvailable") // an error comes with 0
	return free
}

// Pristine puts into the facts what the host was like before Sluice changed its
// sysctls: what is computed from them must not depend on itself.
func (h *Host) Pristine(f *host.Facts) {
	originals := h.Originals()
	for name, field := range map[string]*uint64{
		"net.netfilter.nf_conntrack_max":     &f.ConntrackMax,
		"net.netfilter.nf_conntrack_buckets": &f.ConntrackBuckets,
	} {
		if n, err := strconv.ParseUint(originals[name], 10, 64); err == nil {
			*field = n
		}
	}
}

// NothingPending says that an error is a confirm without anything to confirm, or
// one that came too late.
func NothingPending(err error) bool {
	var late *LateError
	return errors.Is(err, errNothingPending) || errors.Is(err, errTunedLate) || errors.As(err, &late)
}

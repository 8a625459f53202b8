package lists

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"sluice/internal/fetch"
	"sluice/internal/resolve"
)

// User is whom the child that asks servers runs as, where who starts it is root.
// packaging/sysusers.d makes it.
const User = "sluice-fetch"

// nobody is the overflow user of the kernel, where User is not there.
const nobody = 65534

// Serve is the child: it reads one question, asks the server, reads the list and
// hands back the ranges. Lacks is what it could not be confined by.
func Serve(ctx context.Context, in io.Reader, out io.Writer, lacks []string) error {
	var q question
	if err := json.NewDecoder(io.LimitReader(in, maxHead)).Decode(&q); err != nil {
		return fmt.Errorf("read what to fetch: %w", err)
	}
	h, elements := ask(ctx, q)
	h.Lacks = lacks
	return writeAnswer(out, h, elements)
}

// ask fetches a list and reads it.
func ask(ctx context.Context, q question) (head, []element) {
	var text bytes.Buffer
	got, err := fetch.Stream(ctx, &text, fetch.Request{From: q.URL, MaxBytes: maxBytes, ETag: q.ETag, Modified: q.Modified})
	if err != nil {
		return head{Error: err.Error()}, nil
	}
	h := head{NotModified: got.NotModified, ETag: got.ETag, Modified: got.Modified}
	var elements []element
	err = resolve.ReadSetLines(fetch.Redact(q.URL), &text, func(r addrRange, line int) {
		elements = append(elements, element{uint32(line), r}) //nolint:gosec // of a text of at most maxBytes
	})
	if err != nil {
		return head{Error: err.Error()}, nil
	}
	return h, elements
}

// get asks for a list, by the child where there is one, and writes its ranges down
// in dir: one a line, on the lines where the server has them.
func (s *Store) get(ctx context.Context, url string, old copyInfo) (*fetch.Result, error) {
	q := question{URL: url, ETag: old.ETag, Modified: old.Modified}
	file, err := os.CreateTemp(s.Dir, ".fetch-*")
	if err != nil {
		return nil, err
	}
	got := &fetch.Result{Path: file.Name()}
	keeping := false
	defer func() {
		_ = file.Close()
		if !keeping {
			_ = os.Remove(file.Name())
		}
	}()
	w := newWriter(file)
	h, err := s.answer(ctx, q, w.add)
	if err == nil {
		err = w.flush()
	}
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", fetch.Redact(url), context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("%s: %w", fetch.Redact(url), err)
	case h.Error != "":
		return nil, errors.New(h.Error)
	case h.NotModified && old.Fetched.IsZero():
		return nil, fmt.Errorf("%s: the server says that nothing has changed, and there is no copy", fetch.Redact(url))
	case h.NotModified:
		return &fetch.Result{NotModified: true}, nil
	}
	if err := file.Sync(); err != nil {
		return nil, err
	}
	keeping = true
	got.ETag, got.Modified = h.ETag, h.Modified
	return got, nil
}

func (s *Store) answer(ctx context.Context, q question, add func(element)) (head, error) {
	if len(s.Child) > 0 {
		return s.answerOfChild(ctx, q, add)
	}
	h, elements := ask(ctx, q)
	h.clean()
	for _, e := range elements {
		add(e)
	}
	return h, nil
}

// answerOfChild starts the child, as a user of its own where that may be.
func (s *Store) answerOfChild(ctx context.Context, q question, add func(element)) (head, error) {
	as, lacks := childUser()
	cmd, out, err := s.startChild(ctx, q, as)
	if err != nil && as != nil && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL)) {
		// Not root enough: in a user namespace without other users, or without CAP_SETUID.
		lacks = nil // the child says itself that it is root
		cmd, out, err = s.startChild(ctx, q, nil)
	}
	if err != nil {
		return head{}, fmt.Errorf("start the child that asks the list's server: %w", err)
	}
	h, err := readAnswer(out, add)
	if err != nil {
		_ = cmd.Process.Kill()
	}
	if waited := cmd.Wait(); err == nil && waited != nil {
		err = fmt.Errorf("the child that asks the list's server: %w", waited)
	}
	if lacks = append(lacks, h.Lacks...); len(lacks) > 0 && err == nil && s.Unconfined != nil {
		s.Unconfined("lists are fetched by a process without " + strings.Join(lacks, ", "))
	}
	return h, err
}

func (s *Store) startChild(ctx context.Context, q question, as *syscall.Credential) (*exec.Cmd, io.Reader, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return nil, nil, err
	}
	// By this name the program is found although the child's user may not enter the
	// folder that it is in.
	cmd := exec.CommandContext(ctx, "/proc/self/exe", s.Child[1:]...)
	cmd.Args[0] = s.Child[0]
	cmd.Dir = "/"
	cmd.Env = childEnvironment()
	cmd.Stdin = bytes.NewReader(text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	return cmd, out, cmd.Start()
}

// childUser is whom root starts the child as; nil for who is not root.
func childUser() (as *syscall.Credential, lacks []string) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	id := uint64(nobody)
	if u, err := user.Lookup(User); err == nil {
		id, err = strconv.ParseUint(u.Uid, 10, 32)
		if group, groupErr := strconv.ParseUint(u.Gid, 10, 32); err == nil && groupErr == nil && id != 0 {
			return &syscall.Credential{Uid: uint32(id), Gid: uint32(group)}, nil
		}
		id = nobody
	}
	return &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}, []string{"a user of its own (systemd-sysusers makes " + User + ")"}
}

// childEnvironment is what names a proxy or certificates.
func childEnvironment() []string {
	out := []string{}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if value, is := os.LookupEnv(name); is {
			out = append(out, name+"="+value)
		}
	}
	return out
}

package apart

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
	"strconv"
	"strings"
	"sync"
	"syscall"

	"sluice/internal/base/fetch"
	"sluice/internal/base/users"
)

// ownUser is whom the process runs as, where who starts it is root.
// packaging/sysusers.d makes it.
const ownUser = "sluice-fetch"

// nobody is the overflow user of the kernel, where ownUser is not there.
const nobody = 65534

// Process is how it is started.
type Process struct {
	// Command is the command line by which this program is the process, see Serve;
	// none: who asks reads by itself.
	Command []string
	// Readers read where there is no Command.
	Readers Readers
	// Unconfined is told what the process is not confined by.
	Unconfined func(text string)
}

// Once passes a text on the first time that it comes: for Unconfined, where many sources
// are fetched.
func Once(tell func(string)) func(string) {
	var told sync.Map
	return func(text string) {
		if _, again := told.LoadOrStore(text, true); !again {
			tell(text)
		}
	}
}

// Ask has a source fetched and read, each range into add, whose error ends it. What
// was added before an error is of no use.
func (p Process) Ask(ctx context.Context, q Question, add func(Row) error) (Answer, error) {
	if !fetch.IsURL(q.From) {
		file, err := fetch.Open(q.From)
		if err != nil {
			return Answer{}, fmt.Errorf("%s: %w", q.From, err)
		}
		defer func() { _ = file.Close() }()
		q.File = file
	}
	q.Follow = q.Progress != nil
	var h head
	var err error
	if len(p.Command) > 0 {
		h, err = p.ofProcess(ctx, q, add)
	} else {
		h, err = p.own(ctx, q, add)
	}
	switch {
	case ctx.Err() != nil:
		return Answer{}, fmt.Errorf("%s: %w", fetch.Redact(q.From), context.Cause(ctx))
	case err != nil:
		return Answer{}, fmt.Errorf("%s: %w", fetch.Redact(q.From), err)
	case h.Error != "":
		return Answer{}, errors.New(h.Error)
	}
	return Answer{NotModified: h.NotModified, Name: h.Name, ETag: h.ETag, Modified: h.Modified, About: h.About}, nil
}

func (p Process) own(ctx context.Context, q Question, add func(Row) error) (head, error) {
	h, rows := answer(ctx, q, p.Readers)
	h.clean()
	for _, r := range rows {
		if err := add(r); err != nil {
			return h, err
		}
	}
	return h, nil
}

// ofProcess starts it, as a user of its own where that may be.
func (p Process) ofProcess(ctx context.Context, q Question, add func(Row) error) (head, error) {
	as, lacks := userOf(ctx)
	cmd, out, err := p.start(ctx, q, as)
	if err != nil && as != nil && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL)) {
		// Not root enough: in a user namespace without other users, or without CAP_SETUID.
		lacks = nil // the process says itself that it is root
		cmd, out, err = p.start(ctx, q, nil)
	}
	if err != nil {
		return head{}, fmt.Errorf("start the download process: %w", err)
	}
	h, err := readAnswer(out, q.Progress, add)
	if err != nil {
		_ = cmd.Process.Kill()
	}
	if waited := cmd.Wait(); err == nil && waited != nil {
		err = fmt.Errorf("the download process: %w", waited)
	}
	if lacks = append(lacks, h.Lacks...); len(lacks) > 0 && err == nil && p.Unconfined != nil {
		p.Unconfined("downloads run in a process without " + strings.Join(lacks, ", "))
	}
	return h, err
}

func (p Process) start(ctx context.Context, q Question, as *syscall.Credential) (*exec.Cmd, io.Reader, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return nil, nil, err
	}
	// By this name the program is found although the user may not enter the folder
	// that it is in.
	cmd := exec.CommandContext(ctx, "/proc/self/exe", p.Command[1:]...)
	cmd.Args[0] = p.Command[0]
	cmd.Dir = "/"
	cmd.Env = environment()
	cmd.Stdin = bytes.NewReader(text)
	if q.File != nil {
		cmd.ExtraFiles = []*os.File{q.File}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	return cmd, out, cmd.Start()
}

// userOf is whom root starts the process as; nil for whoever is not root.
func userOf(ctx context.Context) (as *syscall.Credential, lacks []string) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	id := uint64(nobody)
	if u, err := users.Lookup(ctx, ownUser); err == nil {
		id, err = strconv.ParseUint(u.Uid, 10, 32)
		if group, groupErr := strconv.ParseUint(u.Gid, 10, 32); err == nil && groupErr == nil && id != 0 {
			return &syscall.Credential{Uid: uint32(id), Gid: uint32(group)}, nil
		}
		id = nobody
	}
	return &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}, []string{"its own user (systemd-sysusers creates " + ownUser + ")"}
}

// environment is what names a proxy or certificates.
func environment() []string {
	out := []string{}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if value, is := os.LookupEnv(name); is {
			out = append(out, name+"="+value)
		}
	}
	return out
}

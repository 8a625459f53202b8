// Package users finds the users and groups of this host by their names. Callers: resolve
// and the commands, for "by user", apart, for the user that it starts a process as, and
// the agent, for whoever may ask it.
package users

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"

	"sluice/internal/base/tool"
)

// patience is how long a directory of users may take to answer.
const patience = 20 * time.Second

// longest is what an answer has at most, in bytes: a line.
const longest = 64 << 10

// notFound is getent's exit status for a name that none of the host's sources has.
const notFound = 2

// Lookup finds a user of this host. Whom /etc/passwd does not have, getent(1) is asked
// for, since this program is static and cannot load the modules of nsswitch.conf(5)
// itself. The error is a user.UnknownUserError where there is no such user.
func Lookup(ctx context.Context, name string) (*user.User, error) {
	u, err := user.Lookup(name)
	if unknown := user.UnknownUserError(""); !errors.As(err, &unknown) {
		return u, err
	}
	fields, asked := ask(ctx, "passwd", name)
	if fields == nil {
		return nil, cmp.Or(asked, err)
	}
	return &user.User{Username: fields[0], Uid: fields[2], Gid: fields[3]}, nil
}

// ask has getent look a name up. It gives at least four fields, or none and no error where
// there is no such name.
func ask(ctx context.Context, database, name string) ([]string, error) {
	ctx, stop := context.WithTimeoutCause(ctx, patience, errSlow)
	defer stop()
	cmd := tool.Command(ctx, "getent", database, "--", name)
	var out answer
	cmd.Stdout = &out
	failed := tool.Run(cmd)
	var exit *exec.ExitError
	switch {
	case failed == nil:
	case errors.Is(failed, exec.ErrNotFound):
		return nil, nil
	case errors.Is(context.Cause(ctx), errSlow):
		return nil, fmt.Errorf("getent %s %s has not answered in %s", database, name, patience)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("getent %s %s: %w", database, name, ctx.Err())
	case errors.As(failed, &exit) && exit.ExitCode() == notFound:
		return nil, nil
	default:
		return nil, fmt.Errorf("getent %s %s: %w", database, name, failed)
	}
	// passwd(5): name, password, number, number of the group, and more; group(5): name,
	// password, number, members
	line, _, _ := strings.Cut(out.text.String(), "\n")
	fields := strings.Split(line, ":")
	if len(fields) < 4 || fields[0] == "" {
		return nil, fmt.Errorf("getent %s %s has answered %q, which is not a line of %s", database, name, line, database)
	}
	return fields, nil
}

var errSlow = errors.New("too slow")

// answer takes what getent prints.
type answer struct{ text strings.Builder }

func (a *answer) Write(p []byte) (int, error) {
	if a.text.Len()+len(p) > longest {
		return 0, errors.New("it has answered more than a line")
	}
	return a.text.Write(p)
}

// Number is the number of a user: that of a name, or a number itself. The error of an
// unknown user says that this host has none.
func Number(ctx context.Context, name string) (uint32, error) {
	if id, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(id), nil
	}
	u, err := Lookup(ctx, name)
	if unknown := user.UnknownUserError(""); errors.As(err, &unknown) {
		return 0, fmt.Errorf("this host has no user %q", name)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot look up the user %q: %w", name, err)
	}
	return number("user", name, u.Uid)
}

// GroupNumber is Number for a group.
func GroupNumber(ctx context.Context, name string) (uint32, error) {
	if id, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(id), nil
	}
	g, err := user.LookupGroup(name)
	if unknown := user.UnknownGroupError(""); errors.As(err, &unknown) {
		var fields []string
		if fields, err = ask(ctx, "group", name); err == nil && fields == nil {
			return 0, fmt.Errorf("this host has no group %q", name)
		}
		if err == nil {
			g = &user.Group{Gid: fields[2]}
		}
	}
	if err != nil {
		return 0, fmt.Errorf("cannot look up the group %q: %w", name, err)
	}
	return number("group", name, g.Gid)
}

func number(kind, name, text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s %q has the number %q, which is none", kind, name, text)
	}
	return uint32(id), nil
}

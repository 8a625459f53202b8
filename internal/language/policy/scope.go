package policy

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/addrset"
	"sluice/internal/base/regular"
	"sluice/internal/language/source"
)

// Scope is what the rules of an included file, or of a part of a fleet, have to keep to.
type Scope struct {
	Word   string // "to" or "from"
	Who    *Who   // literals and sets that are lists of addresses
	Guests string // the selector by which they are those of guests: sets by it are within too; "": of no guests
}

// scopedFile is a file that is included with only.
type scopedFile struct {
	pos   Pos // of the path
	name  string
	only  []Scope
	guest *Guest // whose owner's rules it has; nil: of none
}

// Broken is a file that was included with only and has errors.
type Broken struct {
	File   string
	Errors Errors
	Kept   bool              // its last text that had none is in the policy
	Sum    [sha256.Size]byte // SHA-256 of the text with the errors; zero: it could not be read
}

// withOnly is what a file is called that has a scope, and what to do about what cannot be
// there.
func (l *loader) withOnly() (what, hint string) {
	if l.guest != nil {
		return "the rules of a guest", "put it into a part of the fleet"
	}
	if l.isFleet {
		return "a part with only", "put it into a part without only"
	}
	return "a file that is included with only", "put it into the policy, or include the file without only"
}

// Scoped says whether a file was included with only.
func (p *Policy) Scoped(name string) bool { return slices.Contains(p.scoped, name) }

func (l *loader) isScoped(name string) bool {
	return slices.ContainsFunc(l.scoped, func(s scopedFile) bool { return s.name == name })
}

// scopedInclude reads an include with its scope; nil where it has none.
func (f *file) scopedInclude(n *yaml.Node) (path *yaml.Node, only []Scope) {
	before := len(f.errs)
	for _, e := range f.Known(n, grammar.Of("included")) {
		switch e.Name {
		case "path":
			path = e.Value
		case "only":
			for _, c := range f.List(e.Value, "only") {
				if s := f.readScope(c); s != nil {
					only = append(only, *s)
				}
			}
		}
	}
	switch {
	case len(f.errs) > before:
	case path == nil:
		f.fail(f.At(n), "write {path: FILE, only: to ADDRESS}", "an included file has no path")
	case len(only) == 0:
		f.fail(f.At(n), "write only: to ADDRESS, or the path alone", "an included file has no only")
	default:
		return path, only
	}
	return nil, nil
}

// readScope reads `to WHO` or `from WHO`.
func (f *file) readScope(n *yaml.Node) *Scope {
	const hint = "write to ADDRESS or from ADDRESS"
	if _, ok := f.Text(n, "a scope"); !ok {
		return nil
	}
	toks, ok := f.tokens(n)
	if !ok {
		return nil
	}
	w := &words{file: f, toks: toks}
	t, ok := w.word("to or from", hint)
	if !ok {
		return nil
	}
	if t.text != "to" && t.text != "from" {
		w.failAt(t, hint, "a scope begins with to or from, found %s", t.describe())
		return nil
	}
	s := &Scope{Word: t.text}
	at := w.peek()
	if s.Who, ok = w.who(); !ok {
		return nil
	}
	switch {
	case s.Who == nil:
		w.failAt(at, "write the path alone", "any is not a scope")
		return nil
	case s.Who.Not:
		w.failAt(at, hint, "name addresses; a scope cannot be a negation")
		return nil
	case !w.done():
		w.failAt(w.peek(), hint, "unexpected %s in a scope", w.peek().describe())
		return nil
	}
	f.setLine(n, s.String())
	for _, item := range s.Who.Items {
		f.after(func() {
			if item.Name != "" && !f.unread {
				if _, p := f.literal(item); p != nil {
					f.fail(item.Pos, p.hint, "%s", p.message)
				}
			}
		})
	}
	return s
}

func (s *Scope) String() string {
	if s.Guests != "" {
		return s.Word + " guests " + s.Guests
	}
	return s.Word + " " + s.Who.canonical()
}

// literal is the addresses of an item that is known without the host.
func (l *loader) literal(item WhoItem) (addrset.Set, *problem) {
	if item.Name == "" {
		return addrset.Of(item.Literal), nil
	}
	set := l.sets[item.Name]
	switch {
	case set == nil && l.zones[item.Name] != nil:
		return addrset.Set{}, problemf("name addresses, or a set that is a list of them", "%s is a zone, and its addresses are not known here", source.Quote(item.Name))
	case set == nil:
		return addrset.Set{}, problemf("", "unknown set %s%s", source.Quote(item.Name), source.DidYouMean(item.Name, sortedKeys(l.sets)))
	case len(set.Elements) == 0 || len(set.Except) > 0 || set.Living || set.IsGroup():
		return addrset.Set{}, problemf("name addresses, or a set that is a list of them", "set %s is not a list of addresses, so its content is not known here", source.Quote(item.Name))
	}
	var b addrset.Builder
	for _, e := range set.Elements {
		b.AddRange(e.Range)
	}
	return b.Set(), nil
}

// mayStand says whether a key may be in a file with a scope.
func (f *file) mayStand(e source.Entry) bool {
	switch Hook(e.Name) {
	case "version", "sets", "services", Forward, "expect":
		return true
	case Input, Output: // are of the host, and not of its guests
		if !f.isFleet {
			return true
		}
	case "hosts", "requires", "only":
		if f.isFleet && f.guest == nil {
			return true
		}
	}
	what, hint := f.withOnly()
	f.fail(f.At(e.Key), hint, "%s cannot be used in %s: it applies to everybody", e.Name, what)
	return false
}

// readScoped reads the files with a scope into the policy, which is whole without them.
func (l *loader) readScoped() {
	for _, s := range l.scoped {
		l.policy.scoped = append(l.policy.scoped, s.name)
		b := Broken{File: s.name}
		text, err := l.readScopedText(s.name)
		switch {
		case err != nil:
			b.Errors = Errors{l.policy.Errorf(s.pos, "", "cannot include: %v", err)}
		default:
			b.Sum = sha256.Sum256(text)
			if b.Errors = l.refused[s.name]; b.Errors == nil {
				b.Errors = l.merge(s, text)
			}
		}
		if b.Errors == nil {
			continue
		}
		var good []byte
		if l.good != nil {
			good = l.good(s.name)
		}
		b.Kept = good != nil && l.merge(s, good) == nil
		if _, own := l.edited.text(s.name); !l.tolerant || own || s.name == l.whole || good != nil && !b.Kept && s.guest == nil {
			l.errs = append(l.errs, b.Errors...)
			continue
		}
		l.policy.Broken = append(l.policy.Broken, b)
	}
	l.joinFromGuests()
}

func (l *loader) readScopedText(name string) ([]byte, error) {
	if _, err := l.realPath(name); err != nil {
		return nil, source.ReadError(name, err)
	}
	return l.readOwnText(name)
}

// readOwnText is readText of a file that somebody else may write: a link to another one,
// which he could not read or which is of another one's scope, it does not follow.
func (l *loader) readOwnText(name string) ([]byte, error) {
	if l.texts != nil {
		return l.readText(name)
	}
	if text, is := l.edited.text(name); is {
		return text, nil
	}
	opened := name
	if d, is := l.policy.where().(drafted); is && name == d.file {
		opened = d.draft
	}
	folder, err := l.policy.where().Real(filepath.Dir(opened))
	if err == nil {
		folder, err = filepath.Abs(folder)
	}
	if err != nil {
		return nil, err
	}
	data, err := source.ReadFrom(func(name string) (*os.File, error) {
		file, err := l.policy.where().Open(name)
		if err != nil {
			return nil, err
		}
		at, err := os.Readlink(fmt.Sprint("/proc/self/fd/", file.Fd()))
		if err == nil && at != filepath.Join(folder, filepath.Base(opened)) {
			err = fmt.Errorf("%s is a symbolic link, which is not allowed for a file included with only", name)
		}
		if err != nil {
			_ = file.Close()
			return nil, err
		}
		return file, nil
	}, name, dialect.MaxSize)
	if errors.Is(err, regular.Err) || errors.Is(err, syscall.EISDIR) {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	return data, err
}

// merge reads the text of a file with a scope by itself, and adds its rules where nothing
// is wrong with it.
func (l *loader) merge(s scopedFile, text []byte) Errors {
	own := l.policy.knowing(s.name)
	own.scope, own.files = append([]Scope{}, s.only...), []string{s.name}
	own.isFleet, own.others, own.policy.Fleet = l.isFleet, l.others, l.policy.Fleet
	if s.guest != nil {
		own.knowsGuest(s.guest)
	}
	own.read(s.name, text, []string{l.policy.File})
	l.policy.OldWords = append(l.policy.OldWords, own.policy.OldWords...)
	sections := []struct{ ours, theirs **Section }{
		{&l.policy.Input, &own.policy.Input}, {&l.policy.Output, &own.policy.Output}, {&l.policy.Forward, &own.policy.Forward},
	}
	for _, at := range sections {
		theirs := *at.theirs
		if theirs == nil {
			continue
		}
		if *at.ours == nil {
			own.fail(theirs.Pos, "add "+string(theirs.Hook)+" with a default to the policy", "the policy has no %s", theirs.Hook)
		}
		for _, r := range theirs.Rules {
			own.after(func() { own.keepsTo(r, "rule") })
		}
	}
	for _, x := range own.policy.Expect {
		own.after(func() { own.keepsTo(&x.Rule, "expectation") })
		if l.isFleet {
			own.forwarded(x)
		}
	}
	for _, set := range own.policy.Sets {
		if _, p := own.literal(WhoItem{Name: set.Name}); p != nil || set.Counters {
			what, hint := own.withOnly()
			own.fail(set.Pos, hint, "set %s must be a list of addresses in %s", source.Quote(set.Name), what)
		}
	}
	if own.finish() != nil {
		return own.errs
	}
	if len(own.scope) == 0 {
		return nil // a text of other guests, from before
	}
	for _, x := range own.policy.Expect {
		own.policy.spellOut(x.From)
		own.policy.spellOut(x.To)
		l.policy.Expect = append(l.policy.Expect, x)
	}
	for _, at := range sections {
		if *at.theirs == nil {
			continue
		}
		for _, r := range (*at.theirs).Rules {
			own.policy.spellOut(r.From)
			own.policy.spellOut(r.To)
			if s.guest != nil && (r.To == nil || own.within(&s.only[0], r.To) != nil) {
				l.fromGuests = append(l.fromGuests, r)
				continue
			}
			(*at.ours).Rules = append((*at.ours).Rules, r)
		}
	}
	l.files = append(l.files, s.name)
	l.policy.Includes = append(l.policy.Includes, s.name)
	l.policy.lines[s.name], l.policy.texts[s.name] = own.policy.lines[s.name], text
	return nil
}

// spellOut puts the addresses of the policy's own sets in place of their names, which
// nobody else knows.
func (p *Policy) spellOut(w *Who) {
	if w == nil {
		return
	}
	var items []WhoItem
	for _, item := range w.Items {
		set := p.Set(item.Name)
		if set == nil {
			items = append(items, item)
			continue
		}
		for _, e := range set.Elements {
			items = append(items, WhoItem{Pos: item.Pos, Literal: e.Range})
		}
	}
	w.Items = items
}

// keepsTo checks that a rule, or another line, speaks of nothing but a scope of its file. A
// file without one has told why.
func (l *loader) keepsTo(r *Rule, what string) {
	if len(l.scope) == 0 {
		return
	}
	if r.Limit != nil && r.Limit.ThenBan != 0 {
		file, _ := l.withOnly()
		l.fail(r.Limit.Pos, "remove then ban", "a ban applies to everybody, so it cannot be in %s", file)
	}
	var wrong *Error
	var written []string
	for i := range l.scope {
		s := &l.scope[i]
		written = append(written, s.String())
		who := r.To
		if s.Word == "from" {
			who = r.From
		}
		e := l.within(s, who)
		if who != nil && e == nil {
			return
		}
		if wrong == nil {
			wrong = e
		}
	}
	if wrong == nil {
		only := strings.Join(written, ", or ")
		wrong = l.policy.Errorf(r.Pos, "write "+only+", or a part of it", "the %s is outside the scope of this file: %s", what, only)
	}
	l.errs = append(l.errs, wrong)
}

// within says what of a rule's addresses is not in a scope; nil where nothing is.
func (l *loader) within(s *Scope, who *Who) *Error {
	if who == nil {
		return nil
	}
	if who.Not {
		return l.policy.Errorf(who.Pos, "name the addresses", "not %s may be outside the scope of this file: %s", strings.TrimPrefix(who.canonical(), "not "), s)
	}
	var scope addrset.Set
	for _, item := range s.Who.Items {
		of, _ := l.literal(item) // an error is the policy's, and told there
		scope = scope.Union(of)
	}
	for _, item := range who.Items {
		if item.Name != "" && l.sets[item.Name] == nil && l.zones[item.Name] == nil {
			continue // which is told by whoever looks for names
		}
		if set := l.sets[item.Name]; set != nil && s.Guests != "" && set.Guests != nil && narrows(set.Guests.Text, s.Guests) {
			continue
		}
		of, p := l.literal(item)
		if p != nil {
			return l.policy.Errorf(item.Pos, p.hint, "%s", p.message)
		}
		if !of.Difference(scope).IsEmpty() {
			name := item.Name
			if name == "" {
				name = item.Literal.String()
			}
			return l.policy.Errorf(item.Pos, "", "%s is outside the scope of this file: %s", name, s)
		}
	}
	return nil
}

// narrows says that a selector selects nothing that another one does not, as far as their
// texts tell: it is the other one, or that and more.
func narrows(selector, other string) bool {
	if strings.Contains(other, " or ") && selector != other {
		return false // a text of its own would be in parentheses
	}
	return selector == other || strings.HasPrefix(selector, other+" and ") && !strings.Contains(selector, " or ")
}

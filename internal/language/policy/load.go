package policy

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/regular"
	"sluice/internal/language/source"
)

// loader reads the files of one policy and collects what is wrong with them.
type loader struct {
	policy  *Policy
	errs    Errors
	files   []string          // in the order in which they are read
	real    map[string]string // path without links → name, of the files read
	follow  bool              // read the includes
	guard   bool              // the file is a guard
	lenient bool              // leave names alone, for Format

	// unread is set when a part of the policy could not be read: a name that
	// nobody defines may be defined there, so unknown names are not reported.
	unread bool
	// names are checked when all files are read, since a name may be used
	// before it is defined.
	later []func()
	// canon is the canonical text of the nodes that have one.
	canon map[*yaml.Node]string
	// lineText are the nodes whose canonical text is a line of words, and
	// blockList the lists whose canonical form is one element a line.
	lineText, blockList map[*yaml.Node]bool

	zones    map[string]*Zone
	sets     map[string]*Set
	services map[string]*serviceDefinition
	versions int
	// texts are the files to read, by name, in place of those on the disk; nil:
	// the disk.
	texts map[string][]byte

	view     *View           // of the host; nil: of no fleet
	here     string          // the file that the view was read from; "": none
	every    bool            // read a fleet for no one host
	isFleet  bool            // what is read is of a fleet
	others   []*loader       // of parts that are of other hosts
	required map[string]bool // names, by parts

	enforced, published Pos    // of what is said of guests
	spaced              bool   // what is enforced is in their network namespaces
	maps                []*NAT // of their public addresses

	scope    []Scope      // of the file that is read; none: it may say everything
	scoped   []scopedFile // that are read when the rest is whole
	tolerant bool         // what is wrong with these keeps them alone out
	whole    string       // except for this one
	edited   *edited      // and for those of these texts
	good     func(name string) []byte
	refused  map[string]Errors

	guest      *Guest  // whose owner's rules are read; nil: they are a part's
	fromGuests []*Rule // of guests' owners, of what these may reach
}

// Files is where the files of a policy are.
type Files interface {
	Open(name string) (*os.File, error)    // as regular.Open
	Real(name string) (string, error)      // a name that no other file has
	Glob(pattern string) ([]string, error) // as filepath.Glob
}

// disk is all files of this machine.
type disk struct{}

func (disk) Open(name string) (*os.File, error) { return regular.Open(name) }

func (disk) Real(name string) (string, error) { return filepath.EvalSymlinks(name) }

func (disk) Glob(pattern string) ([]string, error) { return filepath.Glob(pattern) }

func (p *Policy) where() Files {
	if p.disk == nil {
		return disk{}
	}
	return p.disk
}

// file is one file of a policy while it is read.
type file struct {
	*loader
	*source.File
	stack []string // the files that include this one, and itself
}

func newLoader(name string) *loader {
	return &loader{
		policy:   &Policy{File: name, lines: map[string][]string{}, texts: map[string][]byte{}},
		real:     map[string]string{},
		canon:    map[*yaml.Node]string{},
		lineText: map[*yaml.Node]bool{}, blockList: map[*yaml.Node]bool{},
		zones:    map[string]*Zone{},
		sets:     map[string]*Set{},
		services: map[string]*serviceDefinition{},
		required: map[string]bool{},
	}
}

// knowing is a loader of a text that uses the names of a policy which is read already.
func (p *Policy) knowing(name string) *loader {
	l := newLoader(name)
	for _, z := range p.Zones {
		l.zones[z.Name] = z
	}
	for _, s := range p.Sets {
		l.sets[s.Name] = s
	}
	for _, s := range p.Services {
		l.services[s.Name] = &serviceDefinition{service: s, state: 2}
	}
	return l
}

// Load reads a policy file and everything that it includes. Errors about the
// policy are of type [Errors] and hold all of them.
func Load(path string) (*Policy, error) { return Reading{}.Load(path) }

// LoadGuard reads the file of a host's own expectations: a policy that has no more than
// these, and names for them. Errors about it are of type [Errors].
func LoadGuard(path string) (*Policy, error) {
	data, err := source.Read(path, dialect.MaxSize)
	if err != nil {
		return nil, err
	}
	l := newLoader(path)
	l.guard = true
	p, err := l.run(path, data)
	if err != nil {
		return nil, err
	}
	for _, s := range p.Sets {
		if s.URL != nil || s.Living {
			l.fail(s.Pos, "write its addresses, or {file: NAME}", "set %s is filled by another program, and a guard cannot rely on that", source.Quote(s.Name))
		}
	}
	return p, l.finish()
}

// drafted are files of which one is read in place of another.
type drafted struct {
	Files
	file, draft string
}

func (d drafted) Open(name string) (*os.File, error) {
	if name == d.file {
		name = d.draft
	}
	return d.Files.Open(name)
}

// Reading is how a policy is read; the zero value is what Load does.
type Reading struct {
	Files Files // where its files are, and those of its sets; nil: on the disk
	// Draft is read in place of DraftOf, under its name: of the policy, where that is "",
	// or of a file that it includes, which then must not be broken. "": none.
	Draft, DraftOf string
	// Edited are texts that are read in place of files of these names, which must not be
	// broken, or of files that are not there yet; but not of those of sets.
	Edited map[string][]byte
	// Parts lets the policy do without a file that is included with only and has errors: it
	// takes the last text of it that had none, by Good, or leaves it out. See Policy.Broken.
	Parts bool
	Good  func(name string) []byte // nil where there is none; may be nil
	// Refused is what was found to be wrong with such files when all was read.
	Refused map[string]Errors
	// View is the host that a fleet's policy is read for, by the file of the fleet; nil: the
	// file that is read says which, or is of no fleet.
	View *View
	// Texts are the files, by name, in place of those that Files has, but not those of sets;
	// nil: there is no such file.
	Texts map[string][]byte
}

// Load is Load so.
func (r Reading) Load(path string) (*Policy, error) {
	l, data, err := r.open(path)
	if err != nil {
		return nil, err
	}
	return l.run(path, data)
}

// open reads the first file.
func (r Reading) open(path string) (*loader, []byte, error) {
	l := newLoader(path)
	l.follow, l.texts, l.view = true, r.Texts, r.View
	l.tolerant, l.whole, l.good, l.refused = r.Parts, r.DraftOf, r.Good, r.Refused
	if r.Texts != nil {
		l.policy.disk = r.Files
		data, there := r.Texts[path]
		if !there {
			return nil, nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
		}
		return l, data, nil
	}
	files := r.Files
	if files == nil {
		files = disk{}
	}
	if r.Draft != "" {
		files = drafted{files, cmp.Or(r.DraftOf, path), r.Draft}
	}
	over, err := editedOf(files, r.Edited)
	if err != nil {
		return nil, nil, err
	}
	if over != nil {
		files, l.edited = over, over
	}
	l.policy.disk = files
	data, err := l.edited.read(path, files.Open)
	return l, data, err
}

// Text is the text of one of the files that Files names, as the policy was read from it.
func (p *Policy) Text(name string) []byte { return p.texts[name] }

// LoadTexts is Load for texts that are kept, by the names that their files had:
// no file is read. What is left out of a policy that was kept, because it was broken, is
// left out again.
func LoadTexts(name string, texts map[string][]byte) (*Policy, error) {
	return Reading{Texts: texts, Parts: true}.Load(name)
}

// LoadData is Load for a text that is already read; includes are looked for
// beside the file of that name.
func LoadData(name string, data []byte) (*Policy, error) {
	l := newLoader(name)
	l.follow = true
	return l.run(name, data)
}

// Parse reads one text without following its includes. When it has any, names
// that it does not define itself are taken to be defined there.
func Parse(name string, data []byte) (*Policy, error) {
	l := newLoader(name)
	return l.run(name, data)
}

func (l *loader) run(name string, data []byte) (*Policy, error) {
	if target, err := l.realPath(name); err == nil {
		l.real[target] = name
	}
	l.read(name, data, nil)
	if (l.view != nil || l.every) && l.policy.Fleet == nil && len(l.errs) == 0 {
		l.errs = append(l.errs, l.policy.Errorf(Pos{File: name, Line: 1, Column: 1}, "name the file of the fleet", "%s is the policy of one host", name))
	}
	if l.versions == 0 && len(l.errs) == 0 {
		l.errs = append(l.errs, l.policy.Errorf(Pos{File: name, Line: 1, Column: 1}, "write version: 1 as the first line", "version is missing"))
	}
	l.sections()
	if err := l.finish(); err != nil {
		return nil, err
	}
	l.readScoped()
	if len(l.errs) > 0 {
		return nil, l.errs.Sorted(l.files)
	}
	return l.policy, nil
}

// finish does what had to wait until everything was read, and gives all that is
// wrong.
func (l *loader) finish() error {
	for len(l.later) > 0 { // they may add more
		check := l.later[0]
		l.later = l.later[1:]
		check()
	}
	if len(l.errs) > 0 {
		l.errs = l.errs.Sorted(l.files)
		return l.errs
	}
	return nil
}

// read parses one file into the policy.
func (l *loader) read(name string, data []byte, stack []string) {
	l.files = append(l.files, name)
	f := l.file(name, data, append(slices.Clone(stack), name))
	if doc := f.parse(data); doc != nil {
		f.top(doc)
	}
}

// file is one of the policy's files, of which stack are those on the way to it and itself.
func (l *loader) file(name string, data []byte, stack []string) *file {
	f := &file{loader: l, File: source.New(name, data, dialect, &l.errs), stack: stack}
	f.OldWords = &l.policy.OldWords
	l.policy.lines[name] = f.Lines
	l.policy.texts[name] = data
	return f
}

// parse is the YAML of a file; nil where it has none that can be read.
func (f *file) parse(data []byte) *yaml.Node {
	if errs := f.CheckText(data); len(errs) > 0 {
		f.errs = append(f.errs, errs...)
		f.unread = true
		return nil
	}
	doc := f.Document()
	f.unread = f.unread || doc == nil
	return doc
}

func (l *loader) fail(pos Pos, hint, format string, args ...any) {
	l.errs = append(l.errs, l.policy.Errorf(pos, hint, format, args...))
}

// include reads what one element of include names.
func (f *file) include(n *yaml.Node) {
	at, scope := n, []Scope(nil)
	if n.Kind == yaml.MappingNode && f.Accident(n) == "" {
		if at, scope = f.scopedInclude(n); at == nil {
			f.unread = true
			return
		}
	}
	pattern, ok := f.Text(at, "include")
	if !ok {
		return
	}
	if !f.follow {
		f.unread = true
		return
	}
	for _, name := range f.included(at, pattern) {
		f.includeFile(at, name, scope)
	}
}

// included are the files that a pattern names.
func (f *file) included(n *yaml.Node, pattern string) (names []string) {
	if !strings.ContainsAny(pattern, `*?[\`) {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(f.Name), pattern)
		}
		return []string{pattern}
	}
	full := pattern
	if !filepath.IsAbs(pattern) {
		full = filepath.Join(escapePattern(filepath.Dir(f.Name)), pattern)
	}
	matches, err := f.glob(full)
	if err != nil {
		f.fail(f.At(n), "", "bad pattern %s: %v", source.Quote(pattern), err)
	}
	for _, m := range matches {
		// Editors keep their locks and copies in hidden files of the same ending.
		if strings.HasPrefix(filepath.Base(m), ".") && !strings.HasPrefix(filepath.Base(pattern), ".") {
			continue
		}
		names = append(names, m)
	}
	return names
}

// includeFile reads a file, or, with a scope, has it read when the rest is whole.
func (f *file) includeFile(n *yaml.Node, name string, scope []Scope) {
	target, err := f.realPath(name)
	if scope != nil && f.texts == nil {
		// The folder's, for the file is no link: else it counts for nothing, and must not
		// stand in the way of what it leads to.
		var folder string
		if folder, err = f.realPath(filepath.Dir(name)); err == nil {
			target = filepath.Join(folder, filepath.Base(name))
		}
	}
	if err != nil && scope != nil {
		f.scoped = append(f.scoped, scopedFile{f.At(n), name, scope, nil})
		return
	}
	if err != nil {
		f.unread = true
		f.fail(f.At(n), "", "cannot include: %v", source.ReadError(name, err))
		return
	}
	if other, done := f.real[target]; done {
		if scope != nil && !slices.Contains(f.stack, other) && !f.isScoped(other) {
			f.fail(f.At(n), "include it with only before it is included without", "%s is already included without only", other)
		}
		// A pattern may match the file that it is in, and two patterns the
		// same file; a circle that somebody wrote by name is a mistake.
		if slices.Contains(f.stack, other) && !strings.ContainsAny(n.Value, `*?[\`) {
			at := slices.Index(f.stack, other)
			f.fail(f.At(n), "", "files include each other in a loop: %s", strings.Join(append(slices.Clone(f.stack[at:]), other), " → "))
		}
		return
	}
	f.real[target] = name
	if scope != nil {
		f.scoped = append(f.scoped, scopedFile{f.At(n), name, scope, nil})
		return
	}
	data, err := f.readText(name)
	if err != nil {
		f.unread = true
		f.fail(f.At(n), "", "cannot include: %v", err)
		return
	}
	f.policy.Includes = append(f.policy.Includes, name)
	f.read(name, data, f.stack)
}

// realPath is a file's name without links, where there are any.
func (l *loader) realPath(name string) (string, error) {
	if l.texts == nil {
		return l.policy.where().Real(name)
	}
	if _, there := l.texts[name]; !there {
		return "", fs.ErrNotExist
	}
	return name, nil
}

func (l *loader) readText(name string) ([]byte, error) {
	if l.texts != nil {
		return l.texts[name], nil // realPath has found it
	}
	data, err := l.edited.read(name, l.policy.where().Open)
	if errors.Is(err, regular.Err) || errors.Is(err, syscall.EISDIR) {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	return data, err
}

// glob names the files that a pattern matches, in order.
func (l *loader) glob(pattern string) ([]string, error) {
	if l.texts == nil {
		return l.policy.where().Glob(pattern)
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(l.texts)) {
		matches, err := filepath.Match(pattern, name)
		if err != nil {
			return nil, err
		}
		if matches {
			out = append(out, name)
		}
	}
	return out, nil
}

// escapePattern makes a folder's name match only itself.
func escapePattern(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

// setLine notes the canonical line of words of a node.
func (l *loader) setLine(n *yaml.Node, text string) {
	l.canon[n], l.lineText[n] = text, true
}

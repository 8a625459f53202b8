package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// site is one place in the source where a fault can be planted.
type site struct {
	// Key names the place by package, function and text, so that it is the same place in
	// another tree where lines moved.
	Key  string
	File string // absolute
	Line int
	What string // "a < b becomes a <= b"

	text []byte // the file with the fault in it
}

// swapped has for an operator the one that is planted in its place.
var swapped = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	token.AND: token.OR, token.OR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL,
}

// draw gives count sites of the package in dir, those whose keys come first in the
// order that the seed makes: a site of one tree that another has too is drawn in both,
// whatever else differs.
func draw(dir, pkg string, seed uint64, count int) ([]site, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var all []site
	seen := map[string]int{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		found, err := sitesOf(name, path.Base(pkg), seen)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	order := func(s site) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, s.Key))
		return string(sum[:])
	}
	slices.SortFunc(all, func(a, b site) int { return strings.Compare(order(a), order(b)) })
	return all[:min(count, len(all))], nil
}

// sitesOf gives every site of one file. seen counts the keys, since a function may say
// the same twice.
func sitesOf(name, pkg string, seen map[string]int) ([]site, error) {
	source, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	var sites []site
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		in := pkg + "." + f.Name.Name
		if f.Recv != nil {
			in = pkg + "." + text(set, f.Recv.List[0].Type) + "." + f.Name.Name
		}
		plant := func(from, to token.Pos, kind, instead string) {
			at, end := set.Position(from), set.Position(to)
			was := string(source[at.Offset:end.Offset])
			key := in + " " + kind + " " + strings.Join(strings.Fields(was), " ")
			seen[key]++
			if n := seen[key]; n > 1 {
				key += fmt.Sprintf(" (%d)", n)
			}
			sites = append(sites, site{
				Key: key, File: name, Line: at.Line,
				What: fmt.Sprintf("%s: %s → %s", kind, short(was), short(instead)),
				text: slices.Concat(source[:at.Offset], []byte(instead), source[end.Offset:]),
			})
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if other, ok := swapped[n.Op]; ok {
					plant(n.Pos(), n.End(), "operator", text(set, n.X)+" "+other.String()+" "+text(set, n.Y))
				}
			case *ast.IfStmt:
				plant(n.Cond.Pos(), n.Cond.End(), "condition", "!("+text(set, n.Cond)+")")
			case *ast.ExprStmt:
				if _, ok := n.X.(*ast.CallExpr); ok {
					plant(n.Pos(), n.End(), "call", "")
				}
			}
			return true
		})
	}
	return sites, nil
}

func text(set *token.FileSet, n ast.Node) string {
	var b bytes.Buffer
	_ = format.Node(&b, set, n) // a node that was parsed can be printed
	return b.String()
}

// short gives a text on one line of bounded length.
func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 70 {
		return string(r[:69]) + "…"
	}
	if s == "" {
		return "nothing"
	}
	return s
}
